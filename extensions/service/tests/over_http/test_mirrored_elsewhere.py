"""A service that has never seen a run whose mirror exists: it goes on with it, or refuses, as `hostcore run` does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from pyarrow.parquet import write_table

PREFIX = "a/framework=tiny"


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    """A job of four steps, with a mirror."""
    base = str(tmp_path / "mirror")
    return {"run_id": "a", "max_steps": 4, "checkpoint_every": 2, "metric_every": 1, "checkpoint_base_uri": base}


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("launcher", [None, "away"])
def test_a_run_whose_mirror_is_there_goes_on_and_another_job_of_its_run_id_is_refused(
    far_machine: Callable[[str], Any], job: dict[str, Any], tmp_path: Path, launcher: str | None
) -> None:
    job, mirror = {**job, "launcher": launcher}, tmp_path / "mirror" / PREFIX
    first = far_machine("first")
    first.submit(**job)
    assert first.wait_ended("a")["status"] == "succeeded"

    second = far_machine("second")
    second.submit(**{**job, "max_steps": 6, "resume_from_checkpoint": True})
    ended = second.wait_ended("a")
    assert (ended["status"], ended["attempt"], ended["step"]) == ("succeeded", 2, 6), ended
    assert [one["step"] for one in second.request("GET", "/v1/jobs/a/checkpoints").json["checkpoints"]][-1] == 6
    assert orjson.loads((mirror / "result.json").read_bytes())["attempt"] == 2
    events = [orjson.loads(line) for line in (mirror / "logs" / "events.jsonl").read_bytes().splitlines()]
    assert [one["step"] for one in events if one["event"] == "run_resumed"] == [4]
    assert sorted(one["step"] for one in events if one["event"] == "metrics") == [1, 2, 3, 4, 5, 6]

    before, third = files_of(mirror), far_machine("third")
    third.submit(**{**job, "hyperparams": {"seconds": 0.001}})
    refused = third.wait_ended("a")
    assert refused["status"] == "failed"
    assert "belongs to another job, in the mirror" in refused["detail"]
    third.request("POST", "/v1/jobs/a:resume")
    assert third.wait_ended("a")["status"] == "failed"
    assert files_of(mirror) == before


def test_train_that_is_to_resume_goes_on_from_the_mirror_and_a_finished_run_is_not_begun_again(
    far_machine: Callable[[str], Any], job: dict[str, Any], tmp_path: Path
) -> None:
    mirror, data = tmp_path / "mirror" / PREFIX, tmp_path / "data.parquet"
    write_table(pa.table({"x": list(range(8))}), data)
    request = {
        "framework": "tiny",
        "model_id": "m",
        "run_id": "a",
        "checkpoint_base_uri": job["checkpoint_base_uri"],
        "dataset_uri": str(data),
        "resume_from_checkpoint": True,
    }

    def train(name: str, *, max_steps: int, **keys: Any) -> dict[str, Any]:
        here = far_machine(name)
        body = {**request, "extra_args": {"max_steps": max_steps, "device": "cpu", "batch_size": 2}, **keys}
        answer = here.request("POST", "/train", json=body)
        assert answer.status == 201, answer.body
        return here.wait_ended("a")

    nothing = train("none", max_steps=4)
    assert nothing["status"] == "failed"
    assert "neither here nor in its mirror" in nothing["detail"]
    assert not mirror.exists()
    first = train("first", max_steps=4, resume_from_checkpoint=False)
    assert first["status"] == "succeeded", first
    ended = train("second", max_steps=6)
    assert (ended["status"], ended["attempt"], ended["step"]) == ("succeeded", 2, 6), ended
    before = files_of(mirror / "attempts"), files_of(mirror / "checkpoints"), (mirror / "result.json").read_bytes()
    again = train("third", max_steps=6)
    assert (again["status"], again["attempt"], again["step"]) == ("succeeded", 2, 6), again
    assert (files_of(mirror / "attempts"), files_of(mirror / "checkpoints")) == before[:2]
    assert (mirror / "result.json").read_bytes() == before[2]
