"""A run as rows of values, for trackers that keep a history: what an event adds to it, and what of that is there."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import attrs

from hostcore_hookspecs import Event
from hostcore_hookspecs.events import (
    ENDS,
    CheckpointSaved,
    RunCancelled,
    RunFailed,
    RunPreempted,
    RunSubmitted,
    RunSucceeded,
    TrainerRestored,
)
from hostcore_trackers.scalars import scalars_of

#: What an attempt ends with, as ``hostcore run`` does.
EXIT_CODES: Final[Mapping[str, int]] = MappingProxyType(
    {"run_succeeded": 0, "run_failed": 1, "run_preempted": 75, "run_cancelled": 130}
)
_REASON_CHARACTERS: Final = 2000

Row = dict[str, float | str]


@attrs.define(eq=False, kw_only=True)
class TrackerHistory:
    """Position in the history of a tracker's run."""

    #: The last event that it has a row of.
    last_seq: int = 0
    #: By metric: the last step that it has a value of.
    last_steps: dict[str, int] = attrs.field(factory=dict)

    def missing(self, event: Event) -> Row:
        """Return the row that an event adds: its metrics, without those of steps that are there, or facts of the run.

        A resumed run takes steps again that came after its checkpoint. Trackers keep one value of a step: the first.
        """
        if event.seq <= self.last_seq:
            return {}
        step = event.step or 0
        # The step of a return has values already: those of the state that is given up.
        returns = isinstance(event.payload, TrainerRestored)
        values = scalars_of(event).items()
        row: Row = {name: value for name, value in values if returns or step > self.last_steps.get(name, -1)}
        if row and event.epoch is not None:
            row["host/epoch"] = event.epoch + 1  # people count from 1
        return row or _facts(event)

    def add(self, seq: int, *, step: int, names: Iterable[str]) -> None:
        """Note that a row is there."""
        self.last_seq = max(self.last_seq, seq)
        for name in names:
            self.last_steps[name] = max(step, self.last_steps.get(name, -1))


def reason_of(event: Event) -> str:
    """Return the reason for an attempt's end; empty without one, or if the event is no end."""
    match event.payload:
        case RunFailed(error=error):
            return f"{error.type}: {error.message}"
        case RunSucceeded(reason=reason) | RunCancelled(reason=reason) | RunPreempted(reason=reason):
            return reason or ""
    return ""


def _facts(event: Event) -> Row:
    match event.payload:
        case RunSubmitted():
            return {"host/status": "running", "host/attempt": event.attempt}
        case CheckpointSaved(path=path, best=best):
            return {"host/checkpoint": path, **{f"host/best/{name}": value for name, value in best.items()}}
    if event.name in ENDS:
        return {"host/status": event.name.removeprefix("run_"), "host/reason": reason_of(event)[:_REASON_CHARACTERS]}
    return {}
