"""``config/run.json`` read back: the job that a run was made for."""

from pathlib import Path

import pytest

from hostcore.errors import Errors
from hostcore.job.load import load_job
from hostcore.runs.record import RunRecord

JOB = {"trainer": "somewhere:Trainer", "run_id": "a", "max_steps": 1, "weights": "w", "devices": ["cpu"]}


@pytest.fixture
def recorded(tmp_path: Path) -> RunRecord:
    RunRecord(job=load_job(JOB, job_dir=tmp_path / "jobs").to_json(), job_dir=str(tmp_path / "jobs")).write(
        tmp_path / "run.json"
    )
    return RunRecord.read(tmp_path / "run.json")


def test_a_record_gives_the_job_back_with_its_folder(recorded: RunRecord, tmp_path: Path) -> None:
    spec = recorded.spec()
    assert spec == load_job(JOB, job_dir=tmp_path / "jobs")
    assert spec.job_dir == tmp_path / "jobs"


def test_ranks_are_those_that_are_known_best(recorded: RunRecord, tmp_path: Path) -> None:
    assert recorded.spec().ranks == 1, "what the job asks for"
    started = RunRecord(job=recorded.job, job_dir=recorded.job_dir, world_size=4)
    assert started.spec().ranks == 4
    assert started.spec(world_size=2).ranks == 2


def test_a_job_that_is_not_taken_any_more_is_told_in_full() -> None:
    record = RunRecord(job={"trainer": "somewhere:Trainer", "max_step": 1}, job_dir="/")
    with pytest.raises(Errors) as raised:
        record.spec()
    assert "/max_step" in [one.pointer for one in raised.value.errors]
