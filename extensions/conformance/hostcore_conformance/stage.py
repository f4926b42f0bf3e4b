"""A stage for plugins that cannot run alone: a small job of the kit's own, and its trainer.

An author of a callback needs to give nothing but settings; one of a data source nothing but the data.
"""

import copy
from collections.abc import Mapping
from typing import Any, Final

import attrs

from hostcore_conformance.subject import Subject
from hostcore_hookspecs import Capabilities, StepContext, StepResult

_ROWS: Final[Mapping[str, Any]] = {
    "source": "hostcore-builtin-plugins/mock",
    "types": {"x": "float32", "y": "float32"},
    "readahead": 0,
    "batch_size": 8,
}

#: Three steps an epoch, validation, test and samples; by the trainer below.
STAGE_JOB: Final[Mapping[str, Any]] = {
    "trainer": "hostcore_conformance.stage:StageTrainer",
    "dataset": {**_ROWS, "num_rows": 24, "num_shards": 4, "shuffle": True},
    "validation": {**_ROWS, "num_rows": 12, "seed": 1},
    "test": {**_ROWS, "num_rows": 12, "seed": 2},
    "samples": [{"prompt": "the stage"}],
    "device": "cpu",
    "seed": 7,
}


def on_stage(subject: Subject, job: Mapping[str, Any]) -> Subject:
    """The same plugin with another example job.

    :param job: Its paths are absolute.
    """
    example = attrs.evolve(subject.example, job=copy.deepcopy(dict(job)))
    return Subject(subject.ref, example, scratch=subject.folder(), harness=subject.harness)


class StageTrainer:
    """Fits a small network with dropout: what anybody draws from torch's generator changes its losses."""

    CAPABILITIES = Capabilities(accumulate=True)

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        """Options for checks."""

        #: Whether the optimizer is made known with ``register_optimizer``.
        registers: bool = True
        learning_rate: float = 0.05

    def configure(self, ctx: StepContext) -> dict[str, Any]:
        """Model, optimizer and scheduler."""
        import torch

        layers = [torch.nn.Linear(1, 16), torch.nn.Tanh(), torch.nn.Dropout(0.25), torch.nn.Linear(16, 1)]
        model = torch.nn.Sequential(*layers).to(ctx.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=ctx.hyperparams.learning_rate, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
        if ctx.hyperparams.registers:
            ctx.register_optimizer(optimizer, scheduler)
        return {"model": model, "optimizer": optimizer, "scheduler": scheduler}

    def prepare_batch(self, raw_batch: Any, ctx: StepContext) -> dict[str, Any]:
        """Columns as tensors of one column; without data, numbers that are always the same."""
        import torch

        from hostcore_toolkit import to_tensors

        if raw_batch is None:
            x = torch.linspace(0, 1, 8, device=ctx.device)
            return {"x": x[:, None], "y": (x**2)[:, None]}
        return {name: one[:, None] for name, one in to_tensors(raw_batch, ctx=ctx).items()}

    def train_step(self, prepared_batch: Any, state: dict[str, Any]) -> StepResult:
        """One update; of several micro-batches, by the mean of their losses."""
        state["model"].train()
        parts = prepared_batch if isinstance(prepared_batch, tuple) else (prepared_batch,)
        state["optimizer"].zero_grad()
        loss = sum(_loss(state["model"], one) for one in parts) / len(parts)
        loss.backward()
        state["optimizer"].step()
        state["scheduler"].step()
        return StepResult(metrics={"loss": loss.detach()}, weight=sum(len(one["x"]) for one in parts))

    def validate_step(self, prepared_batch: Any, state: dict[str, Any]) -> StepResult:
        """The loss without dropout."""
        import torch

        state["model"].eval()
        with torch.no_grad():
            loss = _loss(state["model"], prepared_batch)
        return StepResult(metrics={"loss": loss}, weight=len(prepared_batch["x"]))

    test_step = validate_step

    def generate_sample(self, state: dict[str, Any], step: int) -> dict[str, object]:
        """Something about the model, in place of something generated."""
        return {"step": step, "parameters": sum(one.numel() for one in state["model"].parameters())}


def _loss(model: Any, batch: Mapping[str, Any]) -> Any:
    return ((model(batch["x"]) - batch["y"]) ** 2).mean()
