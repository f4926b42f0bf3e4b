"""Plans of small jobs, and runs in every state that a run can be left in, without a worker."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from hostcore.runs.lease import ProcessIdentity
from hostcore.supervisor.plan import RunPlan, make_plan

sys.path.insert(0, str(Path(__file__).parent))  # for the modules that tests share

from pasts import Past

JOB = {"trainer": "somewhere:Trainer", "run_id": "a", "max_steps": 10, "terminal": False}


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunPlan]:
    """``plan(max_steps=20)``: the plan of a job whose runs lie in a folder of the test's."""
    monkeypatch.setenv("HOSTCORE_RUNS_DIR", str(tmp_path / "runs"))

    def make(job: Mapping[str, Any] | None = None, **keys: Any) -> RunPlan:
        return make_plan({**JOB, **(job or {}), **keys})

    return make


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
