"""Plans of small jobs, and runs in every state that a run can be left in, without a worker."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from hostcore.checkpoints.commit import commit
from hostcore.events.writer import now_ms
from hostcore.runs.lease import Lease, ProcessIdentity
from hostcore.runs.record import RunRecord
from hostcore.runs.result import EXIT_CODES, RunResult
from hostcore.supervisor.opening import Opening, open_run
from hostcore.supervisor.plan import RunPlan, make_plan

sys.path.insert(0, str(Path(__file__).parent))  # for the modules that tests share

JOB = {"trainer": "somewhere:Trainer", "run_id": "a", "max_steps": 10, "terminal": False}


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunPlan]:
    """``plan(max_steps=20)``: the plan of a job whose runs lie in a folder of the test's."""
    monkeypatch.setenv("HOSTCORE_RUNS_DIR", str(tmp_path / "runs"))

    def make(job: Mapping[str, Any] | None = None, **keys: Any) -> RunPlan:
        return make_plan({**JOB, **(job or {}), **keys})

    return make


@attrs.frozen
class Past:
    """What earlier attempts have left."""

    plan: RunPlan

    def attempt(self, number: int = 1, **opening: Any) -> Opening:
        """An attempt that was begun by a process that is dead now."""
        opened = open_run(self.plan)
        assert isinstance(opened, Opening)
        assert opened.attempt == number
        record = RunRecord(job=self.plan.spec.to_json(), job_dir="/", parent=opened.parent or None)
        record.write(self.plan.directory.record)
        me = ProcessIdentity.current()
        self.lease(process=attrs.evolve(me, start_time=me.start_time - 1))
        return opened

    def lease(self, **changes: Any) -> None:
        """Change the lease of the newest attempt."""
        attrs.evolve(Lease.read(self.plan.directory.lease), **changes).write(self.plan.directory.lease)

    def ended(self, status: str) -> "Past":
        """A run whose first attempt has ended so."""
        self.attempt()
        self.result(status)
        return self

    def checkpoint(self, step: int) -> Path:
        def fill(folder: Path) -> None:
            (folder / "host.json").write_text("{}")

        commit(self.plan.checkpoints_dir, step=step, epoch=0, final=False, attempt=1, fill=fill)
        return self.plan.checkpoints_dir / f"step-{step:06d}"

    def result(self, status: str, *, attempt: int = 1) -> RunResult:
        result = RunResult(
            run_id="a",
            status=status,
            exit_code=EXIT_CODES[status],
            attempt=attempt,
            step=10,
            epoch=0,
            started_ms=now_ms(),
            ended_ms=now_ms(),
        )
        result.write(self.plan.directory.result)
        self.plan.directory.lease.unlink(missing_ok=True)
        return result

    def tree(self) -> dict[str, bytes | None]:
        """Everything in the run directory, with its content."""
        root = self.plan.directory.path
        return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


@pytest.fixture
def past(plan: Callable[..., RunPlan]) -> Callable[..., Past]:
    """``past(plan())``: the past of the run of a plan."""
    return Past


@pytest.fixture
def living() -> Iterator[ProcessIdentity]:
    """Another process, which runs until the test is over."""
    process = subprocess.Popen(["sleep", "1000"])
    start = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
    yield attrs.evolve(ProcessIdentity.current(), pid=process.pid, start_time=int(start))
    process.kill()
    process.wait()
