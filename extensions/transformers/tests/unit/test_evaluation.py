"""What a validation finds: batches without anything to predict do not count, and data without any is an error."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from device_reads import DeviceReads
from pretended_cuda import CopiesToCuda
from transformers_steps import MODELS, configured, prepared, rows

from hostcore_hookspecs import InvalidData


@pytest.fixture
def validation(tokenizer_folder: Path, request: pytest.FixtureRequest) -> Any:
    """The trainer, its state and a context within a validation of the model that the test asks for."""
    trainer, state, ctx = configured(tokenizer_folder, MODELS[request.param])
    state.model.eval()
    ctx.split = "validation"
    return trainer, state, ctx


def scored(validation: Any, batches: list[list[int]]) -> Any:
    """The mean loss, as the host computes it, and what the trainer finds at the end."""
    trainer, state, ctx = validation
    results = [trainer.validate_step(one, state, ctx) for one in prepared(trainer, state, ctx, batches)]
    weights = [one.weight for one in results]
    losses = [float(one.metrics["loss"]) for one in results]
    mean = sum(w * loss for w, loss in zip(weights, losses, strict=True)) / max(sum(weights), 1)
    return mean, trainer.evaluation_metrics(state, ctx)


@pytest.mark.parametrize("validation", ["bert-masked", "llama"], indirect=True)
def test_perplexity_is_that_of_all_predictions_however_rows_are_batched(validation: Any) -> None:
    mean, found = scored(validation, [[one] for one in range(8)])  # in row 6, no masked token is predicted
    together, found_together = scored(validation, [[*range(8)]])
    assert math.isfinite(mean)
    assert mean == pytest.approx(together, rel=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(mean), rel=1e-5)
    assert found == pytest.approx(found_together, rel=1e-5)


@pytest.mark.parametrize("validation", ["bert-classes"], indirect=True)
def test_accuracy_is_the_share_of_rows(validation: Any) -> None:
    _, state, _ = validation
    data = rows("sequence-classification")
    with torch.no_grad():
        logits = state.model(input_ids=data["input_ids"], attention_mask=data["attention_mask"]).logits
    right = int((logits.argmax(-1) == data["labels"]).sum())
    assert scored(validation, [[0, 1, 2], [3, 4, 5, 6, 7]])[1] == {"accuracy": right / 8}


@pytest.mark.parametrize("validation", ["bert-masked"], indirect=True)
def test_data_in_which_nothing_is_predicted_is_one_clear_error(validation: Any) -> None:
    with pytest.raises(InvalidData, match="nothing is predicted in the validation data") as refused:
        scored(validation, [[6], [6]])
    assert refused.value.pointer == "/validation"


@pytest.mark.parametrize("validation", ["llama"], indirect=True)
def test_batches_for_a_gpu_are_copied_from_pinned_memory_without_blocking(validation: Any) -> None:
    trainer, state, ctx = validation
    ctx.device = "cuda"
    with CopiesToCuda() as copies:
        prepared(trainer, state, ctx, [[0, 1]])
    assert copies.copies == 3  # input_ids, attention_mask, labels


@pytest.mark.parametrize("validation", ["llama", "bert-classes"], indirect=True)
def test_steps_read_nothing_of_the_device_neither_in_training_nor_in_a_validation(validation: Any) -> None:
    trainer, state, ctx = validation
    device = DeviceReads()
    device.put(state.model)
    batches = prepared(trainer, state, ctx, [[0, 1], [2]])
    for one in batches:  # transformers itself reads the mask of the padding, at every call of the model
        device.put([one.inputs["input_ids"], one.labels])
    device.start()
    try:
        device.forbidden = True
        for one in batches:
            trainer.validate_step(one, state, ctx)
            trainer.train_step(one, state, ctx)
        device.forbidden = False
        trainer.evaluation_metrics(state, ctx)
    finally:
        device.stop()
    assert device.allowed > 0
