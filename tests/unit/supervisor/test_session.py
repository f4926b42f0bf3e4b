"""Workers without a run: what becomes of them, of what they have started and of what they wrote."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import wait_until

from hostcore.supervisor.check import CheckFailed, check_job
from hostcore.supervisor.plan import RunPlan, make_plan

DIES = """
import os, subprocess, sys
if os.environ.get("RANK", "1") == "1":
    child = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
    print("started", child.pid, flush=True)
    os._exit(3)
import threading
threading.Event().wait()
"""


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunPlan]:
    """``plan(devices=[…])``: of a job whose trainer ends its process when it is imported, on rank 1 of several."""
    (tmp_path / "dies.py").write_text(DIES)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))

    def make(**keys: object) -> RunPlan:
        job = {"trainer": "dies:Trainer", "mock_batches": [1], "max_steps": 1, **keys}
        (tmp_path / "job.json").write_text(json.dumps(job))
        return make_plan(tmp_path / "job.json", runs=tmp_path / "runs")

    return make


@pytest.mark.parametrize(
    ("job", "name"), [({"device": "cpu"}, "the worker"), ({"devices": ["cpu", "cpu"]}, "the worker of rank 1")]
)
def test_a_worker_that_dies_is_named_with_its_last_words_and_all_of_it_is_gone(
    plan: Callable[..., RunPlan], tmp_path: Path, job: dict[str, object], name: str
) -> None:
    with pytest.raises(CheckFailed, match=f"^{name} exited with code 3 while it checked the job$") as raised:
        check_job(plan(**job))
    said, _, child = str(raised.value.hint).splitlines()[-1].partition(" ")
    assert said == "started"
    wait_until(lambda: not _runs(int(child)), "what it started to end")
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (tmp_path / "runs").exists()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter: between opening and reading
        return False
