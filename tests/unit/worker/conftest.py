"""Runs in this process, of a trainer and callbacks that write down every call."""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from played import Played, play


class Outcome(Played):
    """A run that is over."""

    @property
    def losses(self) -> dict[int | None, float | None]:
        return self.metric("train/loss")


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
        complete = {"trainer": "recording_trainer:Trainer", **(job or {}), **keys}
        played = play(complete, tmp_path / "runs")
        told = [
            event for event in played.events if event.name != "progress"
        ]  # signs of life, of a machine that is slow
        return Outcome(played.result, told, played.path, list(recorder.CALLS))

    return start
