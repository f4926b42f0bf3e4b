"""``POST /train`` at a service whose jobs run on an emulated cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from kubernetes_emulator import Fault

from hostcore.job.forms import structure
from hostcore.plugins.describe import Description
from hostcore.supervisor.operator_file import OperatorFile
from hostcore_hookspecs.plan import PluginRef
from hostcore_service.app import make_app
from hostcore_service.descriptions import Descriptions
from hostcore_service.settings import Settings
from hostcore_service.train import router

JOBS = "/pytorchjobs"
REQUEST = {
    "framework": "tiny",
    "model_id": "tiny-1b",
    "run_id": "demo_1",
    "checkpoint_base_uri": "s3://bucket/runs/",
    "dataset_uri": "s3://bucket/data/",
}
NAME = "tiny-demo-1"


@pytest.fixture
def client(kubernetes: Any, site_here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr(router, "_CREATE_SECONDS", 120.0)  # the tries of the launcher may take long here
    site_here.install("tiny-trainer", modules={}, entry_points={"hostcore.trainers": {"tiny": "tiny:Trainer"}})
    runs = tmp_path / "runs"
    document = {
        "launcher": {"use": "kubernetes-pytorchjob", "kubeconfig": str(kubernetes.kubeconfig), "image": "a:1"},
        "service": {"poll_seconds": 0.1},
        "http": {"requests_per_minute": 0},
    }
    known = Descriptions(
        runs, lambda kind, name, _: Description(ref=PluginRef(kind=kind, name=name, value="tiny:Trainer"))
    )
    settings = Settings(operator=structure(OperatorFile, document, base_dir=tmp_path), runs=runs)
    app = make_app(settings, descriptions=known)
    with TestClient(app, "http://127.0.0.1", raise_server_exceptions=False) as connected:
        yield connected


def test_a_job_is_created_when_the_answer_says_so(client: TestClient, kubernetes: Any) -> None:
    answer = client.post("/train", json=REQUEST)
    assert (answer.status_code, answer.json()["detail"]) == (201, "PyTorchJob created")
    assert [job["metadata"]["name"] for job in kubernetes.objects("pytorchjobs")] == [NAME]


def test_a_cluster_that_fails_to_create_a_job_is_a_500_and_the_run_id_is_free(
    client: TestClient, kubernetes: Any
) -> None:
    kubernetes.fail(Fault(path=JOBS, method="POST", message="the webhook is down"))
    answer = client.post("/train", json=REQUEST)
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert "the webhook is down" in answer.json()["detail"]
    assert client.get(f"/train/{NAME}").status_code == 404
    kubernetes.heal()
    assert client.post("/train", json=REQUEST).status_code == 201


def test_a_job_of_the_other_route_ends_with_the_words_of_the_cluster(client: TestClient, kubernetes: Any) -> None:
    kubernetes.fail(Fault(path=JOBS, method="POST", message="the webhook is down"))
    body = {"trainer": "tiny", "run_id": "demo_1", "max_steps": 3, "checkpoint_base_uri": "s3://bucket/runs"}
    assert client.post("/v1/jobs", json=body).status_code == 201
    kubernetes.wait(lambda: client.get("/v1/jobs/demo_1").json()["status"] == "failed")
    assert "the webhook is down" in client.get("/v1/jobs/demo_1").json()["detail"]


def test_a_job_whose_object_was_deleted_in_the_cluster_is_not_found(client: TestClient, kubernetes: Any) -> None:
    assert client.post("/train", json=REQUEST).status_code == 201
    assert "kubectl" not in client.get(f"/train/{NAME}").json()["detail"]
    kubernetes.forget("pytorchjobs", NAME)
    kubernetes.wait(lambda: client.get(f"/train/{NAME}").status_code == 404)
    problem = client.get(f"/train/{NAME}").json()
    assert (problem["errors"][0]["code"], "is gone" in problem["detail"]) == ("run.unknown", True)
    assert client.get("/v1/jobs/demo_1").json()["status"] == "lost"


@pytest.mark.parametrize(("more", "pointer"), [({}, "/run_id"), ({"job_name": NAME}, "/job_name")])
def test_an_object_of_others_that_has_the_name_is_a_bad_request(
    client: TestClient, kubernetes: Any, more: dict[str, str], pointer: str
) -> None:
    theirs = {
        "metadata": {"name": NAME, "namespace": "default"},
        "kind": "PyTorchJob",
        "spec": {"runPolicy": {"suspend": True}},
    }
    kubernetes._run(lambda: kubernetes.api.put("pytorchjobs", theirs))
    answer = client.post("/train", json={**REQUEST, **more})
    assert answer.status_code == 400
    error = answer.json()["errors"][0]
    assert (error["code"], error["pointer"]) == ("job.exists", pointer)
    assert f"PyTorchJob {NAME} already exists" in error["detail"]
    assert client.get(f"/train/{NAME}").status_code == 404
