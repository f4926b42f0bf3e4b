"""Trainers that do something wrong with their batches."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from reference_plugins.trainer import Batch, ReferenceTrainer, State
from torch import Tensor
from torch.nn.functional import mse_loss

from broken_trainers.training import Plain
from hostcore_hookspecs import DataContext, StepContext, StepResult
from hostcore_toolkit import to_tensors


class BringsOtherDataAnew(ReferenceTrainer):
    """Brings more rows each time."""

    _times = 0

    def data_sections(self, hyperparams: Any, ctx: DataContext) -> Any:
        BringsOtherDataAnew._times += 1
        sections = super().data_sections(hyperparams, ctx)
        return {"dataset": {**sections["dataset"], "num_rows": 64 + self._times}}


class BringsEachRankItsOwn(ReferenceTrainer):
    """Shares the data out itself."""

    def data_sections(self, hyperparams: Any, ctx: DataContext) -> Any:
        sections = super().data_sections(hyperparams, ctx)
        return {"dataset": {**sections["dataset"], "num_rows": 64 // ctx.world_size, "seed": ctx.rank}}


class BringsAMistypedKey(ReferenceTrainer):
    """Says ``datasets``."""

    def data_sections(self, hyperparams: Any, ctx: DataContext) -> Any:
        return {"datasets": super().data_sections(hyperparams, ctx)["dataset"]}


class TransformsInPlace(ReferenceTrainer):
    """Centres the numbers in the memory of the data."""

    def transform_batch(self, raw_batch: pa.RecordBatch, rng: np.random.Generator, ctx: StepContext) -> Any:
        to_tensors(raw_batch, ["a"])["a"].sub_(0.5)
        return super().transform_batch(raw_batch, rng, ctx)


class PassesRowsThrough(Plain):
    """Not broken: prepares a batch of tensors over the memory of the data."""

    def transform_batch(self, raw_batch: pa.RecordBatch) -> Any:  # type: ignore[override]
        return raw_batch

    def prepare_batch(self, raw_batch: Any, ctx: StepContext) -> Any:
        return to_tensors(raw_batch)

    def loss(self, batch: Any, state: State) -> Tensor:
        numbers = torch.stack([batch["a"], batch["b"]], dim=1)
        return super().loss(Batch(numbers=numbers, product=numbers.prod(1)), state)

    def validate_step(self, prepared_batch: Any, state: State, ctx: StepContext) -> StepResult:
        return StepResult(metrics={"loss": self.loss(prepared_batch, state)})


class PreparesInPlace(PassesRowsThrough):
    """Centres the numbers in the memory of the data, in prepare_batch."""

    def prepare_batch(self, raw_batch: Any, ctx: StepContext) -> Any:
        tensors = super().prepare_batch(raw_batch, ctx)
        tensors["a"] -= 0.5
        return tensors


class StepsInPlace(PassesRowsThrough):
    """Centres the numbers in the memory of the data, in train_step."""

    def loss(self, batch: Any, state: State) -> Tensor:
        batch["b"].mul_(2)
        return super().loss(batch, state)


class KnowsTheBatchSize(Plain):
    """Has the example's batch size in its code."""

    def loss(self, batch: Batch, state: State) -> Tensor:
        predicted = state.model(batch.numbers).view(16)
        return mse_loss(predicted, batch.product)


class DrawsItsOwn(ReferenceTrainer):
    """Augments from a generator of its own, of which no checkpoint knows."""

    def setup(self, ctx: StepContext) -> None:
        super().setup(ctx)
        self._generator = np.random.default_rng(ctx.job.seed)

    def prepare_batch(self, raw_batch: Mapping[str, np.ndarray], ctx: StepContext) -> Batch:
        batch = super().prepare_batch(raw_batch, ctx)
        batch.numbers.mul_(self._generator.normal(loc=1, scale=0.1))
        return batch


class TransformsByWhatSetupMade(ReferenceTrainer):
    """Needs setup where there is none."""

    def setup(self, ctx: StepContext) -> None:
        super().setup(ctx)
        self._scale = 2.0

    def transform_batch(self, raw_batch: pa.RecordBatch, rng: np.random.Generator, ctx: StepContext) -> Any:
        transformed = super().transform_batch(raw_batch, rng, ctx)
        return {**transformed, "numbers": transformed["numbers"] * np.float32(self._scale)}


class CountsBatches(ReferenceTrainer):
    """Transforms by how many batches it has seen."""

    def __init__(self) -> None:
        self._seen = 0

    def transform_batch(self, raw_batch: pa.RecordBatch, rng: np.random.Generator, ctx: StepContext) -> Any:
        self._seen += 1
        transformed = super().transform_batch(raw_batch, rng, ctx)
        return {**transformed, "numbers": transformed["numbers"] / np.float32(self._seen)}


class TransformsIntoAFunction(ReferenceTrainer):
    """Returns what cannot be pickled."""

    def transform_batch(self, raw_batch: pa.RecordBatch, rng: np.random.Generator, ctx: StepContext) -> Any:
        transformed = super().transform_batch(raw_batch, rng, ctx)
        return lambda: transformed

    def prepare_batch(self, raw_batch: Any, ctx: StepContext) -> Batch:
        return super().prepare_batch(raw_batch(), ctx)
