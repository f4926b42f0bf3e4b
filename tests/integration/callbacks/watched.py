"""A trainer whose validation reports what its hyperparameters say, and whose test tells which weights it has."""

import copy
import json
import math
from typing import Any

import attrs
import torch

from hostcore_hookspecs import Best, Capabilities, StepResult


class Trainer:
    """Its weight is the number of steps that made it."""

    CAPABILITIES = Capabilities(distributed=True)

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        #: The loss of the first, second, … validation; None is NaN. The last one goes on for ever.
        losses: tuple[float | None, ...] = (1.0,)
        accuracies: tuple[float, ...] = ()
        #: The training loss of each step; without it 1/step.
        training: tuple[float, ...] = ()
        registers: bool = True

    def setup(self, ctx: Any) -> None:
        torch.set_num_threads(1)

    def configure(self, ctx: Any) -> dict[str, Any]:
        weight = torch.nn.Parameter(torch.zeros(()))
        optimizer = torch.optim.SGD([weight], lr=1.0)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        if ctx.hyperparams.registers:
            ctx.register_optimizer(optimizer, scheduler)
        return {"weight": weight, "optimizer": optimizer, "scheduler": scheduler}

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: Any) -> Any:
        return raw_batch

    def train_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        step, wishes = ctx.run_state.step + 1, ctx.hyperparams
        with torch.no_grad():
            state["weight"] += 1
        state["optimizer"].step()
        metrics = {"loss": wishes.training[step - 1] if wishes.training else 1 / step}
        state["scheduler"].step()
        return StepResult(metrics=metrics, weight=float(100 * step))

    def validate_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        wishes = ctx.hyperparams
        number = ctx.run_state.step // ctx.job.validate_every - 1
        loss = wishes.losses[min(number, len(wishes.losses) - 1)]
        metrics = {"loss": math.nan if loss is None else loss}
        if wishes.accuracies:
            metrics["accuracy"] = wishes.accuracies[min(number, len(wishes.accuracies) - 1)]
        return StepResult(metrics=metrics)

    def test_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        return StepResult(metrics={"weight": state["weight"].detach()})

    def state_dict(self, state: Any) -> dict[str, Any]:
        return {"weight": state["weight"].detach(), "scheduler": state["scheduler"].state_dict()}

    def load_state_dict(self, state: Any, payload: Any, ctx: Any) -> None:
        with torch.no_grad():
            state["weight"].copy_(payload["weight"])
        state["scheduler"].load_state_dict(payload["scheduler"])
        state["optimizer"].param_groups[0]["lr"] = state["scheduler"].get_last_lr()[0]


class Back:
    """Has the trainer go back, once, while there are steps to come."""

    CHANGES_TRAINING = True

    @attrs.frozen(kw_only=True)
    class Settings:
        at: int
        to: int

    def __init__(self, *, settings: Settings) -> None:
        self._settings = settings

    def on_batch_end(self, run_state: Any, ctx: Any) -> None:
        if run_state.step == self._settings.to:
            ctx.request_best(Best(metric="mine", value=1.0, step=run_state.step))
        if run_state.step == self._settings.at:
            ctx.request_restore(self._settings.to, "to try it")


class Reads:
    """Warns of the states of all callbacks that keep one, before the first step and after each validation."""

    def on_train_begin(self, run_state: Any, ctx: Any) -> None:
        self._warn(run_state, ctx)

    def on_validation_end(self, run_state: Any, ctx: Any) -> None:
        self._warn(run_state, ctx)

    def _warn(self, run_state: Any, ctx: Any) -> None:
        assert ctx.run_state.callback_states == run_state.callback_states
        ctx.warn(json.dumps(copy.deepcopy(run_state).callback_states))
