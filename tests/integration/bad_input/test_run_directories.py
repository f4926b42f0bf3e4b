"""Runs that exist, and places where no run can be made: nothing is ever overwritten, nothing half made stays."""

import sys
from pathlib import Path
from typing import Any

import pytest

TRAINER = """
from hostcore_hookspecs import StepResult

class Trainer:
    def setup(self): pass
    def configure(self): return {}
    def prepare_batch(self, raw_batch): return raw_batch
    def train_step(self, prepared_batch): return StepResult(metrics={"loss": 1.0})
    def state_dict(self, state): return state
    def load_state_dict(self, state, payload): state.update(payload)
"""
JOB = {"trainer": "mine:Trainer", "mock_batches": [1, 2], "run_id": "first", "terminal": False}

#: Starts a command without root's power to ignore permissions.
UNPRIVILEGED = (
    sys.executable,
    "-c",
    "import ctypes, os, sys\n"
    "for capability in (1, 2):\n"  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    "    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)\n"  # PR_CAPBSET_DROP
    # Whoever measures coverage would want to write, too.
    "environment = {name: value for name, value in os.environ.items() if not name.startswith('COVERAGE_')}\n"
    "os.execve(sys.argv[1], sys.argv[1:], environment)",
)
#: Starts a command that cannot write a byte into a file. On a full disk the same calls fail, with another number.
WITHOUT_ROOM = (
    sys.executable,
    "-c",
    "import os, resource, sys\n"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))\n"
    # Whoever measures coverage would want to write, too.
    "environment = {name: value for name, value in os.environ.items() if not name.startswith('COVERAGE_')}\n"
    "os.execve(sys.argv[1], sys.argv[1:], environment)",
)


@pytest.fixture
def ready(workplace: Any) -> Any:
    """A folder with a job that runs, and that has not run."""
    workplace.write(TRAINER, "mine.py")
    workplace.write(JOB)
    return workplace


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, workplace_at: Any) -> Any:
    """A folder with a job that has run. Tests leave it as it is, and see that hostcore does."""
    workplace = workplace_at(tmp_path_factory.mktemp("finished"))
    workplace.write(TRAINER, "mine.py")
    workplace.write(JOB)
    assert workplace.hostcore("run", "job.json").code == 0
    return workplace


@pytest.mark.parametrize(
    ("changed", "differ"),
    [
        ("hyperparams.learning_rate=3", "/hyperparams/learning_rate"),
        ("trainer=mine:", "/trainer"),
        ("seed=7", "/seed: 0 -> 7"),
        ('callbacks=["x:Y"]', "/callbacks/0"),
    ],
)
@pytest.mark.parametrize("command", ["run", "validate"])
def test_a_run_id_of_another_job_is_refused_and_nothing_of_it_is_touched(
    finished: Any, command: str, changed: str, differ: str
) -> None:
    before = finished.tree()
    error = finished.hostcore(command, "job.json", "--set", changed, "--json").error
    assert f"the run_id 'first' belongs to another job: {differ}" in error["message"]
    assert error["pointer"] == "/run_id"
    assert error["file"] == str(finished.runs / "first/config/run.json")
    assert "choose another run_id" in error["hint"]
    assert finished.tree() == before


def test_a_run_that_must_be_new_is_refused_where_one_exists(finished: Any) -> None:
    before = finished.tree()
    error = finished.hostcore("run", "job.json", "--set", "resume_from_checkpoint=false", "--json").error
    assert "the run 'first' exists already" in error["message"]
    assert finished.tree() == before


def test_a_run_that_must_exist_is_refused_where_there_is_none(ready: Any) -> None:
    told = ready.hostcore("run", "job.json", "--resume").told
    assert "there is no run 'first' to resume" in told
    assert "hostcore list" in told
    assert ready.tree() == {}


def test_a_finished_run_asked_for_more_on_a_missing_device_stays_as_it_was(finished: Any) -> None:
    if Path("/dev/nvidia7").exists():
        pytest.skip("this machine has an eighth GPU")
    before = finished.tree()
    error = finished.hostcore("run", "job.json", "--set", "max_steps=9", "--set", "device=cuda:7", "--json").error
    assert error["pointer"] == "/device"
    assert finished.tree() == before


def test_a_file_in_place_of_the_run_directory_is_left_alone(ready: Any) -> None:
    ready.runs.mkdir()
    (ready.runs / "first").write_text("mine")
    for command in ("run", "validate"):
        told = ready.hostcore(command, "job.json").told
        assert "'first' exists in the runs folder but is no run of hostcore's" in told
        assert "at: /run_id" in told
    assert (ready.runs / "first").read_text() == "mine"
    assert "there is no run 'first'" in ready.hostcore("status", "first").told


def test_a_folder_of_somebody_elses_in_place_of_the_run_directory_is_left_alone(ready: Any) -> None:
    (ready.runs / "first").mkdir(parents=True)
    (ready.runs / "first/thesis.tex").write_text("mine")
    before = ready.tree()
    assert "is no run of hostcore's" in ready.hostcore("run", "job.json").told
    assert ready.tree() == before


def test_a_file_in_place_of_the_runs_folder_is_told_before_anything_is_imported(ready: Any) -> None:
    ready.write("mine", "runs")
    ready.write("raise SystemExit('imported')", "mine.py")
    for command in ("run", "validate"):
        error = ready.hostcore(command, "job.json", "--json").error
        assert "the run directory cannot be written" in error["message"]
        assert "is not a folder" in error["message"]
        assert error["file"] == str(ready.runs)
        assert "HOSTCORE_RUNS_DIR" in error["hint"]
    assert ready.runs.read_text() == "mine"


def test_a_runs_folder_that_may_not_be_written_is_told_before_anything_is_imported(ready: Any) -> None:
    ready.write("raise SystemExit('imported')", "mine.py")
    ready.runs.mkdir(mode=0o555)
    for command in ("run", "validate"):
        error = ready.hostcore(command, "job.json", "--json", through=UNPRIVILEGED).error
        assert "the run directory cannot be written: Permission denied" in error["message"]
        assert f"{ready.runs} is not writable for this user" in error["hint"]
        assert "HOSTCORE_RUNS_DIR" in error["hint"]
    assert ready.tree() == {}


def test_a_run_that_may_not_be_read_is_refused(ready: Any) -> None:
    (ready.runs / "first").mkdir(parents=True)
    (ready.runs / "first").chmod(0)
    try:
        told = ready.hostcore("run", "job.json", through=UNPRIVILEGED).told
        listed = ready.hostcore("list", through=UNPRIVILEGED)
    finally:
        (ready.runs / "first").chmod(0o755)
    assert "Permission denied" in told
    assert listed.code == 0
    assert "Permission denied" in listed.err
    assert "Traceback" not in listed.err


def test_without_room_for_the_run_directory_nothing_of_it_stays(ready: Any) -> None:
    ready.runs.mkdir()
    error = ready.hostcore("run", "job.json", "--json", through=WITHOUT_ROOM).error
    assert "the run directory cannot be written: File too large" in error["message"]
    assert "make room" in error["hint"]
    assert ready.tree() == {}
