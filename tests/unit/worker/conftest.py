"""Runs in this process, of a trainer and callbacks that write down every call."""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest

import hostcore
from hostcore.runs.result import RunResult
from hostcore_hookspecs import Event


@attrs.frozen
class Outcome:
    """A run that is over."""

    result: RunResult
    events: list[Event]
    calls: list[str]
    path: Path

    def of(self, name: str) -> list[Event]:
        return [event for event in self.events if event.name == name]

    @property
    def losses(self) -> dict[int | None, float | None]:
        return {event.step: event.payload.metrics["train/loss"] for event in self.of("metrics")}


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module ``recording_trainer``, as jobs of this process import it."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import recording_trainer

    recording_trainer.CALLS.clear()
    yield recording_trainer
    del sys.modules["recording_trainer"]


@pytest.fixture
def run(recorder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """``run(max_steps=3, …)``: run a job of :class:`Trainer` to its end, in this process."""
    monkeypatch.setenv("HOSTCORE_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)

    def start(job: Mapping[str, Any] | None = None, **keys: Any) -> Outcome:
        recorder.CALLS.clear()
        events: list[Event] = []
        complete = {"trainer": "recording_trainer:Trainer", "run_id": "a", "terminal": False, "device": "cpu"}
        result = hostcore.run({**complete, **(job or {}), **keys}, on_event=events.append)
        told = [event for event in events if event.name != "progress"]  # signs of life, of a machine that is slow
        return Outcome(result, told, list(recorder.CALLS), tmp_path / "runs" / result.run_id)

    return start
