"""A service that has never seen a run whose mirror exists: it goes on with it, or refuses, as `hostcore run` does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("launcher", [None, "away"])
def test_a_run_whose_mirror_is_there_goes_on_and_another_job_of_its_run_id_is_refused(
    far_machine: Callable[[str], Any], tmp_path: Path, launcher: str | None
) -> None:
    base, mirror = str(tmp_path / "mirror"), tmp_path / "mirror/a/framework=tiny"
    every = {"checkpoint_every": 2, "metric_every": 1, "checkpoint_base_uri": base}
    job: dict[str, Any] = {"run_id": "a", "max_steps": 4, "launcher": launcher, **every}
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
