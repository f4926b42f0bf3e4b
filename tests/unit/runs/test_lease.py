"""Who runs a run, told from real processes."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from hostcore.events.writer import now_ms
from hostcore.runs.attempts import claim_attempt, is_held, proven_held
from hostcore.runs.directory import RunDirectory
from hostcore.runs.lease import Lease, ProcessIdentity


@attrs.define
class Clock:
    """A clock that the test moves."""

    seconds: float = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def held(run_folder: Callable) -> Callable[..., RunDirectory]:
    """``held(identity, age_seconds=5)``: a run, or its next renewal, with the lease of a process."""
    run = run_folder()
    run.attempt(1)

    def renew(process: ProcessIdentity, *, age_seconds: float = 0) -> RunDirectory:
        lease(process, age_seconds=age_seconds).write(run.directory.lease)
        return run.directory

    return renew


def lease(process: ProcessIdentity, *, age_seconds: float = 0) -> Lease:
    renewed = now_ms() - round(age_seconds * 1000)
    return Lease(process=process, attempt=1, step=7, last_progress_ms=renewed, renewed_ms=renewed)


class TestAHeldRun:
    """By a process of this machine and PID namespace: the system knows."""

    def test_is_that_of_a_process_that_runs_or_is_stopped_however_old_its_lease_is(
        self, held: Callable, holder
    ) -> None:
        directory = held(holder.identity, age_seconds=10_000)
        os.utime(directory.lease, (0, 0))
        assert proven_held(directory) is True
        os.kill(holder.process.pid, signal.SIGSTOP)
        assert proven_held(directory) is True

    def test_is_none_of_a_recycled_process_number_a_zombie_or_a_killed_process(self, held: Callable, holder) -> None:
        earlier = attrs.evolve(holder.identity, start_time=holder.identity.start_time - 1)
        assert proven_held(held(earlier)) is False
        holder.process.kill()
        os.waitid(os.P_PID, holder.process.pid, os.WEXITED | os.WNOWAIT)  # dead, but not yet reaped
        assert proven_held(held(holder.identity)) is False
        holder.process.wait()
        assert proven_held(held(holder.identity)) is False

    @pytest.mark.parametrize("content", ["", "{", '{"process": {"pid": 1}}', "[]"])
    def test_with_a_damaged_lease_is_that_of_its_claim(self, run_folder: Callable, holder, content: str) -> None:
        run = run_folder()
        claim_attempt(run.directory.attempts, 1, process=holder.identity, started_ms=0)
        run.directory.lease.write_text(content)
        assert proven_held(run.directory) is True
        holder.end()
        assert proven_held(run.directory) is False

    def test_without_a_lease_is_none(self, run_folder: Callable) -> None:
        run = run_folder()
        run.attempt(1)
        assert proven_held(run.directory) is False


ELSEWHERE = [
    {"host": "elsewhere.example", "boot_id": "another"},
    {"boot_id": "another"},  # a machine of the same name, or this one before it was started again
    {"pid_namespace": "pid:[1]"},  # a container with the name of its machine
    {"pid_namespace": ""},  # not known, or an earlier hostcore has written it
]


@pytest.mark.parametrize("place", ELSEWHERE, ids="-".join)
class TestARunThatIsHeldElsewhere:
    """Process numbers say nothing, nor does a clock: whether the lease changes does."""

    def test_is_held_once_its_lease_was_seen_to_change(self, held: Callable, place: dict[str, str], clock) -> None:
        directory = held(attrs.evolve(ProcessIdentity.current(), **place), age_seconds=3600)
        assert proven_held(directory, clock=clock) is None
        clock.seconds += 29
        assert proven_held(directory, clock=clock) is None
        held(attrs.evolve(ProcessIdentity.current(), **place), age_seconds=3590)
        assert proven_held(directory, clock=clock) is True
        clock.seconds += 29
        assert proven_held(directory, clock=clock) is True

    def test_is_lost_once_its_lease_was_not_seen_to_change_for_30_seconds(
        self, held: Callable, place: dict[str, str], clock
    ) -> None:
        """By the clock of its holder, which is ahead, it is renewed an hour from now."""
        directory = held(attrs.evolve(ProcessIdentity.current(), **place), age_seconds=-3600)
        assert proven_held(directory, clock=clock) is None
        clock.seconds += 30
        assert proven_held(directory, clock=clock) is False

    def test_shows_as_running_by_the_age_of_its_lease_where_its_files_are(
        self, held: Callable, place: dict[str, str]
    ) -> None:
        directory = held(attrs.evolve(ProcessIdentity.current(), **place), age_seconds=3600)
        assert is_held(directory)
        written = directory.lease.stat().st_mtime - 31
        os.utime(directory.lease, (written, written))
        assert not is_held(directory)
        assert {path.name for path in directory.path.iterdir() if path.is_file()} == {"lease.json"}, "nothing is left"


def test_a_process_with_brackets_and_spaces_in_its_name_is_known_like_any_other(tmp_path: Path) -> None:
    assert ProcessIdentity.current() == ProcessIdentity.current()
    assert ProcessIdentity.current().runs
    program = tmp_path / "a) R (b"
    shutil.copy(shutil.which("sleep"), program)
    process = subprocess.Popen([program, "100"])
    try:
        started = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
        assert attrs.evolve(ProcessIdentity.current(), pid=process.pid, start_time=started).runs
    finally:
        process.kill()
        process.wait()
