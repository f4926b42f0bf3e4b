"""A course of steps made by hand, with a host that notes what callbacks ask for."""

import logging
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from hostcore_hookspecs import Best, Checkpoint, Job, MetricPoint, RunState, StepContext


@attrs.define(slots=False)
class NotingHost:
    """Takes requests as the host does, and does nothing about them."""

    stops: list[str] = attrs.field(factory=list)
    best: list[Best] = attrs.field(factory=list)
    restores: list[tuple[int, str]] = attrs.field(factory=list)
    #: Since the test has last emptied it.
    recorded: dict[str, Any] = attrs.field(factory=dict)

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
        return flag

    def begin_update(self) -> None:
        """Callbacks have no part in it."""

    def keep_batches_whole(self, reason: str) -> None:
        """Callbacks have no part in it."""


@attrs.define
class Course:
    """Where a run stands, moved by the test as the host moves it."""

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
        made = [Checkpoint(step=one, epoch=0, path=f"/c/{one}", bytes=1, final=False) for one in steps]
        self.to_step(self.run_state.step, checkpoints=made)


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
