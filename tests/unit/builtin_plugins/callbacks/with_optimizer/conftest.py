"""Real steps of a small model with a real optimizer, and a callback around them."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import pytest
import torch
from wrapped_step import wrapped_step

from hostcore_hookspecs import Best, Checkpoint, Job, RunState, StepContext, StepResult


@attrs.define
class Vote:
    """Stands for the other ranks: they agree with this one, unless a test has them find something."""

    restores: list[tuple[int, str]] = attrs.field(factory=list)
    others: bool = False
    votes: list[bool] = attrs.field(factory=list)

    def is_stopping(self) -> bool:
        return False

    def request_stop(self, reason: str) -> None:
        raise AssertionError(f"nobody asks to stop: {reason}")

    def request_best(self, best: Best) -> None:
        raise AssertionError(f"nobody asks for {best}")

    def request_restore(self, step: int, reason: str) -> None:
        self.restores.append((step, reason))

    def warn(self, message: str) -> None:
        logging.getLogger("warnings").warning(message)

    def any_rank(self, flag: bool) -> bool:
        self.votes.append(flag)
        return flag or self.others

    def begin_update(self) -> None:
        raise AssertionError("callbacks have no part in it")

    def keep_batches_whole(self, reason: str) -> None:
        raise AssertionError("callbacks have no part in it")


@attrs.define
class Training:
    """A model that learns to say 0."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    host: Vote
    ctx: StepContext

    def step(self, callback: Any, factor: float = 1.0, **metrics: Any) -> StepResult:
        """One step, with the callback around it.

        :param factor: The loss is multiplied by it, and with it every gradient.
        :param metrics: Reported in place of the loss.
        """
        result = wrapped_step(callback, self.ctx, lambda: self._train(factor, metrics))
        self.move(step=self.ctx.run_state.step + 1)
        return result

    def _train(self, factor: float, metrics: Mapping[str, Any]) -> StepResult:
        loss = self.model(torch.ones(4, 3, dtype=next(self.model.parameters()).dtype)).square().mean() * factor
        self.optimizer.zero_grad()
        if self.ctx.scaler is None:
            loss.backward()
            self.optimizer.step()
        else:
            self.ctx.scaler.scale(loss).backward()
            self.ctx.scaler.step(self.optimizer)
            self.ctx.scaler.update()
        return StepResult(metrics=metrics or {"loss": loss})

    def move(self, **fields: Any) -> None:
        self.ctx.run_state = attrs.evolve(self.ctx.run_state, **fields)

    def written(self, *steps: int) -> None:
        """The checkpoints that exist."""
        self.move(checkpoints=[Checkpoint(step=one, epoch=0, path=f"/{one}", bytes=1, final=False) for one in steps])

    def state(self) -> list[torch.Tensor]:
        """Copies of all parameters, and of all that the optimizer keeps about them."""
        kept = [
            value for of_one in self.optimizer.state.values() for value in of_one.values() if torch.is_tensor(value)
        ]
        return [one.detach().clone() for one in (*self.model.parameters(), *kept)]


Make = Callable[[Sequence[torch.nn.Parameter]], torch.optim.Optimizer]


@pytest.fixture
def training() -> Callable[..., Training]:
    """``training(torch.optim.AdamW, scaler=…, checkpoint_every=5)``: at step 0; other keys are the job's."""

    def make(
        optimizer: Make = lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        *,
        dtype: torch.dtype = torch.float32,
        context: Mapping[str, Any] | None = None,
        **job: Any,
    ) -> Training:
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2, dtype=dtype)
        made, host = optimizer(list(model.parameters())), Vote()
        ctx = StepContext(
            job=Job(**{"metric_every": 1, **job}), run_state=RunState(total_steps=100), host=host, **(context or {})
        )
        ctx.register_optimizer(made)
        return Training(model, made, host, ctx)

    return make
