"""A program of a job's choice, at a service that really runs what it takes; the rest is in ``unit/http``."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def test_a_program_runs_where_the_operator_writes_it_out_and_only_as_long(make_server: Any, tmp_path: Path) -> None:
    def program(run_id: str, trainer: str = "process") -> dict[str, Any]:
        """A job that leaves a file when its command runs."""
        command = {"hyperparams": {"command": ["sh", "-c", f"touch {tmp_path}/{run_id}"]}}
        return {"trainer": trainer, "device": "cpu", "max_steps": 1, "run_id": run_id, **command}

    opened = make_server(http='plugins = ["*", "Hostcore_Builtin_Plugins/process"]', folder=tmp_path / "s")
    answer = opened.request("POST", "/v1/jobs", json=program("r", "hostcore.builtin.plugins/process"))
    assert answer.status == 201, answer.body
    opened.wait_ended("r")
    assert (tmp_path / "r").exists(), opened.log
    opened.stop()
    closed = make_server(folder=tmp_path / "s")
    profiles = {"profiles": {"p": program("p")}}  # which is not applied, and opens nothing
    for path, job in (("/v1/jobs/r:resume", {}), ("/v1/jobs", program("q"))):
        refused = closed.request("POST", path, json=job)
        assert "runs code or programs" in next(one["detail"] for one in refused.json["errors"]), path
    closed.submit(run_id="p", **profiles)
    assert closed.wait_ended("p")["trainer"] == "tiny"
    assert not [name for name in "pq" if (tmp_path / name).exists()]
