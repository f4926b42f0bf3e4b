"""Everything that SECURITY.md says about jobs over HTTP, tried at a service that really runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SPELLINGS = [
    *("process", "hostcore-builtin-plugins/process", "hostcore_builtin_plugins/process"),
    *("HOSTCORE-BUILTIN-PLUGINS/process", "Hostcore_Builtin.Plugins/process", "hostcore-_.builtin-plugins/process"),
    *("process ", " process", "process\n", "Process", "proce\u017fs", "process\0", "hostcore-builtin-plugins/ process"),
]


def post(server: Any, path: str, document: Any) -> Any:
    return server.request("POST", path, json=document, timeout=600)


def program(tmp_path: Path, trainer: Any, **keys: Any) -> dict[str, Any]:
    """A job that would leave a file, if its command ran."""
    command = ["sh", "-c", f"touch {tmp_path}/ran"]
    return {"trainer": trainer, "device": "cpu", "max_steps": 1, "hyperparams": {"command": command}, **keys}


def refused(answer: Any, pointer: str = "/trainer") -> str:
    """The message about a place."""
    assert 400 <= answer.status < 500, answer.body
    return next(one["detail"] for one in answer.json["errors"] if one["pointer"] == pointer)


def test_a_program_of_the_job_s_choice_never_runs_by_any_door_or_spelling(server: Any, tmp_path: Path) -> None:
    mapped = {"checkpoint_base_uri": "s3://bucket/runs", "model_id": "m", "dataset_uri": "s3://bucket/x.parquet"}
    for number, trainer in enumerate(SPELLINGS):
        job = program(tmp_path, trainer)
        refused(post(server, "/v1/jobs", job))
        refused(post(server, "/v1/jobs:validate", job))
        request = {"framework": trainer, "run_id": f"r{number}", **mapped, "extra_args": job["hyperparams"]}
        assert post(server, "/train", request).status == 400
    for nested in ({"include": ["/etc/passwd"]}, {"job": program(tmp_path, "process")}):
        assert post(server, "/v1/jobs", nested | {"trainer": "tiny"}).status == 400
    assert post(server, "/v1/jobs", {**program(tmp_path, "tiny"), "trainer": {"use": "process"}}).status in (400, 403)
    assert not (tmp_path / "ran").exists()
    assert server.request("GET", "/v1/jobs").json["jobs"] == []


def test_a_profile_is_not_applied_and_opens_nothing(server: Any, tmp_path: Path) -> None:
    profiles = {"profiles": {"p": program(tmp_path, "process")}}
    answer = post(server, "/v1/jobs", {"trainer": "tiny", "device": "cpu", "max_steps": 1, "run_id": "p", **profiles})
    if answer.status == 201:
        assert server.wait_ended("p")["trainer"] == "tiny"
    assert not (tmp_path / "ran").exists()


def test_a_plugin_that_the_operator_writes_out_may_run_programs_and_is_asked_about_again(
    make_server: Any, tmp_path: Path
) -> None:
    opened = make_server(http='plugins = ["*", "Hostcore_Builtin_Plugins/process"]', folder=tmp_path / "s")
    job = program(tmp_path, "hostcore.builtin.plugins/process", run_id="r")
    answer = post(opened, "/v1/jobs", job)
    assert answer.status == 201, answer.body
    opened.wait_ended("r")
    assert (tmp_path / "ran").exists(), opened.log
    opened.stop()
    closed = make_server(folder=tmp_path / "s")
    assert "runs code or programs" in refused(post(closed, "/v1/jobs/r:resume", {}))
