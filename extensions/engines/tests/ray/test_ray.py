"""Runs and launches on a real Ray cluster of two nodes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import ray_cluster
from engine_contract import EngineContract
from engine_runs import OVER, Engine, launch_context
from waiting import wait_until

from hostcore_engines.ray.launcher import RayLauncher
from hostcore_engines.ray.settings import RaySettings
from hostcore_hookspecs import FatalError, Secret

TOKEN = {"$secret": "env:CLUSTER_TOKEN"}


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    if ray_cluster.MISSING:
        pytest.skip(ray_cluster.MISSING)
    with ray_cluster.cluster(gpus=2) as ray, pytest.MonkeyPatch.context() as patch:
        ray.join()
        patch.setenv("CLUSTER_TOKEN", ray.token)
        yield ray


@pytest.fixture(scope="module")
def engine(ray: Any, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    launcher = RayLauncher(settings=RaySettings(address=ray.address, token=Secret(ray.token)))
    section = {"use": "ray", "address": ray.address, "token": TOKEN}
    return Engine(path=tmp_path_factory.mktemp("ray jobs"), launcher=launcher, section=section)


class TestEveryRun(EngineContract):
    TWO_NODES: ClassVar = {"cpus_per_node": 1}


def test_two_ranks_on_one_node_are_started_by_torchrun(engine: Engine) -> None:
    """Ray takes its word for GPUs."""
    run = engine.submit("pair", resources={"gpus_per_node": 2}, global_batch_size=2)
    run.until("succeeded")
    assert run.world_sizes == [2]


def test_a_run_that_ray_itself_stops_is_preempted(ray: Any, engine: Engine) -> None:
    run = engine.submit("taken", max_steps=100_000, hyperparams={"seconds": 0.05})
    run.trains()
    engine.launcher._api(ray.address).stop(run.handle.id)
    assert run.until("preempted").exit_code == 75


def test_a_launch_that_is_tried_again_finds_its_job_and_its_log_with_and_without_a_file(engine: Engine) -> None:
    launcher, run_dir = engine.launcher, engine.path / "by hand"
    run_dir.mkdir()
    code = "import sys; print('it runs'); sys.exit(3)"
    ctx = launch_context(run_dir, [sys.executable, "-c", code], launch_id=f"twice.{engine.path.stat().st_ino}")
    first = launcher.launch(ctx)
    assert launcher.launch(ctx) == first
    status = wait_until(lambda: (status := launcher.poll(first)).status in OVER and status, "the end of the job")
    assert (status.status, status.exit_code) == ("failed", 3)
    assert launcher.launch(ctx) == first, "also after its end"
    assert launcher.read_logs(first, "").text.count("it runs") == 1
    (run_dir / "logs" / "ray.0.log").unlink()
    from_ray = launcher.read_logs(first, "")
    assert "it runs" in from_ray.text
    assert launcher.read_logs(first, from_ray.next).text == ""


def test_a_wrong_token_and_none_are_refused_and_name_the_setting(
    ray: Any, engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refused = engine.submission("wrong", variables={"CLUSTER_TOKEN": "not-the-token-of-this-cluster-0123456789"})
    assert refused.code != 0
    assert "answered 403" in refused.err
    assert "/launcher/token" in refused.err
    assert not (engine.path / "runs" / "wrong").exists()
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(FatalError, match="answered 401") as caught:
        RayLauncher(settings=RaySettings(address=ray.address)).launch(launch_context(tmp_path))
    assert caught.value.pointer == "/launcher/token"
