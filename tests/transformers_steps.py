"""One step of the trainer ``transformers``, in this process or on two ranks, on eight rows cut into batches."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from fork_server import popen
from transformers_workshop import BERT, FRAMEWORK, LLAMA

from hostcore_hookspecs import Job, RunState, StepContext
from hostcore_transformers.hyperparams import Hyperparams
from hostcore_transformers.trainer import TransformersTrainer

QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
DISTILBERT = {
    "model_type": "distilbert", "vocab_size": 320, "dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4,
    "max_position_embeddings": 128, "dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0,
}  # fmt: skip
BART = {
    "model_type": "bart", "vocab_size": 320, "d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4,
    "decoder_ffn_dim": 64, "max_position_embeddings": 128, "dropout": 0.0,
}  # fmt: skip

#: By name: models that divide by ``num_items_in_batch`` themselves, and models that do not.
MODELS: Mapping[str, Mapping[str, Any]] = {
    "llama": {"task": "causal-lm", "config": LLAMA},
    "bart": {"task": "causal-lm", "config": BART},
    "bert-masked": {"task": "masked-lm", "config": {**BERT, **QUIET}},
    "distilbert-masked": {"task": "masked-lm", "config": DISTILBERT},
    "bert-classes": {"task": "sequence-classification", "config": {**BERT, **QUIET}, "num_labels": 3},
}
#: Which rows are a batch: all at once, of different sizes, and one by one.
WHOLE = [[*range(8)]]
CUT = [[0, 1, 2, 3, 4], [5], [6, 7]]


def rows(task: str) -> dict[str, torch.Tensor]:
    """Eight rows in which each predicts a different number of tokens; the last one but one, of masked ones, none."""
    generator = torch.Generator().manual_seed(3)
    input_ids = torch.randint(3, 320, (8, 10), generator=generator)
    mask = (torch.arange(10) < torch.arange(3, 11)[:, None]).long()
    if task == "sequence-classification":
        return {"input_ids": input_ids, "attention_mask": mask, "labels": torch.arange(8) % 3}
    labels = input_ids.masked_fill(mask == 0, -100)
    if task == "masked-lm":
        labels = labels.masked_fill(torch.arange(10) % 3 > 0, -100)
        labels[6] = -100
    return {"input_ids": input_ids, "attention_mask": mask, "labels": labels}


def configured(tokenizer: Path, settings: Mapping[str, Any], *, precision: str = "fp32", **keys: Any) -> Any:
    """The trainer, its state and its context, with the same new weights each time."""
    torch.manual_seed(11)
    hyperparams = Hyperparams(**{"tokenizer": tokenizer, "max_length": 32, "max_grad_norm": 0.0, **settings})
    ctx = StepContext(
        job=Job(max_steps=1, precision=precision),
        hyperparams=hyperparams,
        dtype=torch.bfloat16 if precision == "bf16" else torch.float32,
        run_state=RunState(total_steps=1),
        **keys,
    )
    trainer = TransformersTrainer()
    return trainer, trainer.configure(ctx), ctx


def prepared(trainer: Any, state: Any, ctx: Any, batches: Sequence[Sequence[int]]) -> list[Any]:
    """Batches of some of the rows each."""
    data = rows(ctx.hyperparams.task)
    cut = [{name: values[part] for name, values in data.items()} for part in batches]
    return [trainer.prepare_batch(one, state, ctx) for one in cut]


def stepped(
    tokenizer: Path, settings: Mapping[str, Any], batches: Sequence[Sequence[int]], **keys: Any
) -> dict[str, float]:
    """Loss and norm of the gradients of one step."""
    trainer, state, ctx = configured(tokenizer, settings, **keys)
    found = trainer.train_step(prepared(trainer, state, ctx, batches), state, ctx).metrics
    return {name: float(found[name]) for name in ("loss", "grad_norm")}


def stepped_on_two_ranks(
    folder: Path, tokenizer: Path, ways: Mapping[str, Mapping[str, Any]], batches: Sequence[Sequence[Sequence[int]]]
) -> dict[str, dict[str, float]]:
    """By name: one step of each way on two ranks, which are processes of their own.

    :param batches: Those of each rank.
    :return: The mean of the ranks' losses, as the host records it, and the norm of the gradients.
    """
    question = {"tokenizer": str(tokenizer), "ways": ways, "batches": batches}
    (folder / "question.json").write_text(json.dumps(question))
    commands = [[sys.executable, __file__, str(folder), str(rank)] for rank in (0, 1)]
    ranks = [popen(command, imported=FRAMEWORK) for command in commands]
    assert [rank.wait(600) for rank in ranks] == [0, 0]
    first, second = (json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1))
    assert all(first[name]["grad_norm"] == second[name]["grad_norm"] for name in ways)
    return {name: {**first[name], "loss": (first[name]["loss"] + second[name]["loss"]) / 2} for name in ways}


def _step_as_rank(folder: Path, rank: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    asked = json.loads((folder / "question.json").read_text())
    tokenizer, own = Path(asked["tokenizer"]), asked["batches"][rank]
    found = {name: stepped(tokenizer, way, own, rank=rank, world_size=2) for name, way in asked["ways"].items()}
    (folder / f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    _step_as_rank(Path(sys.argv[1]), int(sys.argv[2]))
