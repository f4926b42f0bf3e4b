"""Workers without a run: what becomes of them, of what they have started and of what they wrote."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import wait_until

from hostcore.errors import Errors
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


ALONE = """
class Trainer:
    def setup(self): ...
    def configure(self): ...
    def prepare_batch(self, raw_batch): ...
    def train_step(self, prepared_batch): ...
    def state_dict(self): ...
    def load_state_dict(self, payload): ...
"""
TOGETHER = f"from hostcore_hookspecs import Capabilities{ALONE}    CAPABILITIES = Capabilities(distributed=True)\n"


@pytest.fixture
def for_engine(plan: Callable[..., RunPlan], tmp_path: Path) -> Callable[[str], RunPlan]:
    """Of an epoch of eight batches, on two nodes of two GPUs, which torchrun is to start; with a trainer's source."""

    def make(source: str) -> RunPlan:
        (tmp_path / "engine_trainer.py").write_text(source)
        nodes = {"num_nodes": 2, "gpus_per_node": 2}
        keys = {"mock_batches": [1] * 8, "max_steps": 0, "epochs": 1, "resources": nodes, "launcher": "torchrun"}
        return plan(trainer="engine_trainer:Trainer", **keys)

    return make


def test_a_job_for_an_engine_is_checked_as_by_rank_0_of_all(for_engine: Callable[[str], RunPlan]) -> None:
    found = check_job(for_engine(TOGETHER))
    assert (found["world_size"], found["rows_per_step"], found["total_steps"]) == (4, 4, 2)
    assert len(found["devices"]) == 1


def test_a_trainer_of_one_rank_is_told_before_an_engine_starts_several(for_engine: Callable[[str], RunPlan]) -> None:
    with pytest.raises(Errors, match="does not train on several ranks, and the job has 4"):
        check_job(for_engine(ALONE))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter: between opening and reading
        return False
