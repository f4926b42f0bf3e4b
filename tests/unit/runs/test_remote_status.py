"""Runs that go on where their directory is not seen: what is told of them, by whom, and for how long."""

import os
from pathlib import Path

import attrs
import orjson
import pytest

from hostcore.runs import launch
from hostcore.runs.directory import RunDirectory
from hostcore.runs.launch import Launch
from hostcore.runs.record import RunRecord
from hostcore.runs.result import RunResult
from hostcore.runs.summary import summarize
from hostcore_hookspecs import LaunchHandle, LaunchStatus
from hostcore_hookspecs.errors import TransientError

LAUNCH = Launch(
    attempt=1, submitted_ms=1, launch_id="a.1", sees_run_dir=False, handle=LaunchHandle(launcher="far", id="7")
)
RESULT = RunResult(run_id="a", status="failed", exit_code=1, attempt=1, step=4, epoch=0, started_ms=5, ended_ms=9)


class Engine:
    """Stands for a launcher: its own tests ask real ones."""

    def __init__(self) -> None:
        self.says = LaunchStatus(status="running")
        self.asked = 0

    def poll(self, handle: LaunchHandle) -> LaunchStatus:
        self.asked += 1
        if self.says.status == "silent":
            raise TransientError("no answer")
        return self.says


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine()
    monkeypatch.setattr("hostcore.plugins.launching.launcher_of", lambda *_, **__: made)
    monkeypatch.setattr(launch, "_polled", {})
    monkeypatch.setattr(launch, "_FRESH_SECONDS", 0.0)
    return made


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    made = RunDirectory(tmp_path / "runs" / "a")
    made.make()
    job = {"trainer": "some:Trainer", "run_id": "a", "max_steps": 10}
    RunRecord(job=job, job_dir=str(tmp_path), submitted_ms=1).write(made.record)
    LAUNCH.write(made.launch)
    return made


def test_its_launcher_says_how_it_goes(directory: RunDirectory, engine: Engine) -> None:
    for status in ("submitted", "running", "lost"):
        engine.says = LaunchStatus(status=status)
        assert summarize(directory).status == status


def test_nobody_is_asked_what_somebody_knows_of_this_launch(directory: RunDirectory, engine: Engine) -> None:
    assert summarize(directory, told=LaunchStatus(status="preempted")).status == "preempted"
    (directory.attempts / "1.json").write_text("{}")
    RESULT.write(directory.result)
    found = summarize(directory)
    assert (found.status, found.step, found.ended_ms, engine.asked) == ("failed", 4, 9, 0)
    attrs.evolve(LAUNCH, attempt=2, launch_id="a.2").write(directory.launch)
    assert summarize(directory).status == "running"


def test_an_end_is_remembered_when_the_engine_has_forgotten_it(directory: RunDirectory, engine: Engine) -> None:
    engine.says = LaunchStatus(status="succeeded")
    assert summarize(directory).status == "succeeded"
    engine.says = LaunchStatus(status="lost")
    assert summarize(directory).status == "succeeded"
    attrs.evolve(LAUNCH, launch_id="a.2").write(directory.launch)
    assert summarize(directory).status == "lost", "that is another launch"


def test_a_launcher_that_cannot_tell_changes_nothing(directory: RunDirectory, engine: Engine) -> None:
    engine.says = LaunchStatus(status="silent")
    assert summarize(directory).status == "submitted"
    (directory.attempts / "1.json").write_text("{}")
    assert summarize(directory).status == "running"


def test_an_engine_is_not_asked_again_and_again(
    directory: RunDirectory, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "_FRESH_SECONDS", 1000.0)
    for _ in range(5):
        summarize(directory)
    assert engine.asked == 1


def test_one_that_was_never_launched_is_lost_after_a_while(directory: RunDirectory, engine: Engine) -> None:
    attrs.evolve(LAUNCH, handle=None).write(directory.launch)
    assert summarize(directory).status == "submitted"
    os.utime(directory.launch, (0, 0))
    assert summarize(directory).status == "lost"
    assert engine.asked == 0


def test_its_events_say_how_far_it_is(directory: RunDirectory, engine: Engine) -> None:
    events = [{"seq": seq, "time_ms": 100 + seq, "step": seq if seq < 8 else None} for seq in range(1, 9)]
    directory.events.write_bytes(b"".join(orjson.dumps(event) + b"\n" for event in events) + b'{"seq":9')
    found = summarize(directory)
    assert (found.step, found.seen_ms) == (7, 108)
