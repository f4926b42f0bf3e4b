"""Processes whose lives the tests decide about, and run directories to look at."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from hostcore.events.writer import now_ms
from hostcore.runs.attempts import claim_attempt
from hostcore.runs.directory import RunDirectory
from hostcore.runs.lease import Lease, ProcessIdentity
from hostcore.runs.record import RunRecord
from hostcore.runs.result import EXIT_CODES, RunResult


@attrs.frozen
class Holder:
    """A real process that could hold a lease."""

    process: "subprocess.Popen[bytes]"
    identity: ProcessIdentity

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def holder() -> Iterator[Holder]:
    """A process that runs until the test ends it."""
    process = subprocess.Popen(["sleep", "1000"])
    started = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
    holder = Holder(process, attrs.evolve(ProcessIdentity.current(), pid=process.pid, start_time=started))
    yield holder
    holder.end()


@attrs.frozen
class RunFolder:
    """A run directory in any state that a run can be left in."""

    directory: RunDirectory

    def attempt(self, number: int) -> None:
        claim_attempt(self.directory.attempts, number, process=ProcessIdentity.current(), started_ms=0)

    def lease(self, process: ProcessIdentity, *, attempt: int = 1, step: int = 0) -> None:
        lease = Lease(process=process, attempt=attempt, step=step, last_progress_ms=0, renewed_ms=now_ms())
        lease.write(self.directory.lease)

    def result(self, status: str, *, attempt: int = 1, step: int = 10, ended_ms: int = 2000) -> None:
        RunResult(
            run_id=self.directory.run_id,
            status=status,
            exit_code=EXIT_CODES[status],
            attempt=attempt,
            step=step,
            epoch=0,
            started_ms=1000,
            ended_ms=ended_ms,
        ).write(self.directory.result)


@pytest.fixture
def run_folder(tmp_path: Path) -> Callable[..., RunFolder]:
    """``run_folder("a", submitted_ms=5)``: a run that was submitted."""

    def make(run_id: str = "a", *, submitted_ms: int = 1000, max_steps: int = 20) -> RunFolder:
        directory = RunDirectory(tmp_path / "runs" / run_id)
        directory.make()
        job = {"trainer": "mine", "max_steps": max_steps}
        RunRecord(job=job, job_dir=str(tmp_path), submitted_ms=submitted_ms).write(directory.record)
        return RunFolder(directory)

    return make
