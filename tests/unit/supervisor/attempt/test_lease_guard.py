"""Holding a run: the clock by which a supervisor knows that it has not looked for long, and what it finds then."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from hostcore.runs.attempts import claim_attempt
from hostcore.runs.directory import RunDirectory
from hostcore.runs.lease import ProcessIdentity
from hostcore.supervisor.attempt import lease_guard
from hostcore.supervisor.attempt.lease_guard import LeaseGuard, RunDirectoryGone


@pytest.mark.parametrize(
    ("clocks", "asked"),
    [
        ({"CLOCK_MONOTONIC": 1, "CLOCK_BOOTTIME": 7}, 7),  # Linux: the other one stands still in a suspend
        ({"CLOCK_MONOTONIC": 6}, 6),  # macOS: this one does not
    ],
    ids=["linux", "macos"],
)
def test_the_time_in_which_the_machine_is_suspended_counts(
    monkeypatch: pytest.MonkeyPatch, clocks: dict[str, int], asked: int
) -> None:
    monkeypatch.setattr(lease_guard, "time", SimpleNamespace(clock_gettime=float, **clocks))
    assert lease_guard.uptime() == asked


def test_a_run_directory_that_was_removed_is_called_removed(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "runs" / "a")
    directory.make()
    claim_attempt(directory.attempts, 1, process=ProcessIdentity.current(), started_ms=0)
    held = LeaseGuard(directory, 1)
    held.require_held()
    shutil.rmtree(directory.path)
    with pytest.raises(RunDirectoryGone, match="the run directory was removed while the run was going on") as caught:
        held.require_held()
    assert caught.value.file == str(directory.path)
    assert not directory.path.exists()
