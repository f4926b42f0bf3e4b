"""A supervisor that was launched and has not begun: whether it will still come is asked of the launcher."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from hostcore.events.writer import now_ms
from hostcore.runs.attempts import claim_attempt
from hostcore.runs.directory import RunDirectory
from hostcore.runs.launch import Launch, awaited_launch, launched_is_gone
from hostcore.runs.lease import ProcessIdentity
from hostcore.runs.record import RunRecord
from hostcore_builtin_plugins.local import LocalLauncher
from hostcore_hookspecs import Job, LaunchContext, LaunchHandle

HOUR_MS = 3_600_000


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    """A run that was recorded, and that nobody has begun."""
    made = RunDirectory(tmp_path / "runs" / "a")
    made.make()
    RunRecord(job={"trainer": "somewhere:Trainer", "run_id": "a", "max_steps": 1}, job_dir="/").write(made.record)
    return made


@pytest.fixture
def launched(directory: RunDirectory) -> Iterator[LaunchHandle]:
    """A process that a launcher has started for the run, and that takes its time."""
    context = LaunchContext(
        job=Job(),
        job_path=str(directory.record),
        run_dir=str(directory.path),
        command=["sleep", "1000"],
        env={},
        log=lambda _: None,
    )
    handle = LocalLauncher().launch(context)
    yield handle
    _end(handle)


def _end(handle: LaunchHandle) -> None:
    try:
        os.kill(handle.details["pid"], signal.SIGKILL)
        os.waitpid(handle.details["pid"], 0)
    except (ProcessLookupError, ChildProcessError):
        return


@pytest.fixture
def write(directory: RunDirectory) -> Callable[..., Launch]:
    """``write(handle)``: submit the first attempt of the run."""

    def make(handle: LaunchHandle | None, *, attempt: int = 1, age_ms: int = 0) -> Launch:
        # By a clock that is two hours ahead: its own time says nothing here.
        launch = Launch(attempt=attempt, submitted_ms=now_ms() + 2 * HOUR_MS, handle=handle)
        launch.write(directory.launch)
        written = directory.launch.stat().st_mtime - age_ms / 1000
        os.utime(directory.launch, (written, written))
        return launch

    return make


def test_a_supervisor_is_awaited_while_it_lives_and_until_it_has_begun(
    directory: RunDirectory, launched: LaunchHandle, write: Callable[..., Launch]
) -> None:
    assert awaited_launch(directory) is None, "nobody was launched"
    assert not launched_is_gone(directory)
    launch = write(launched, age_ms=HOUR_MS)
    assert awaited_launch(directory) == launch
    assert not launched_is_gone(directory)
    claim_attempt(directory.attempts, 1, process=ProcessIdentity.current(), started_ms=0)
    assert awaited_launch(directory) is None
    again = write(launched, attempt=2)
    assert awaited_launch(directory) == again
    _end(launched)
    assert launched_is_gone(directory)
    claim_attempt(directory.attempts, 2, process=ProcessIdentity.current(), started_ms=0)
    assert not launched_is_gone(directory), "it has begun, dead or alive"


@pytest.mark.parametrize(("age_ms", "gone"), [(0, False), (HOUR_MS, True)])
@pytest.mark.parametrize("by", ["somebody who was killed while submitting", "another machine"])
def test_a_supervisor_that_nobody_can_ask_about_is_waited_for_a_minute(
    directory: RunDirectory, launched: LaunchHandle, write: Callable[..., Launch], age_ms: int, gone: bool, by: str
) -> None:
    elsewhere = attrs.evolve(launched, details={**launched.details, "host": "another"})
    write(elsewhere if by == "another machine" else None, age_ms=age_ms)
    assert launched_is_gone(directory) is gone
