"""The same sweep wherever its trials run: on this machine, at a service, on agents, a real Slurm, Kubernetes.

Elsewhere, its driver is killed on the way. A trial at another engine is a run of it, started in the same way.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_emulator
import pytest
import slurm_cluster
from command_line import COMMAND
from fork_server import popen
from waiting import wait_until

SWEEP = {
    "pruner": {"use": "asha", "min_steps": 4},
    "limits": {"trials": 3, "parallel": 2},
}


@pytest.fixture(scope="module")
def here(make_place: Any, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    """What becomes of the trials on this machine."""
    place = make_place.make(tmp_path_factory.mktemp("here") / "place")
    place.job(hyperparams={"seconds": 0.05})
    place.sweep(**SWEEP)
    said = place.hostcore("sweep", "sweep.json")
    assert said.code == 0, said.err
    trials: list[tuple[Any, ...]] = place.trials()
    return trials


def swept_by_two_drivers(place: Any, *words: str) -> None:
    """Kill the driver once a trial has reported something, and have another go on."""
    records = place.path / "sweeps" / "walk" / "records.jsonl"
    first = place.start("sweep", "sweep.json", *words)
    wait_until(lambda: records.exists() and b"trial_reported" in records.read_bytes(), "a report")
    first.kill()
    first.wait()
    said = place.hostcore("sweep", "sweep.json", *words)
    assert said.code == 0, said.err


@pytest.fixture
def service(place: Any, tmp_path: Path, site: Any) -> Iterator[str]:
    """The URL of a service that has the trainer installed."""
    source = (place.path / "quadratic.py").read_text()
    trainers = {"hostcore.trainers": {"quadratic": "quadratic:Trainer"}}
    site.install("quadratic-trainer", modules={"quadratic.py": source}, entry_points=trainers)
    folder = tmp_path / "service"
    folder.mkdir()
    environment = {name: value for name, value in site.environment.items() if not name.startswith("HOSTCORE_")}
    process = popen(
        [COMMAND, "serve", "--port", "0", "--insecure-no-auth"],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=(folder / "serve.log").open("wb"),
        text=True,
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    assert first, (folder / "serve.log").read_text()
    yield first.split()[-1]
    process.terminate()
    process.wait(300)


def test_trials_at_a_service_are_its_jobs(here: list[tuple[Any, ...]], place: Any, service: str) -> None:
    place.job(trainer="quadratic", hyperparams={"seconds": 0.05})
    place.sweep(**SWEEP)
    swept_by_two_drivers(place, "--server", service)
    assert place.trials() == here
    assert not (place.path / "runs").exists()
    listed = place.hostcore("list", "--server", service, "--json").json["runs"]
    assert {run["run_id"] for run in listed} == {trial[1] for trial in here}


@pytest.fixture(scope="module")
def slurm() -> Iterator[Any]:
    """A Slurm of two nodes."""
    if slurm_cluster.MISSING:
        pytest.skip(slurm_cluster.MISSING)
    with slurm_cluster.cluster() as one, pytest.MonkeyPatch.context() as patch:
        for name in ("SLURM_CONF", "PATH"):
            patch.setenv(name, one.environment[name])
        yield one


@pytest.mark.usefixtures("slurm")
def test_trials_on_slurm_come_to_the_same(here: list[tuple[Any, ...]], place: Any) -> None:
    place.job(hyperparams={"seconds": 0.05}, launcher="slurm")
    place.sweep(**SWEEP)
    swept_by_two_drivers(place)
    assert place.trials() == here
    for run_id in place.run_ids():
        launch = json.loads((place.path / "runs" / run_id / "config" / "launch.json").read_text())
        assert launch["handle"]["launcher"].endswith("slurm")


def test_trials_of_two_agents_of_torchrun_come_to_as_much(here: list[tuple[Any, ...]], place: Any) -> None:
    launcher = {"use": "torchrun", "rendezvous": {"keep_alive_interval": "30"}}  # on a busy machine, agents meet slowly
    place.job(hyperparams={"seconds": 0.05}, launcher=launcher, resources={"num_nodes": 2}, mock_batches=[1, 1])
    place.sweep(**SWEEP)
    swept_by_two_drivers(place)
    # The losses are means over two ranks, which draw apart.
    assert [(*trial[:4], trial[5]) for trial in place.trials()] == [(*trial[:4], trial[5]) for trial in here]
    for run_id in place.run_ids():
        events = (place.path / "runs" / run_id / "logs" / "events.jsonl").read_text().splitlines()
        started = [event for event in map(json.loads, events) if event["event"] == "run_started"]
        assert {event["world_size"] for event in started} == {2}


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[Any]:
    """An emulated Kubernetes, whose pods really train, here."""
    with kubernetes_emulator.cluster(tmp_path / "cluster") as one:
        yield one


def test_trials_on_kubernetes_that_are_seen_in_their_mirror_come_to_the_same(
    here: list[tuple[Any, ...]], place: Any, kubernetes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(place.path))  # what the image has
    launcher = {"use": "kubernetes-pytorchjob", "kubeconfig": str(kubernetes.kubeconfig), "image": "registry/trainer:1"}
    mirror = f"file://{place.path}/mirror"
    place.job(hyperparams={"seconds": 0.05}, launcher=launcher, checkpoint_base_uri=mirror)
    place.sweep(**SWEEP)
    swept_by_two_drivers(place)
    assert place.trials() == here
    assert sorted(one["metadata"]["name"] for one in kubernetes.objects("pytorchjobs")) == place.run_ids()
