"""A service lets in what SECURITY.md says, with and without an operator's file: a test for each sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

Client = Callable[..., TestClient]
LOCK: dict[str, Any] = {"environment": {"lock": "pylock.toml"}}


def required(*requirements: str, **more: Any) -> dict[str, Any]:
    return {"environment": {"requirements": list(requirements), **more}}


@pytest.fixture
def refused(client: Client, tiny: Callable[..., dict[str, Any]]) -> Callable[..., list[str]]:
    """``refused({"weights": "/etc"}, data_roots=["/srv"])``: the places of a job that a service refuses."""
    opened: dict[str, TestClient] = {}

    def ask(keys: dict[str, Any], top: dict[str, Any] | None = None, **http: Any) -> list[str]:
        key = repr((top, sorted(http.items())))
        if key not in opened:
            opened[key] = client(**({"http": http} if http else {}), **(top or {}))
        answer = opened[key].post("/v1/jobs", json=tiny(**keys))
        assert answer.status_code == 201 or 400 <= answer.status_code < 500, answer.text
        return [] if answer.status_code == 201 else [one["pointer"] for one in answer.json()["errors"]]

    return ask


Refused = Callable[..., list[str]]


def test_1_no_import_path(refused: Refused) -> None:
    assert refused({}) == []
    assert refused({"trainer": "here:Trainer"}) == ["/trainer"]
    assert refused({"dataset": {"source": "os:path"}}) == ["/dataset/source"]
    assert refused({"import_paths": True}) == ["/import_paths"]
    assert refused({"import_paths": ["tiny-trainer/tiny"]}) == ["/import_paths"]


def test_2_no_plugin_that_runs_code_of_the_job_s_choice(refused: Refused) -> None:
    built_in = ("process", "Hostcore_Builtin.Plugins/process")
    for trainer in (*built_in, "lightning", "HOSTCORE-LIGHTNING/lightning", "nemo"):
        assert refused({"trainer": trainer}) == ["/trainer"], trainer


def test_3_no_faults(refused: Refused) -> None:
    assert refused({"callbacks": [{"use": "Hostcore.Chaos/chaos", "faults": ["kill@step=1"]}]}) == ["/callbacks/0"]


def test_4_object_stores_alone(refused: Refused) -> None:
    assert refused({"checkpoint_base_uri": "s3://bucket/runs", "weights": "s3://bucket/w"}) == []
    for place in ("/etc/passwd", "file:///etc/passwd", "http://example.com/x", "data/x"):
        assert refused({"weights": place}) == ["/weights"], place
        assert refused({"checkpoint_base_uri": place}) == ["/checkpoint_base_uri"], place
        assert refused({"validation": {"source": "csv", "paths": [place]}}) == ["/validation/paths/0"], place


SURROUNDINGS: list[tuple[dict[str, Any], str]] = [
    ({"resources": {"env": {"A": "1"}}}, "/resources/env/A"),
    ({"hyperparams": {"token": {"$secret": "env:HOME"}}}, "/hyperparams/token"),
    ({"resources": {"image": "a/b"}}, "/resources/image"),
    (required("numpy"), "/environment/requirements/0"),
    ({"environment": {"interpreter": "/usr/bin/python3"}}, "/environment/interpreter"),
    (LOCK, "/environment/lock"),
]


def test_5_nothing_of_the_surroundings(refused: Refused) -> None:
    for keys, pointer in SURROUNDINGS:
        assert refused(keys) == [pointer]


def test_6_the_launcher_is_local_without_settings_of_the_job(refused: Refused) -> None:
    assert refused({"launcher": "local"}, top={"launcher": "local"}) == []
    assert refused({"launcher": "slurm"}) == ["/launcher"]
    assert refused({"launcher": {"use": "local", "log": "x"}}) == ["/launcher/log"]


def test_7_no_control_characters(refused: Refused) -> None:
    assert refused({"owner": "ada\x1b[2J"}) == ["/owner"]
    assert refused({"owner": "ada\r\neve"}) == ["/owner"]


def test_9_plugins(refused: Refused) -> None:
    assert refused({}, plugins=["Tiny_Trainer/*", "hostcore-*/*", "told-launchers/*"]) == []
    assert refused({}, plugins=["other"])[0] == "/trainer"
    command = {"trainer": "process", "hyperparams": {"command": ["true"]}}
    assert refused(command, plugins=["*", "hostcore-builtin-plugins/process"]) == []
    assert refused({**command, "trainer": "nemo"}, plugins=["*", "hostcore-builtin-plugins/process"]) == ["/trainer"]
    assert refused(command, import_paths=True) == []
    assert refused({"trainer": "here:Trainer"}, import_paths=True) == []


def test_10_faults(refused: Refused) -> None:
    assert refused({"callbacks": [{"use": "chaos", "faults": ["kill@step=1"]}]}, chaos=True) == []


def test_11_folders_and_hosts(refused: Refused, tmp_path: Path) -> None:
    data, runs = tmp_path / "data", tmp_path / "written"
    data.mkdir()
    runs.mkdir()
    http = {"data_roots": [str(data)], "checkpoint_roots": [str(runs)], "hosts": ["example.com"]}
    assert refused({"weights": f"{data}/w", "checkpoint_base_uri": str(runs)}, **http) == []
    assert refused({"checkpoint_base_uri": str(data)}, **http) == ["/checkpoint_base_uri"]
    assert refused({"weights": "https://other.example/w"}, **http) == ["/weights"]
    assert refused({"weights": str(tmp_path)}, **http) == ["/weights"]


def test_12_names(refused: Refused) -> None:
    http = {
        "env": ["A_*"],
        "secrets": ["env:HF_TOKEN"],
        "images": ["mine/*"],
        "requirements": ["numpy"],
        "indexes": ["https://index.example/simple"],
        "labels": ["team"],
        "annotations": [],
    }
    token = {"token": {"$secret": "env:HF_TOKEN"}}
    opened = {"env": {"A_B": "1"}, "image": "mine/a"}
    assert refused({"resources": opened, "labels": {"team": "a"}}, **http) == []
    closed = {"resources": {"env": {"B": "1"}, "image": "other/a"}, "labels": {"x": "a"}, "annotations": {"x": "a"}}
    found = refused({**closed, "hyperparams": {"token": {"$secret": "env:HOME"}}}, **http)
    places = ["/annotations/x", "/hyperparams/token", "/labels/x", "/resources/env/B", "/resources/image"]
    assert sorted(found) == places
    assert "/hyperparams/token" not in refused({"hyperparams": token}, **http)
    assert refused(required("numpy>=1", indexes=["https://index.example/simple"]), **http) == []
    for wrong in ("numpy>=1\rrequests", "numpy>=1\u2028requests", "requests", "numpy @ https://evil.example/x.whl"):
        assert refused(required(wrong), **http) == ["/environment/requirements/0"]
    assert refused(required("numpy", indexes=["https://evil.example"]), **http) == ["/environment/indexes/0"]


def test_13_launchers_have_the_operator_s_settings(refused: Refused) -> None:
    top = {"launchers": {"torchrun": {"hosts": ["localhost"]}}}
    assert refused({"launcher": "torchrun"}, top=top) == []
    assert refused({"launcher": {"use": "torchrun", "hosts": ["evil"]}}, top=top) == ["/launcher/hosts/0"]


def test_14_policies_are_asked_and_a_job_only_adds(client: Client, tiny: Callable[..., dict[str, Any]]) -> None:
    service = client(policies=[{"use": "allow-list", "trainers": ["Other.Dist/tiny"]}])
    for policies in ([], [{"use": "allow-list", "trainers": ["*"]}]):
        answer = service.post("/v1/jobs", json=tiny(policies=policies))
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (403, "policy.denied")
    listed = client(policies=[{"use": "allow-list", "trainers": ["Tiny.Trainer/tiny"]}])
    assert listed.post("/v1/jobs", json=tiny()).status_code == 201


NEVER: list[tuple[dict[str, Any], str]] = [
    ({"resources": {"env": {"LD_PRELOAD": "x"}}}, "/resources/env/LD_PRELOAD"),
    ({"resources": {"env": {"PATH": "x"}}}, "/resources/env/PATH"),
    ({"weights": "/srv/../etc/passwd"}, "/weights"),
    ({"weights": "http://169.254.169.254/latest"}, "/weights"),
    (LOCK, "/environment/lock"),
]


def test_15_what_no_key_opens(refused: Refused) -> None:
    http = {"env": ["*"], "hosts": ["*"], "data_roots": ["/srv"], "import_paths": True, "interpreters": ["*"]}
    for keys, pointer in NEVER:
        assert refused(keys, **http) == [pointer]
