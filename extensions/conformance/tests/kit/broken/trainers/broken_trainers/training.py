"""Trainers that do something wrong in a step, or at the end: most of the usual mistakes of a first trainer."""

from collections.abc import Mapping
from typing import Any

import attrs
import torch
from attrs import evolve
from reference_plugins.breaking import after, before, broken, instead, then
from reference_plugins.trainer import Batch, ReferenceTrainer, State
from torch import Tensor
from torch.nn.functional import mse_loss
from torch.optim.swa_utils import AveragedModel

from hostcore_hookspecs import Capabilities, StepContext, StepResult


class Plain(ReferenceTrainer):
    """Not broken: a step of one batch in fp32, in parts that can be broken."""

    CAPABILITIES = Capabilities()

    def train_step(self, prepared_batch: Any, state: State, ctx: StepContext) -> StepResult:
        self.clear(state)
        loss = self.loss(prepared_batch, state)
        self.backward(loss)
        self.update(state)
        return StepResult(metrics={"loss": self.reported(loss)})

    def clear(self, state: State) -> None:
        state.optimizer.zero_grad()

    def loss(self, batch: Batch, state: State) -> Tensor:
        return mse_loss(state.model(batch.numbers).squeeze(1), batch.product)

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def update(self, state: State) -> None:
        state.optimizer.step()

    def reported(self, loss: Tensor) -> Tensor:
        return loss.detach()


def with_metric(result: StepResult, **metrics: Tensor) -> StepResult:
    return evolve(result, metrics={**result.metrics, **metrics})


broken(
    globals(),
    ReferenceTrainer,
    # Forgets the return in train_step.
    ReturnsNothing=after("train_step", lambda: None),
    # Ends the run when it thinks that it is done.
    StopsByItself=before("train_step", lambda ctx: ctx.request_stop("that is enough")),
    # Reports a share of rows of which there are none.
    DividesByZero=after("train_step", lambda result: with_metric(result, error_of_large=torch.zeros(0).mean())),
    # Reports its loss under another name.
    CallsItObjective=after("train_step", lambda result: evolve(result, metrics={"objective": result.metrics["loss"]})),
    # Trains a model as a library for pretrained ones returns it.
    StaysInEvaluationMode=then("configure", lambda result: result.model.eval()),
)
broken(
    globals(),
    Plain,
    # Returns the loss as it is.
    ReturnsTheGraph=instead("reported", lambda loss: loss),
    # Computes gradients, and leaves it at that.
    NeverSteps=instead("update", lambda: None),
    # Forgets zero_grad.
    NeverZeroesGradients=instead("clear", lambda: None),
    # Has the wrong sign.
    Climbs=instead("backward", lambda loss: (-loss).backward()),
)


class FailsLater(ReferenceTrainer):
    """Raises in the third step."""

    def train_step(self, prepared_batch: Any, state: State, ctx: StepContext) -> StepResult:
        if ctx.run_state.step == 2:
            raise KeyError("schedule")
        return super().train_step(prepared_batch, state, ctx)


class SwallowsErrors(ReferenceTrainer):
    """Goes on, whatever happens."""

    def train_step(self, prepared_batch: Any, state: State, ctx: StepContext) -> StepResult:
        try:
            return super().train_step(prepared_batch, state, ctx)
        except Exception:  # noqa: BLE001 - what is broken
            return StepResult(metrics={"loss": 0.0})


# --- learning ---------------------------------------------------------------------------------------------------------


class BuildsTheOptimizerInSetup(ReferenceTrainer):
    """Makes the optimizer in setup, of a model that configure replaces."""

    def setup(self, ctx: StepContext) -> None:
        super().setup(ctx)
        self._optimizer = super().configure(ctx).optimizer

    def configure(self, ctx: StepContext) -> State:
        state = super().configure(ctx)
        ctx.register_optimizer(self._optimizer)
        return evolve(state, optimizer=self._optimizer)


@attrs.frozen(kw_only=True, eq=False)
class AveragingState(State):
    """With a second module."""

    averaged: AveragedModel


class AveragesAnotherModel(ReferenceTrainer):
    """Replaces the model that the optimizer was built for; the average of the first moves towards the second."""

    def configure(self, ctx: StepContext) -> State:
        replaced, state = super().configure(ctx), super().configure(ctx)
        members = attrs.asdict(state, recurse=False) | {"optimizer": replaced.optimizer}
        return AveragingState(**members, averaged=AveragedModel(replaced.model))

    def train_step(self, prepared_batch: Any, state: State, ctx: StepContext) -> StepResult:
        result = super().train_step(prepared_batch, state, ctx)
        state.averaged.update_parameters(state.model)  # type: ignore[attr-defined]
        return result


class WarmsUpForEver(Plain):
    """Raises the learning rate at every step, and never stops."""

    def clear(self, state: State) -> None:
        for group in state.optimizer.param_groups:
            group["lr"] *= 10
        super().clear(state)


# --- the end ----------------------------------------------------------------------------------------------------------


class RemembersTheLastLoss(ReferenceTrainer):
    """Needs a step to be torn down."""

    def train_step(self, prepared_batch: Any, state: State, ctx: StepContext) -> StepResult:
        result = super().train_step(prepared_batch, state, ctx)
        self._last_loss = result.metrics["loss"]
        return result

    def teardown(self, state: State) -> None:
        float(self._last_loss)
        super().teardown(state)


class ClosesWhatItNeverOpened(ReferenceTrainer):
    """Needs the last checkpoint to be torn down."""

    def save_checkpoint(self, state: State, output_dir: str, ctx: StepContext) -> Mapping[str, object]:
        self._written = output_dir
        return super().save_checkpoint(state, output_dir, ctx)

    def teardown(self, state: State) -> None:
        len(self._written)
        super().teardown(state)


# --- memory -----------------------------------------------------------------------------------------------------------


class CollectsLosses(Plain):
    """Keeps the loss of every step, for a curve."""

    def __init__(self) -> None:
        self._losses: list[Tensor] = []

    def loss(self, batch: Batch, state: State) -> Tensor:
        self._losses.append(loss := super().loss(batch, state))
        return loss


class AddsUpLosses(Plain):
    """Keeps the sum of all losses, and with it the graph of every step."""

    _total: Any = 0.0

    def backward(self, loss: Tensor) -> None:
        self._total = self._total + loss
        super().backward(loss)
