"""Trainers that declare what they do not do."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import torch
from reference_plugins.trainer import Batch, ReferenceTrainer, State
from torch import Tensor

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
