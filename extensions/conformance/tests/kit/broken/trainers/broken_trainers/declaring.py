"""Trainers that declare what they do not do."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from attrs import evolve
from reference_plugins.breaking import after, before, broken, given, having, instead, then
from reference_plugins.trainer import Batch, ReferenceTrainer, State
from torch import Tensor

from broken_trainers.training import Plain, with_metric
from hostcore_hookspecs import Capabilities, StepContext, StepResult


class Accumulates(Plain):
    """Not broken: a step of several batches, or of parts of one, that can be made again; in parts to be broken."""

    CAPABILITIES = Capabilities(accumulate=True, split_on_oom=True, repeatable=True)

    def train_step(self, prepared_batch: Any, state: State, ctx: StepContext) -> StepResult:
        batches = [prepared_batch] if isinstance(prepared_batch, Batch) else list(prepared_batch)
        state.optimizer.zero_grad()
        loss = self.learn(batches, state)
        self.step(state, ctx)
        return StepResult(metrics={"loss": loss}, weight=sum(len(batch.product) for batch in batches))

    def learn(self, batches: Sequence[Batch], state: State) -> Tensor:
        losses = [self.loss(batch, state) * self.share(batch, batches) for batch in batches]
        for loss in losses:
            loss.backward()
        return sum(losses).detach()

    def share(self, batch: Batch, batches: Sequence[Batch]) -> float:
        return len(batch.product) / sum(len(one.product) for one in batches)

    def step(self, state: State, ctx: StepContext) -> None:
        ctx.begin_update()
        state.optimizer.step()


def _zeroing(state: State, batches: Sequence[Batch], call: Any) -> Tensor:
    for batch in batches:
        state.optimizer.zero_grad()
        loss: Tensor = call(batches=[batch])
    return loss


broken(
    globals(),
    Accumulates,
    # Does not divide by the number of batches.
    AddsBatchesUp=instead("share", lambda: 1.0),
    # Returns too early.
    TakesTheFirstBatch=given("learn", batches=lambda batches: batches[:1]),
    # Keeps the gradients of the last batch alone.
    ZeroesBetweenBatches=instead("learn", _zeroing),
    # Steps the scheduler while memory may still run out.
    UpdatesBeforeItSaysSo=before("step", lambda state: state.scheduler.step()),
    # Takes the mean of the means, whatever the sizes of the parts.
    WeighsPartsAlike=instead("share", lambda batches: 1 / len(batches)),
    # What a row is trained on depends on the rows beside it.
    NormalisesBatches=then("configure", lambda result: result.model.insert(0, torch.nn.BatchNorm1d(2))),
)


class GoesOnWithoutMemory(Accumulates):
    """Steps the optimizer although memory has run out on another rank."""

    def step(self, state: State, ctx: StepContext) -> None:
        with suppress(Exception):
            ctx.begin_update()
        state.optimizer.step()


class HidesItsRows(Accumulates):
    """Nests what it makes of the rows ahead of the loop."""

    def transform_batch(self, raw_batch: Any, rng: Any, ctx: StepContext) -> Any:
        return {"batch": super().transform_batch(raw_batch, rng, ctx)}

    def prepare_batch(self, raw_batch: Any, ctx: StepContext) -> Batch:
        return super().prepare_batch(raw_batch["batch"], ctx)


class StaysOnTheCpu(ReferenceTrainer):
    """Builds the model, and leaves it where it is."""

    def configure(self, ctx: StepContext) -> State:
        state = super().configure(evolve(ctx, device="cpu"))
        ctx.register_optimizer(state.optimizer, state.scheduler)
        return state


broken(
    globals(),
    ReferenceTrainer,
    # Reports what fp16 has no room for.
    OverflowsInHalf=after("train_step", lambda result, ctx: with_metric(result, large=torch.tensor(1e5).to(ctx.dtype))),
    # Moves the model, and not the batches.
    LeavesBatchesOnTheCpu=given("prepare_batch", ctx=lambda ctx: evolve(ctx, device="cpu")),
)
broken(
    globals(),
    Plain,
    # Declares half precision, and computes in fp32.
    IgnoresPrecision=having(CAPABILITIES=Capabilities(precisions=("fp32", "bf16", "fp16"))),
)
