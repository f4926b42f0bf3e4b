"""Whole runs on an emulated cluster, whose pods really train, here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import curve_trainer
import kubernetes_emulator
import pytest
from curve_trainer import curve
from engine_contract import EngineContract
from engine_runs import Engine, EngineRun
from moto.server import ThreadedMotoServer
from waiting import wait_until

from hostcore_engines.kubernetes.pytorchjob import PytorchJobLauncher
from hostcore_engines.kubernetes.trainjob import TrainJobLauncher

LAUNCHERS: dict[str, Any] = {"kubernetes-pytorchjob": PytorchJobLauncher, "kubernetes-trainjob": TrainJobLauncher}
IN_MIRROR = ("result.json", "config/run.json", "logs/events.jsonl", "checkpoints/step-000020.json")
ENDLESS = {"max_steps": 100_000, "hyperparams": {"seconds": 0.02}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with kubernetes_emulator.cluster(tmp_path_factory.mktemp("cluster"), checked=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def engine_of(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Engine]]:
    """``engine_of("kubernetes-pytorchjob", volume="runs")``: where jobs of that launcher and those settings go."""

    def make(use: str, **settings: Any) -> Engine:
        settings = {"image": "registry.example/trainer:1", "timeout_seconds": 300.0, **settings}
        launcher = LAUNCHERS[use](LAUNCHERS[use].Settings(kubeconfig=cluster.kubeconfig, **settings))
        section = {"use": use, "kubeconfig": str(cluster.kubeconfig), **settings}
        return Engine(path=tmp_path_factory.mktemp(use), launcher=launcher, section=section)

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TRAINER_JOBS_NAMESPACE", raising=False)
        patch.setenv("PYTHONPATH", str(Path(curve_trainer.__file__).parent))  # what the image has
        yield make


@pytest.fixture(scope="class", params=LAUNCHERS)
def engine(request: pytest.FixtureRequest, engine_of: Callable[..., Engine]) -> Engine:
    """Whose runs lie in a volume."""
    return engine_of(request.param, volume="runs", build_environments=True)


@pytest.fixture(scope="module")
def pytorch(engine_of: Callable[..., Engine]) -> Engine:
    return engine_of("kubernetes-pytorchjob")


class TestEveryRun(EngineContract):
    #: The pod is asked to end, which a run takes for a preemption.
    CANCELLED_CODE = 75


def names(cluster: Any, plural: str) -> set[str]:
    return {one["metadata"]["name"] for one in cluster.objects(plural)}


def pods_of(cluster: Any, run: EngineRun) -> list[str]:
    return [name for name in names(cluster, "pods") if name.startswith(f"{run.handle.id}-")]


def test_a_run_without_a_volume_trains_in_a_pod_and_its_mirror_has_the_model(
    pytorch: Engine, cluster: Any, tmp_path: Path
) -> None:
    run = pytorch.submit("mirrored_1", checkpoint_base_uri=f"file://{tmp_path}/mirror")
    run.until("succeeded")
    mirror = tmp_path / "mirror" / "mirrored_1" / "framework=curve_trainer-Trainer"
    result = json.loads((mirror / "result.json").read_text())
    assert (result["status"], result["step"]) == ("succeeded", 20)
    assert (mirror / "checkpoints" / "step-000020.json").exists()
    assert "succeeded" in run.log
    assert "mirrored-1" in names(cluster, "pytorchjobs")
    [document] = [one for one in cluster.objects("configmaps") if one["metadata"]["name"].startswith("mirrored-1")]
    assert document["metadata"]["ownerReferences"][0]["name"] == "mirrored-1"
    cluster.forget("pytorchjobs", "mirrored-1")
    assert document["metadata"]["name"] not in names(cluster, "configmaps")
    assert run.poll().status == "lost"
    assert run.log == ""


def test_two_nodes_without_a_volume_train_one_model_that_the_store_has(engine_of: Callable[..., Engine]) -> None:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    login = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "us-east-1"}
    environment = {**login, "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_EC2_METADATA_DISABLED": "true"}
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            client = boto3.client("s3", endpoint_url=environment["AWS_ENDPOINT_URL"])
            client.create_bucket(Bucket="two-nodes")
            resources = {"num_nodes": 2, "env": environment}
            engine = engine_of("kubernetes-trainjob")
            engine.submit("stored", checkpoint_base_uri="s3://two-nodes", resources=resources).until("succeeded")
            prefix = "stored/framework=curve_trainer-Trainer"
            read = {
                key: client.get_object(Bucket="two-nodes", Key=f"{prefix}/{key}")["Body"].read() for key in IN_MIRROR
            }
    finally:
        server.stop()
    # The operator removes a pod that still runs when the job has ended: how many are left says nothing.
    assert json.loads(read["result.json"])["status"] == "succeeded"
    assert json.loads(read["config/run.json"])["world_size"] == 2
    events = [json.loads(line) for line in read["logs/events.jsonl"].splitlines()]
    assert [one["metrics"]["train/loss"] for one in events if one["event"] == "metrics"] == pytest.approx(curve(20))
    assert json.loads(read["checkpoints/step-000020.json"])["final"] is True


def test_a_run_that_fails_is_not_tried_again_and_says_why(pytorch: Engine, cluster: Any) -> None:
    run = pytorch.submit("failing", hyperparams={"fails_at": 3})
    status = run.until("failed")
    assert status.exit_code == 1
    assert "exit code 1 (pod failing-" in status.message
    assert "step 3 is not for me" in run.log
    assert len(pods_of(cluster, run)) == 1


def test_out_of_memory_is_told(engine_of: Callable[..., Engine], cluster: Any) -> None:
    run = engine_of("kubernetes-pytorchjob", volume="runs").submit("large", **ENDLESS)
    run.trains()
    [pod] = pods_of(cluster, run)
    cluster.oom_kill(pod)
    assert "OOMKilled" in run.until("failed").message


def test_eviction_is_told(engine_of: Callable[..., Engine], cluster: Any) -> None:
    run = engine_of("kubernetes-trainjob").submit("evicted", **ENDLESS)
    run.until("running")
    [pod] = pods_of(cluster, run)
    cluster.evict(pod)
    assert "Evicted" in run.until("failed").message


@pytest.mark.parametrize(
    ("use", "settings", "reason"),
    [
        ("kubernetes-pytorchjob", {"image": "registry.example/missing:1"}, "ImagePullBackOff"),
        ("kubernetes-trainjob", {"node_selector": {"gpu": "h100"}}, "Unschedulable"),
    ],
)
def test_what_keeps_a_run_from_beginning_is_told(
    engine_of: Callable[..., Engine], use: str, settings: dict[str, Any], reason: str
) -> None:
    run = engine_of(use, **settings).submit(reason.lower())
    wait_until(lambda: reason in run.poll().message, reason)
    assert run.poll().status == "submitted"
    run.launcher.cancel(run.handle, 1.0)
    run.until("cancelled")
