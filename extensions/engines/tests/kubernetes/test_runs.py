"""Whole runs on an emulated cluster, whose pods really train, here."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import boto3
import pytest
from fork_server import ran
from moto.server import ThreadedMotoServer
from package_index import Index, linked_index
from waiting import wait_until

from hostcore_engines.kubernetes.launching import KubernetesLauncher
from hostcore_engines.kubernetes.pytorchjob import PytorchJobLauncher
from hostcore_engines.kubernetes.trainjob import TrainJobLauncher
from hostcore_hookspecs import LaunchHandle, LaunchStatus

TRAINER = Path(__file__).parents[1] / "curve_trainer.py"
LAUNCHERS: dict[str, Any] = {"kubernetes-pytorchjob": PytorchJobLauncher, "kubernetes-trainjob": TrainJobLauncher}
PLURALS = {"kubernetes-pytorchjob": "pytorchjobs", "kubernetes-trainjob": "trainjobs"}
RATE, TARGET = 0.01, 3.0
IN_MIRROR = ("result.json", "config/run.json", "logs/events.jsonl", "checkpoints/step-000020.json")


def curve(steps: int) -> list[float]:
    """The loss of each step, on any number of ranks."""
    weight, losses = 0.0, []
    for _ in range(steps):
        losses.append((weight - TARGET) ** 2)
        weight -= RATE * 2 * (weight - TARGET)
    return losses


@attrs.frozen
class Run:
    """A run that was submitted."""

    path: Path
    launcher: KubernetesLauncher

    @property
    def handle(self) -> LaunchHandle:
        return LaunchHandle(**json.loads((self.path / "config" / "launch.json").read_text())["handle"])

    def poll(self) -> LaunchStatus:
        return self.launcher.poll(self.handle)

    def over(self) -> LaunchStatus:
        wait_until(lambda: self.poll().status not in ("submitted", "running"), "the end of the run")
        return self.poll()

    def log(self) -> str:
        text, since = "", ""
        while (chunk := self.launcher.read_logs(self.handle, since)).text:
            text, since = text + chunk.text, chunk.next
        return text

    def losses(self) -> list[float]:
        lines = (self.path / "logs" / "events.jsonl").read_text().splitlines(keepends=True)
        events = [json.loads(line) for line in lines if line.endswith("\n")]  # the last may be being written
        return [one["metrics"]["train/loss"] for one in events if one["event"] == "metrics"]


@pytest.fixture(params=LAUNCHERS)
def use(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def submit(kubernetes: Any, tmp_path: Path, use: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    (tmp_path / "curve_trainer.py").write_text(TRAINER.read_text())
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))

    def make(*, settings: dict[str, Any] | None = None, **job: Any) -> Run:
        how = {"kubeconfig": str(kubernetes.kubeconfig), "image": "registry.example/trainer:1", **(settings or {})}
        document = {
            "trainer": "curve_trainer:Trainer",
            "run_id": "demo_1",
            "mock_batches": [1] * 8,
            "epochs": 10_000,
            "max_steps": 20,
            "metric_every": 1,
            "device": "cpu",
            "launcher": {"use": use, **how},
            **job,
        }
        (tmp_path / "job.json").write_text(json.dumps(document))
        done = ran(
            ["run", tmp_path / "job.json", "--detach"],
            text=True,
            env={**os.environ, "HOSTCORE_RUNS_DIR": str(tmp_path / "runs")},
        )
        assert done.returncode == 0, done.stderr
        cls = LAUNCHERS[use]
        return Run(tmp_path / "runs" / "demo_1", cls(cls.Settings(**{**how, "kubeconfig": kubernetes.kubeconfig})))

    return make


def test_a_run_without_a_volume_trains_in_a_pod_and_its_mirror_has_the_model(
    submit: Callable[..., Run], kubernetes: Any, use: str, tmp_path: Path
) -> None:
    run = submit(checkpoint_base_uri=f"file://{tmp_path}/mirror")
    status = run.over()
    assert status.status == "succeeded", (status, run.log())
    mirror = tmp_path / "mirror" / "demo_1" / "framework=curve_trainer-Trainer"
    result = json.loads((mirror / "result.json").read_text())
    assert (result["status"], result["step"]) == ("succeeded", 20)
    assert (mirror / "checkpoints" / "step-000020.json").exists()
    assert "succeeded" in run.log()
    assert [one["metadata"]["name"] for one in kubernetes.objects(PLURALS[use])] == ["demo-1"]
    [document] = kubernetes.objects("configmaps")
    assert document["metadata"]["ownerReferences"][0]["name"] == "demo-1"
    kubernetes.forget(PLURALS[use], "demo-1")
    assert kubernetes.objects("configmaps") == []
    assert run.poll().status == "lost"
    assert run.log() == ""


def test_two_nodes_train_one_model_in_a_volume(submit: Callable[..., Run], kubernetes: Any, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    run = submit(settings={"volume": "runs"}, resources={"num_nodes": 2}, hyperparams={"until": str(seen)})
    wait_until(lambda: len(kubernetes.objects("pods")) == 2, "two pods")
    seen.touch()
    status = run.over()
    assert status.status == "succeeded", (status, run.log())
    assert run.losses() == pytest.approx(curve(20))
    record = json.loads((run.path / "config" / "run.json").read_text())
    assert record["world_size"] == 2


def test_pods_build_the_environment_of_a_job_if_they_may(submit: Callable[..., Run], tmp_path: Path) -> None:
    (tmp_path / "published").mkdir()
    index = Index(linked_index(tmp_path / "published"))
    index.publish("of-its-own", trainer="of-its-own")
    run = submit(
        settings={"volume": "runs", "build_environments": True},
        trainer="of-its-own",
        environment={"requirements": ["of-its-own"]},
        resources={"num_nodes": 2, "env": index.environment},
    )
    status = run.over()
    assert status.status == "succeeded", (status, run.log())
    pythons = {log.read_text().splitlines()[0] for log in (run.path / "logs").glob("rank-?.attempt-1.log")}
    assert [Path(one).is_relative_to(index.environment["HOSTCORE_ENVIRONMENTS_DIR"]) for one in pythons] == [True]
    assert run.log().count("environment: building it") == 1


def test_two_nodes_without_a_volume_train_one_model_that_the_store_has(
    submit: Callable[..., Run], kubernetes: Any, use: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    login = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "us-east-1"}
    environment = {**login, "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_EC2_METADATA_DISABLED": "true"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    try:
        client = boto3.client("s3", endpoint_url=environment["AWS_ENDPOINT_URL"])
        client.create_bucket(Bucket=use)  # the servers of a process have the same ones
        run = submit(checkpoint_base_uri=f"s3://{use}", resources={"num_nodes": 2, "env": environment})
        status = run.over()
        assert status.status == "succeeded", (status, run.log())
        prefix = "demo_1/framework=curve_trainer-Trainer"
        read = {key: client.get_object(Bucket=use, Key=f"{prefix}/{key}")["Body"].read() for key in IN_MIRROR}
    finally:
        server.stop()
    # The operator removes a pod that still runs when the job has ended: how many are left says nothing.
    assert (json.loads(read["result.json"])["status"], json.loads(read["config/run.json"])["world_size"]) == (
        *("succeeded", 2),
    )
    events = [json.loads(line) for line in read["logs/events.jsonl"].splitlines()]
    assert [one["metrics"]["train/loss"] for one in events if one["event"] == "metrics"] == pytest.approx(curve(20))
    assert json.loads(read["checkpoints/step-000020.json"])["final"] is True


def test_cancelling_writes_a_checkpoint(submit: Callable[..., Run], kubernetes: Any) -> None:
    run = submit(settings={"volume": "runs"}, max_steps=100_000, hyperparams={"seconds": 0.02}, metric_every=5)
    wait_until(lambda: (run.path / "logs" / "events.jsonl").exists() and len(run.losses()) > 2, "some steps")
    run.launcher.cancel(run.handle, 300.0)
    assert run.over().status == "cancelled"
    result = json.loads((run.path / "result.json").read_text())
    assert (run.path / result["final_checkpoint"]).is_dir()
    assert result["step"] > 5
    run.launcher.cancel(run.handle, 300.0)
    assert run.poll().status == "cancelled"
    wait_until(lambda: kubernetes.objects("pods") == [], "the pods to be gone")


def test_a_run_that_fails_is_not_tried_again_and_says_why(submit: Callable[..., Run], kubernetes: Any) -> None:
    run = submit(hyperparams={"fails_at": 3})
    status = run.over()
    assert (status.status, status.exit_code) == ("failed", 1)
    assert "exit code 1 (pod demo-1-" in status.message
    assert "step 3 is not for me" in run.log()
    assert len(kubernetes.objects("pods")) == 1


def test_out_of_memory_is_told(submit: Callable[..., Run], kubernetes: Any) -> None:
    run = submit(settings={"volume": "runs"}, max_steps=100_000, hyperparams={"seconds": 0.02})
    wait_until(lambda: (run.path / "logs" / "events.jsonl").exists() and run.losses(), "a step")
    [pod] = kubernetes.objects("pods")
    kubernetes.oom_kill(pod["metadata"]["name"])
    status = run.over()
    assert status.status == "failed"
    assert "OOMKilled" in status.message


def test_eviction_is_told(submit: Callable[..., Run], kubernetes: Any) -> None:
    run = submit(max_steps=100_000, hyperparams={"seconds": 0.02})
    wait_until(lambda: run.poll().status == "running", "the run to begin")
    [pod] = kubernetes.objects("pods")
    kubernetes.evict(pod["metadata"]["name"])
    status = run.over()
    assert status.status == "failed"
    assert "Evicted" in status.message


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"image": "registry.example/missing:1"}, "ImagePullBackOff"),
        ({"node_selector": {"gpu": "h100"}}, "Unschedulable"),
    ],
)
def test_what_keeps_a_run_from_beginning_is_told(
    submit: Callable[..., Run], settings: dict[str, Any], reason: str
) -> None:
    run = submit(settings=settings)
    wait_until(lambda: reason in run.poll().message, reason)
    assert run.poll().status == "submitted"
    run.launcher.cancel(run.handle, 1.0)
    assert run.over().status == "cancelled"
