"""Launches to make manifests of."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from crd_schemas import Schema, schemas_of
from engine_runs import launch_context

from hostcore_engines.kubernetes.launching import KubernetesLauncher
from hostcore_engines.kubernetes.pytorchjob import PytorchJobLauncher
from hostcore_engines.kubernetes.trainjob import TrainJobLauncher
from hostcore_hookspecs import LaunchContext
from hostcore_hookspecs.job import Job, Resources

LAUNCHERS: Mapping[str, Any] = {"PyTorchJob": PytorchJobLauncher, "TrainJob": TrainJobLauncher}

Manifests = Callable[..., dict[str, Any]]


@pytest.fixture(params=LAUNCHERS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that is in no cluster."""
    monkeypatch.delenv("TRAINER_JOBS_NAMESPACE", raising=False)


@pytest.fixture
def launcher(kind: str) -> Callable[..., KubernetesLauncher]:
    def make(**settings: Any) -> KubernetesLauncher:
        cls = LAUNCHERS[kind]
        made: KubernetesLauncher = cls(cls.Settings(**{"image": "registry.example/trainer:1", **settings}))
        return made

    return make


@pytest.fixture
def context() -> Callable[..., LaunchContext]:
    """A launch as the host describes it."""

    def make(*, sees: bool = False, name: str = "meta-demo-1", **job: Any) -> LaunchContext:
        made = Job(**{"run_id": "demo_1", "trainer": "meta", **job})
        run_dir, record = "/srv/runs/demo_1", "/srv/runs/demo_1/config/run.json"
        hostcore = [sys.executable, "-P", "-m", "hostcore"]
        return launch_context(
            run_dir,
            [*hostcore, "resume", run_dir, "--launched"] if sees else [*hostcore, "run", record],
            job=made,
            job_path=record,
            document={"trainer": "meta", "run_id": made.run_id, "grace_seconds": 25.0},
            launch_id="demo_1.0123456789abcdef",
            name=name,
            env=dict(made.resources.env),
        )

    return make


@pytest.fixture
def manifests(launcher: Callable[..., KubernetesLauncher], context: Callable[..., LaunchContext]) -> Manifests:
    """What would be sent, by kind; the values of the job's own variables are hidden."""

    def make(*, settings: Mapping[str, Any] | None = None, **job: Any) -> dict[str, Any]:
        document = launcher(**(settings or {})).plan(context(sees="volume" in (settings or {}), **job)).document
        decoder, found, at = json.JSONDecoder(), {}, 0
        while document[at:].strip():
            one, at = decoder.raw_decode(document, at)
            found[one["kind"]] = one
            at += 1
        return found

    return make


def templates_of(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """``metadata`` and ``spec`` that the pods of a job are made from."""
    spec = manifest["spec"]
    if manifest["kind"] == "PyTorchJob":
        return [replica["template"] for replica in spec["pytorchReplicaSpecs"].values()]
    [patches] = spec["runtimePatches"]
    [job] = patches["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    return [job["template"]["spec"]["template"]]


def pods_of(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The ``spec`` of all pods of a job, as its operator puts them together."""
    pods = [template["spec"] for template in templates_of(manifest)]
    if manifest["kind"] == "PyTorchJob":
        return pods
    [pod] = pods
    [container] = pod["containers"]
    trainer = manifest["spec"]["trainer"]
    trainer = {**trainer, "resources": trainer.get("resourcesPerNode", {})}
    return [{**pod, "containers": [{**trainer, **container}]}]


@pytest.fixture
def templates() -> Callable[[Mapping[str, Any]], list[dict[str, Any]]]:
    return templates_of


@pytest.fixture
def pods() -> Callable[[Mapping[str, Any]], list[dict[str, Any]]]:
    return pods_of


@pytest.fixture
def resources() -> type[Resources]:
    return Resources


@pytest.fixture(scope="session")
def schemas() -> Mapping[str, Schema]:
    """The published CRDs, by plural."""
    folder = os.environ.get("HOSTCORE_TEST_CRDS")
    if not folder:
        pytest.skip("HOSTCORE_TEST_CRDS does not name a folder with the published CRDs")
    return schemas_of(Path(folder))
