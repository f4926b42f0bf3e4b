"""Runs in this process, as tests look at what they did."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

import hostcore
from hostcore.runs.result import RunResult
from hostcore_hookspecs import Event


@attrs.frozen
class Played:
    """A run that is over."""

    result: RunResult
    events: list[Event]
    #: The run directory.
    path: Path
    #: The calls that a trainer which records them has had.
    calls: Sequence[str] = ()

    def of(self, name: str) -> list[Event]:
        """The events of a name."""
        return [event for event in self.events if event.name == name]

    def recorded(self, name: str = "metrics") -> dict[int | None, dict[str, Any]]:
        """The metrics of the events of a name, by step."""
        return {event.step: dict(event.payload.metrics) for event in self.of(name)}

    def metric(self, name: str) -> dict[int | None, float | None]:
        """One of the metrics of the steps."""
        return {step: metrics[name] for step, metrics in self.recorded().items()}

    @property
    def warnings(self) -> list[str]:
        """The messages of the warnings."""
        return [event.payload.message for event in self.of("warning")]


def play(job: Mapping[str, Any], runs: Path, **how: Any) -> Played:
    """Run a job to its end; keys that are None are none of it."""
    events: list[Event] = []
    given = {"run_id": "a", "terminal": False, "device": "cpu", **job}
    result = hostcore.run(
        {key: value for key, value in given.items() if value is not None}, on_event=events.append, **how
    )
    return Played(result, events, runs / result.run_id)
