"""Steps made by hand, or of a small model with a real optimizer, and a host that notes what callbacks ask for."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import pytest
import torch
from wrapped_step import wrapped_step

from hostcore_hookspecs import Best, Checkpoint, Job, MetricPoint, RunState, StepContext, StepResult


@attrs.define(slots=False)
class NotingHost:
    """Takes requests as the host does, and does nothing about them."""

    stops: list[str] = attrs.field(factory=list)
    best: list[Best] = attrs.field(factory=list)
    restores: list[tuple[int, str]] = attrs.field(factory=list)
    #: Since the test has last emptied it.
    recorded: dict[str, Any] = attrs.field(factory=dict)
    #: True where a test has other ranks find something; else they agree with this one.
    others: bool = False
    votes: list[bool] = attrs.field(factory=list)

    def record(self, name: str, value: Any) -> None:
        self.recorded[name] = value

    def is_stopping(self) -> bool:
        return bool(self.stops)

    def request_stop(self, reason: str) -> None:
        self.stops.append(reason)

    def request_best(self, best: Best) -> None:
        self.best.append(best)

    def request_restore(self, step: int, reason: str) -> None:
        self.restores.append((step, reason))

    def warn(self, message: str) -> None:
        logging.getLogger("warnings").warning(message)

    def any_rank(self, flag: bool) -> bool:
        self.votes.append(flag)
        return flag or self.others

    def begin_update(self) -> None:
        """Callbacks have no part in it."""

    def keep_batches_whole(self, reason: str) -> None:
        """Callbacks have no part in it."""


def checkpoints(*steps: int) -> list[Checkpoint]:
    return [Checkpoint(step=one, epoch=0, path=f"/c/{one}", bytes=1, final=False) for one in steps]


@attrs.define
class Course:
    """A run at some step, moved by the test as the host moves it."""

    host: NotingHost
    ctx: StepContext

    @property
    def run_state(self) -> RunState:
        return self.ctx.run_state

    def to_step(self, step: int, **fields: Any) -> RunState:
        self.ctx.run_state = attrs.evolve(self.ctx.run_state, step=step, **fields)
        return self.ctx.run_state

    def record(self, step: int, **metrics: float) -> None:
        """Metrics as the host records them at a step; two underscores stand for a slash."""
        named = {name.replace("__", "/"): value for name, value in metrics.items()}
        state = self.run_state
        history = {name: list(points) for name, points in state.history.items()}
        for name, value in named.items():
            history.setdefault(name, []).append(MetricPoint(step, value))
        self.to_step(step, history=history, metrics={**state.metrics, **named})

    def written(self, *steps: int) -> None:
        """The checkpoints that exist."""
        self.to_step(self.run_state.step, checkpoints=checkpoints(*steps))


@pytest.fixture
def course() -> Callable[..., Course]:
    """``course(total_steps=100, metric_every=5)``: a run at step 0; what is no field of the run state is the job's."""

    def make(*, total_steps: int = 1000, run_dir: str = "", rank: int = 0, **job: Any) -> Course:
        host = NotingHost()
        job = {"validate_every": 10, **job}
        state = RunState(total_steps=total_steps)
        ctx = StepContext(job=Job(**job), run_state=state, run_dir=run_dir, rank=rank, host=host)
        return Course(host, ctx)

    return make


@attrs.define
class Training:
    """A model that learns to say 0."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    host: NotingHost
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
        self.move(checkpoints=checkpoints(*steps))

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
        made, host = optimizer(list(model.parameters())), NotingHost()
        ctx = StepContext(
            job=Job(**{"metric_every": 1, **job}), run_state=RunState(total_steps=100), host=host, **(context or {})
        )
        ctx.register_optimizer(made)
        return Training(model, made, host, ctx)

    return make
