"""Trainers that do something wrong with their batches."""

from typing import Any

import numpy as np
import torch
from reference_plugins.breaking import after, before, broken, instead, then
from reference_plugins.trainer import Batch, ReferenceTrainer, State
from torch import Tensor
from torch.nn.functional import mse_loss

from broken_trainers.training import Plain
from hostcore_hookspecs import StepContext, StepResult
from hostcore_toolkit import to_tensors


def _changed(sections: Any, **changes: Any) -> Any:
    return {"dataset": {**sections["dataset"], **changes}}


def _scaled(transformed: Any, factor: float) -> Any:
    return {**transformed, "numbers": transformed["numbers"] * np.float32(factor)}


broken(
    globals(),
    ReferenceTrainer,
    # Shares the data out itself.
    BringsEachRankItsOwn=after(
        "data_sections", lambda result, ctx: _changed(result, num_rows=64 // ctx.world_size, seed=ctx.rank)
    ),
    # Says ``datasets``.
    BringsAMistypedKey=after("data_sections", lambda result: {"datasets": result["dataset"]}),
    # Centres the numbers in the memory of the data.
    TransformsInPlace=before("transform_batch", lambda raw_batch: to_tensors(raw_batch, ["a"])["a"].sub_(0.5)),
)


class BringsOtherDataAnew(ReferenceTrainer):
    """Brings more rows each time."""

    _times = 0

    def data_sections(self, hyperparams: Any, ctx: Any) -> Any:
        BringsOtherDataAnew._times += 1
        return _changed(super().data_sections(hyperparams, ctx), num_rows=64 + self._times)


class PassesRowsThrough(Plain):
    """Not broken: prepares a batch of tensors over the memory of the data."""

    def transform_batch(self, raw_batch: Any) -> Any:  # type: ignore[override]
        return raw_batch

    def prepare_batch(self, raw_batch: Any, ctx: StepContext) -> Any:
        return to_tensors(raw_batch)

    def loss(self, batch: Any, state: State) -> Tensor:
        numbers = torch.stack([batch["a"], batch["b"]], dim=1)
        return super().loss(Batch(numbers=numbers, product=numbers.prod(1)), state)

    def validate_step(self, prepared_batch: Any, state: State, ctx: StepContext) -> StepResult:
        return StepResult(metrics={"loss": self.loss(prepared_batch, state)})


broken(
    globals(),
    PassesRowsThrough,
    # Centres, or doubles, the numbers in the memory of the data.
    PreparesInPlace=then("prepare_batch", lambda result: result["a"].sub_(0.5)),
    StepsInPlace=before("loss", lambda batch: batch["b"].mul_(2)),
)
broken(
    globals(),
    Plain,
    # Has the example's batch size in its code.
    KnowsTheBatchSize=instead(
        "loss", lambda batch, state: mse_loss(state.model(batch.numbers).view(16), batch.product)
    ),
)


class DrawsItsOwn(ReferenceTrainer):
    """Augments from a generator of its own, of which no checkpoint knows."""

    def setup(self, ctx: StepContext) -> None:
        super().setup(ctx)
        self._generator = np.random.default_rng(ctx.job.seed)

    def prepare_batch(self, raw_batch: Any, ctx: StepContext) -> Batch:
        batch = super().prepare_batch(raw_batch, ctx)
        batch.numbers.mul_(self._generator.normal(loc=1, scale=0.1))
        return batch


class TransformsByWhatSetupMade(ReferenceTrainer):
    """Needs setup where there is none."""

    def setup(self, ctx: StepContext) -> None:
        super().setup(ctx)
        self._scale = 2.0

    def transform_batch(self, raw_batch: Any, rng: np.random.Generator, ctx: StepContext) -> Any:
        return _scaled(super().transform_batch(raw_batch, rng, ctx), self._scale)


class CountsBatches(ReferenceTrainer):
    """Transforms by how many batches it has seen."""

    _seen = 0

    def transform_batch(self, raw_batch: Any, rng: np.random.Generator, ctx: StepContext) -> Any:
        self._seen += 1
        return _scaled(super().transform_batch(raw_batch, rng, ctx), 1 / self._seen)


class TransformsIntoAFunction(ReferenceTrainer):
    """Returns what cannot be pickled."""

    def transform_batch(self, raw_batch: Any, rng: np.random.Generator, ctx: StepContext) -> Any:
        transformed = super().transform_batch(raw_batch, rng, ctx)
        return lambda: transformed

    def prepare_batch(self, raw_batch: Any, ctx: StepContext) -> Batch:
        return super().prepare_batch(raw_batch(), ctx)
