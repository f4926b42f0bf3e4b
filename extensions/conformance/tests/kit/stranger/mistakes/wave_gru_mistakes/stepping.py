"""Steps that do not do what they seem to."""

from typing import Any

import attrs
import torch
from torch import Tensor
from wave_gru.trainer import Batch, Classifier, State, WaveTrainer

from hostcore_hookspecs import StepContext, StepResult


class _KeepsGradients:
    """An optimizer whose zero_grad does nothing, as if the line were not there."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.optimizer, name)

    def zero_grad(self) -> None:
        """Forget to."""


class NoZeroGrad(WaveTrainer):
    """Never sets the gradients to zero."""

    def train_step(self, prepared_batch: Any, state: State) -> StepResult:
        return super().train_step(prepared_batch, attrs.evolve(state, optimizer=_KeepsGradients(state.optimizer)))


class OtherModel(WaveTrainer):
    """Gives the optimizer a model that is replaced afterwards."""

    def configure(self, ctx: StepContext) -> State:
        state = super().configure(ctx)
        return attrs.evolve(state, model=Classifier(ctx.hyperparams).to(ctx.device))


class LossesInList(WaveTrainer):
    """Keeps the losses of all steps, with their graphs, for a plot at the end."""

    def __init__(self) -> None:
        self.losses: list[Tensor] = []

    def loss_sum(self, batch: Batch, state: State) -> Tensor:
        loss = super().loss_sum(batch, state)
        self.losses.append(loss)
        return loss


class ReturnsDict(WaveTrainer):
    """Returns the metrics alone."""

    def train_step(self, prepared_batch: Any, state: State) -> Any:
        return super().train_step(prepared_batch, state).metrics


class Swallows(WaveTrainer):
    """Goes on whatever happens in a step."""

    def train_step(self, prepared_batch: Any, state: State) -> StepResult:
        try:
            return super().train_step(prepared_batch, state)
        except Exception as error:  # noqa: BLE001 - the mistake
            print(f"skipped a batch: {error}")
            return StepResult(metrics={"loss": 0.0})
