"""Runs on a real Ray cluster of two nodes, submitted by the installed command."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from package_index import Index, linked_index

from hostcore_engines.ray.launcher import RayLauncher
from hostcore_engines.ray.settings import RaySettings
from hostcore_hookspecs import FatalError, LaunchContext, LaunchHandle, Secret
from hostcore_hookspecs.job import Job

OVER = ("succeeded", "failed", "cancelled", "preempted", "lost")


@pytest.fixture
def launcher(folder: Any) -> RayLauncher:
    """The launcher, as a process has it that polls."""
    return RayLauncher(settings=RaySettings(address=folder.ray.address, token=Secret(folder.ray.token)))


def ended(launcher: RayLauncher, handle: LaunchHandle, wait: Callable) -> Any:
    """What the launcher says at the end."""
    return wait(lambda: (status := launcher.poll(handle)).status in OVER and status, "the end of the job")


class TestARun:
    def test_of_one_rank_succeeds_and_is_told_so_by_all(self, folder: Any, launcher: Any, wait: Callable) -> None:
        submitted = folder.submit("one")
        assert submitted.returncode == 0, submitted.stderr
        assert folder.ended("one")["status"] == "succeeded"
        handle = LaunchHandle(**folder.launch("one")["handle"])
        status = ended(launcher, handle, wait)
        assert (status.status, status.exit_code) == ("succeeded", 0)
        assert "succeeded" in folder.hostcore("status", "one").stdout
        assert "succeeded  one" in launcher.read_logs(handle, "").text

    def test_of_two_ranks_on_one_node_is_started_by_torchrun(self, folder: Any, launcher: Any, wait: Callable) -> None:
        """Ray takes its word for GPUs."""
        submitted = folder.submit("pair", resources={"gpus_per_node": 2}, global_batch_size=2)
        assert submitted.returncode == 0, submitted.stderr
        assert folder.ended("pair")["status"] == "succeeded", folder.log("pair")
        handle = LaunchHandle(**folder.launch("pair")["handle"])
        assert ended(launcher, handle, wait).status == "succeeded"
        assert world_size(folder.run("pair")) == 2

    def test_of_two_nodes_has_an_agent_on_each(self, folder: Any, launcher: Any, wait: Callable) -> None:
        resources = {"num_nodes": 2, "cpus_per_node": 1}
        submitted = folder.submit("nodes", resources=resources, global_batch_size=2, metric_every=1)
        assert submitted.returncode == 0, submitted.stderr
        assert folder.ended("nodes")["status"] == "succeeded", folder.log("nodes")
        assert ended(launcher, LaunchHandle(**folder.launch("nodes")["handle"]), wait).status == "succeeded"
        assert world_size(folder.run("nodes")) == 2
        assert [(folder.run("nodes") / "logs" / f"ray.{node}.log").exists() for node in range(2)] == [True, True]

    def test_that_is_cancelled_through_the_launcher_ends_with_a_checkpoint(
        self, folder: Any, launcher: Any, wait: Callable
    ) -> None:
        assert folder.submit("stopped", max_steps=100_000, hyperparams={"seconds": 0.05}).returncode == 0
        wait(lambda: '"metrics"' in _events(folder.run("stopped")), "the first steps")
        handle = LaunchHandle(**folder.launch("stopped")["handle"])
        launcher.cancel(handle, 300.0)
        status = launcher.poll(handle)
        assert (status.status, status.exit_code) == ("cancelled", 130)
        result = folder.ended("stopped")
        assert result["final_checkpoint"] == f"checkpoints/step-{result['step']:06}"

    def test_that_ray_itself_stops_is_preempted(self, folder: Any, launcher: Any, wait: Callable) -> None:
        assert folder.submit("taken", max_steps=100_000, hyperparams={"seconds": 0.05}).returncode == 0
        wait(lambda: '"metrics"' in _events(folder.run("taken")), "the first steps")
        handle = LaunchHandle(**folder.launch("taken")["handle"])
        launcher._api(folder.ray.address).stop(handle.id)
        status = ended(launcher, handle, wait)
        assert (status.status, status.exit_code) == ("preempted", 75)


def _events(run: Path) -> str:
    file = run / "logs" / "events.jsonl"
    return file.read_text() if file.exists() else ""


def world_size(run: Path) -> int:
    """The ranks of a run's only attempt."""
    events = [json.loads(line) for line in _events(run).splitlines()]
    (started,) = [event for event in events if event["event"] == "run_started"]
    return int(started["world_size"])


def context(folder: Any, name: str, **job: Any) -> LaunchContext:
    run_dir = folder.path / "by hand" / name
    run_dir.mkdir(parents=True)
    code = "import sys; print('it runs'); sys.exit(3)"
    return LaunchContext(
        job=Job(run_id=name, **job),
        job_path=str(run_dir / "run.json"),
        run_dir=str(run_dir),
        command=[sys.executable, "-c", code],
        env={},
        log=lambda _: None,
        launch_id=f"{name}.{folder.path.stat().st_ino}",
    )


class TestALaunch:
    def test_that_is_tried_again_finds_the_job(self, folder: Any, launcher: RayLauncher, wait: Callable) -> None:
        ctx = context(folder, "twice")
        first = launcher.launch(ctx)
        assert launcher.launch(ctx) == first
        status = ended(launcher, first, wait)
        assert (status.status, status.exit_code) == ("failed", 3)
        assert launcher.launch(ctx) == first, "also after its end"
        assert launcher.read_logs(first, "").text.count("it runs") == 1

    def test_is_read_from_ray_where_the_run_directory_has_no_log(
        self, folder: Any, launcher: RayLauncher, wait: Callable
    ) -> None:
        handle = launcher.launch(context(folder, "gone"))
        ended(launcher, handle, wait)
        (Path(handle.details["run_dir"]) / "logs" / "ray.0.log").unlink()
        chunk = launcher.read_logs(handle, "")
        assert "it runs" in chunk.text
        assert launcher.read_logs(handle, chunk.next).text == ""

    def test_with_a_wrong_token_is_refused_and_names_the_setting(self, folder: Any) -> None:
        refused = folder.submit("wrong", token="not-the-token-of-this-cluster-0123456789")
        assert refused.returncode != 0
        assert "answered 403" in refused.stderr
        assert "/launcher/token" in refused.stderr
        assert not folder.run("wrong").exists()

    def test_without_a_token_is_refused_and_names_the_setting(
        self, folder: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        settings = RaySettings(address=folder.ray.address)
        with pytest.raises(FatalError, match="answered 401") as caught:
            RayLauncher(settings=settings).launch(attrs.evolve(context(folder, "none"), launch_id="none"))
        assert caught.value.pointer == "/launcher/token"


@pytest.fixture
def index(tmp_path: Path) -> Index:
    """An index with a trainer that is installed nowhere."""
    made = Index(linked_index(tmp_path))
    made.publish("of-its-own", trainer="of-its-own")
    return made


@pytest.mark.parametrize("nodes", [1, 2])
def test_an_environment_is_built_once_and_by_the_nodes(folder: Any, index: Index, nodes: int) -> None:
    run_id = f"on-{nodes}"
    submitted = folder.submit(
        run_id,
        trainer="of-its-own",
        environment={"requirements": ["of-its-own"]},
        resources={"num_nodes": nodes, "cpus_per_node": 1, "env": index.environment},
    )
    assert submitted.returncode == 0, submitted.stderr
    assert folder.ended(run_id)["status"] == "succeeded", folder.log(run_id)
    assert "environment:" not in submitted.stderr
    logs = sorted((folder.run(run_id) / "logs").glob("rank-?.attempt-1.log"))
    assert len(logs) == nodes
    pythons = {log.read_text().splitlines()[0] for log in logs}
    assert len(pythons) == 1
    assert Path(pythons.pop()).is_relative_to(index.environment["HOSTCORE_ENVIRONMENTS_DIR"])
    assert folder.log(run_id).count("environment: building it") == 1
