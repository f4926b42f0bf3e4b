"""The loss is the mean over all that is predicted in the global batch, whatever the model's own loss is."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers.loss import loss_utils
from transformers.trainer_pt_utils import LabelSmoother
from transformers_steps import CUT, MODELS, WHOLE, configured, prepared, rows, stepped

from hostcore_transformers.loss import nothing_predicted, predictions, summed_loss

THEIRS = {
    "causal-lm": lambda logits, labels: loss_utils.ForCausalLMLoss(logits, labels, 320),
    "masked-lm": lambda logits, labels: loss_utils.ForMaskedLMLoss(logits, labels, 320),
    "sequence-classification": loss_utils.fixed_cross_entropy,
}


@pytest.mark.parametrize("task", THEIRS)
def test_it_is_that_of_transformers_and_so_are_its_gradients_to_the_last_bit(task: str) -> None:
    labels = rows(task)["labels"]
    shape = (*labels.shape, 320) if labels.dim() == 2 else (*labels.shape, 3)
    ours = torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()
    theirs = ours.detach().clone().requires_grad_()
    predicts_next = task == "causal-lm"
    count = predictions(labels, predicts_next=predicts_next)
    loss = summed_loss(ours, labels, predicts_next=predicts_next) / count
    expected = THEIRS[task](theirs, labels)
    loss.backward()
    expected.backward()
    assert torch.equal(loss, expected)
    assert torch.equal(ours.grad, theirs.grad)


@pytest.mark.parametrize("task", THEIRS)
def test_smoothed_it_is_that_of_transformers_label_smoother_on_what_is_predicted(task: str) -> None:
    labels = rows(task)["labels"]
    shape = (*labels.shape, 320) if labels.dim() == 2 else (*labels.shape, 3)
    ours = torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()
    theirs = ours.detach().clone().requires_grad_()
    predicts_next = task == "causal-lm"
    count = predictions(labels, predicts_next=predicts_next)
    loss = summed_loss(ours, labels, predicts_next=predicts_next, smoothing=0.1) / count
    expected = LabelSmoother(0.1)((theirs,), labels, shift_labels=predicts_next)
    loss.backward()
    expected.backward()
    assert torch.allclose(loss, expected, rtol=1e-6)
    assert torch.allclose(ours.grad, theirs.grad, rtol=1e-4, atol=1e-8)


def test_nothing_predicted_is_a_loss_of_0_with_gradients_of_0() -> None:
    batch = nothing_predicted()
    logits = torch.randn(1, 2, 320, requires_grad=True)
    loss = summed_loss(logits, batch["labels"], predicts_next=True)
    loss.backward()
    assert loss == 0
    assert torch.equal(logits.grad, torch.zeros_like(logits))
    assert predictions(batch["labels"], predicts_next=True) == 0


@pytest.mark.parametrize("model", MODELS)
def test_accumulated_batches_of_different_sizes_are_one_batch(tokenizer_folder: Path, model: str) -> None:
    whole = stepped(tokenizer_folder, MODELS[model], WHOLE)
    assert stepped(tokenizer_folder, MODELS[model], CUT) == pytest.approx(whole, rel=1e-4)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_gradient_checkpointing_changes_no_bit(tokenizer_folder: Path, precision: str) -> None:
    settings = MODELS["llama"]
    with_it = {**settings, "gradient_checkpointing": True}
    assert stepped(tokenizer_folder, with_it, CUT, precision=precision) == stepped(
        tokenizer_folder, settings, CUT, precision=precision
    )


def test_a_step_that_predicts_nothing_changes_nothing(tokenizer_folder: Path) -> None:
    found: Any = stepped(tokenizer_folder, MODELS["bert-masked"], [[6]])
    assert found == {"loss": 0.0, "grad_norm": 0.0}


def test_gradients_of_accumulated_batches_are_averaged_over_the_ranks_once(
    tokenizer_folder: Path, tmp_path: Path
) -> None:
    trainer, state, ctx = configured(tokenizer_folder, MODELS["llama"])
    averaged = []

    def average(_: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        averaged.append(bucket.index())
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        state.model = DistributedDataParallel(state.model)
        state.model.register_comm_hook(None, average)
        trainer.train_step(prepared(trainer, state, ctx, CUT), state, ctx)
    finally:
        dist.destroy_process_group()
    assert len(averaged) == len(set(averaged)) > 0
