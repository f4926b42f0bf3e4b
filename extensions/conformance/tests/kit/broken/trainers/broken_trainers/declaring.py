"""Trainers that declare what they do not do."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import attrs
import numpy as np
import torch
from reference_plugins.trainer import Batch, ReferenceTrainer, State
from torch import Tensor
from torch.nn.functional import mse_loss

from broken_trainers.training import Plain
from hostcore_hookspecs import Capabilities, StepContext, StepResult


class Accumulates(Plain):
    """Not broken: takes several batches for a step."""

    CAPABILITIES = Capabilities(accumulate=True)

    def train_step(self, prepared_batch: Any, state: State, ctx: StepContext) -> StepResult:
        batches = [prepared_batch] if isinstance(prepared_batch, Batch) else list(prepared_batch)
        state.optimizer.zero_grad()
        loss = self.backward(batches, state)
        state.optimizer.step()
        return StepResult(metrics={"loss": loss})

    def backward(self, batches: Sequence[Batch], state: State) -> Tensor:
        losses = [self.loss(batch, state) / len(batches) for batch in batches]
        for loss in losses:
            loss.backward()
        return sum(losses).detach()


class AddsBatchesUp(Accumulates):
    """Does not divide by the number of batches."""

    def backward(self, batches: Sequence[Batch], state: State) -> Tensor:
        losses = [self.loss(batch, state) for batch in batches]
        for loss in losses:
            loss.backward()
        return sum(losses).detach()


class TakesTheFirstBatch(Accumulates):
    """Returns too early."""

    def backward(self, batches: Sequence[Batch], state: State) -> Tensor:
        return super().backward(batches[:1], state)


class ZeroesBetweenBatches(Accumulates):
    """Keeps the gradients of the last batch alone."""

    def backward(self, batches: Sequence[Batch], state: State) -> Tensor:
        for batch in batches:
            state.optimizer.zero_grad()
            loss = self.loss(batch, state)
            loss.backward()
        return loss.detach()


class Splits(ReferenceTrainer):
    """Not broken: a step that can be made again, in parts that can be broken."""

    CAPABILITIES = Capabilities(accumulate=True, split_on_oom=True)

    def train_step(self, prepared_batch: Any, state: State, ctx: StepContext) -> StepResult:
        batches = [prepared_batch] if isinstance(prepared_batch, Batch) else list(prepared_batch)
        pairs = sum(len(batch.product) for batch in batches)
        state.optimizer.zero_grad()
        losses = [self.loss(batch, state) * self.share(batch, batches) for batch in batches]
        for loss in losses:
            loss.backward()
        self.update(state, ctx)
        return StepResult(metrics={"loss": sum(losses).detach()}, weight=pairs)

    def loss(self, batch: Batch, state: State) -> Tensor:
        return mse_loss(state.model(batch.numbers).squeeze(1), batch.product)

    def share(self, batch: Batch, batches: Sequence[Batch]) -> float:
        return len(batch.product) / sum(len(one.product) for one in batches)

    def update(self, state: State, ctx: StepContext) -> None:
        ctx.begin_update()
        state.optimizer.step()


class GoesOnWithoutMemory(Splits):
    """Steps the optimizer although memory has run out on another rank."""

    def update(self, state: State, ctx: StepContext) -> None:
        with suppress(Exception):
            ctx.begin_update()
        state.optimizer.step()


class UpdatesBeforeItSaysSo(Splits):
    """Steps the scheduler while memory may still run out."""

    def update(self, state: State, ctx: StepContext) -> None:
        state.scheduler.step()
        super().update(state, ctx)


class WeighsPartsAlike(Splits):
    """Takes the mean of the means, whatever the sizes of the parts."""

    def share(self, batch: Batch, batches: Sequence[Batch]) -> float:
        return 1 / len(batches)


class NormalisesBatches(Splits):
    """What a row is trained on depends on the rows beside it."""

    def configure(self, ctx: StepContext) -> State:
        state = super().configure(ctx)
        state.model.insert(0, torch.nn.BatchNorm1d(2))
        return state


class HidesItsRows(Splits):
    """Nests what it makes of the rows ahead of the loop."""

    def transform_batch(self, raw_batch: Any, rng: np.random.Generator, ctx: StepContext) -> Any:
        return {"batch": super().transform_batch(raw_batch, rng, ctx)}

    def prepare_batch(self, raw_batch: Any, ctx: StepContext) -> Batch:
        return super().prepare_batch(raw_batch["batch"], ctx)


class IgnoresPrecision(Plain):
    """Declares half precision, and computes in fp32."""

    CAPABILITIES = Capabilities(precisions=("fp32", "bf16", "fp16"))


class OverflowsInHalf(ReferenceTrainer):
    """Reports what fp16 has no room for."""

    def train_step(self, prepared_batch: Any, state: State, ctx: StepContext) -> StepResult:
        result = super().train_step(prepared_batch, state, ctx)
        large = torch.tensor(1e5).to(ctx.dtype)
        return attrs.evolve(result, metrics={**result.metrics, "large": large})


class StaysOnTheCpu(ReferenceTrainer):
    """Builds the model, and leaves it where it is."""

    def configure(self, ctx: StepContext) -> State:
        state = super().configure(attrs.evolve(ctx, device="cpu"))
        ctx.register_optimizer(state.optimizer, state.scheduler)
        return state


class LeavesBatchesOnTheCpu(ReferenceTrainer):
    """Moves the model, and not the batches."""

    def prepare_batch(self, raw_batch: Mapping[str, np.ndarray], ctx: StepContext) -> Batch:
        return Batch(**{name: torch.from_numpy(values) for name, values in raw_batch.items()})
