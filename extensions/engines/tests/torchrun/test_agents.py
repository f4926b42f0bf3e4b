"""Two agents of torchrun on this machine: a run of both, one that loses an agent, one that is cancelled."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from fork_server import ran
from waiting import wait_until

from hostcore_builtin_plugins.processes import children, descendants, identity, kill_all, runs_here
from hostcore_engines.keeper.folder import LaunchFolder
from hostcore_engines.torchrun.launcher import TorchrunLauncher
from hostcore_hookspecs import LaunchHandle

TRAINER = Path(__file__).parents[1] / "curve_trainer.py"
OVER = ("succeeded", "failed", "cancelled", "preempted", "lost")
#: What one torchrun would have taken from another, and what changes where the runs go.
NOT_PASSED_ON = ("HOSTCORE_", "TORCHELASTIC_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "OMP_NUM_THREADS")


@attrs.frozen
class Run:
    """A run that was submitted."""

    path: Path

    @property
    def handle(self) -> LaunchHandle:
        return LaunchHandle(**json.loads((self.path / "config" / "launch.json").read_text())["handle"])

    @property
    def folder(self) -> LaunchFolder:
        return LaunchFolder.of(str(self.path), self.handle.id)

    @property
    def result(self) -> Mapping[str, Any]:
        return json.loads((self.path / "result.json").read_text())

    @property
    def events(self) -> list[dict[str, Any]]:
        file = self.path / "logs" / "events.jsonl"
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]  # the last may be being written

    @property
    def log(self) -> str:
        """What all nodes have printed: rank 0 may be on any of them."""
        return "".join(log.read_text() for log in sorted((self.path / "logs").glob("torchrun.*.log")))

    def has_saved(self, step: int) -> bool:
        return (self.path / "checkpoints" / f"step-{step:06}.json").exists()

    @property
    def world_sizes(self) -> list[int]:
        """Of the attempts that have begun to train."""
        return [event["world_size"] for event in self.events if event["event"] == "run_started"]

    def losses(self, attempt: int) -> dict[int, float]:
        """What an attempt has recorded of each of its steps."""
        told = [event for event in self.events if event["event"] == "metrics" and event["attempt"] == attempt]
        return {event["step"]: event["metrics"]["train/loss"] for event in told}

    def ended(self) -> Any:
        launcher = TorchrunLauncher()
        try:
            return wait_until(
                lambda: (status := launcher.poll(self.handle)).status in OVER and status, f"the end of {self.path.name}"
            )
        except AssertionError:
            print(self.log)
            raise


@pytest.fixture(scope="module")
def submit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Run]]:
    """``submit("run", max_steps=5)``: a run of two agents, submitted by the installed command."""
    folder = tmp_path_factory.mktemp("two agents")
    shutil.copy(TRAINER, folder)
    runs: list[Run] = []

    def make(run_id: str, *, settings: Mapping[str, Any] | None = None, **keys: Any) -> Run:
        job = {
            "trainer": "curve_trainer:Trainer",
            "run_id": run_id,
            "max_steps": 20,
            "metric_every": 1,
            "terminal": False,
            "device": "cpu",
            # The same rows in a step, whatever number of ranks is left.
            "global_batch_size": 2,
            "launcher": {"use": "torchrun", **(settings or {})},
            "resources": {"num_nodes": 2},
            **keys,
        }
        (folder / f"{run_id}.json").write_text(json.dumps(job))
        environment = {name: value for name, value in os.environ.items() if not name.startswith(NOT_PASSED_ON)}
        done = ran(["run", f"{run_id}.json", "--detach"], cwd=folder, env=environment, text=True)
        assert done.returncode == 0, done.stderr
        runs.append(Run(folder / "runs" / run_id))
        return runs[-1]

    yield make
    for run in runs:
        TorchrunLauncher().cancel(run.handle, 0.0)


@pytest.fixture(scope="module")
def curve() -> Callable[[int], list[float]]:
    """The losses that there must be."""
    spec = importlib.util.spec_from_file_location("curve_of_the_agents", TRAINER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.curve


def test_two_agents_have_one_run_of_two_ranks(submit: Callable, curve: Callable) -> None:
    run = submit("both")
    assert run.ended().status == "succeeded"
    assert run.world_sizes == [2]
    assert list(run.losses(1).values()) == pytest.approx(curve(20))
    assert "succeeded  both" in TorchrunLauncher().read_logs(run.handle, "").text


def test_a_run_goes_on_from_its_checkpoint_when_an_agent_is_killed_with_its_workers(
    submit: Callable, curve: Callable, tmp_path: Path
) -> None:
    # An agent that is starved must not count as lost: torchrun itself waits 15 s for a silent agent, and 30 s for
    # another in its place. A second agent that comes later joins the first, which has begun alone, in a new start.
    quick = {"keep_alive_interval": "1", "keep_alive_max_attempt": "15", "last_call_timeout": "40"}
    run = submit(
        "lost",
        settings={"min_nodes": 1, "rendezvous": quick},
        max_steps=100,
        checkpoint_every=10,
        hyperparams={"until": str(tmp_path / "killed")},
    )
    wait_until(lambda: run.world_sizes[-1:] == [2] and run.has_saved(20), "both agents, and the checkpoint of step 20")
    begun = len(run.world_sizes)
    kill_all(run.folder.claimed(1)["pid"])
    assert TorchrunLauncher().poll(run.handle).status == "running"
    (tmp_path / "killed").touch()
    assert run.ended().status == "succeeded", run.log
    assert (run.result["attempt"], run.result["step"]) == (begun + 1, 100)
    assert run.world_sizes[-2:] == [2, 1]
    resumed = [event["step"] for event in run.events if event["event"] == "run_resumed"][-1]
    assert resumed >= 20
    assert list(run.losses(begun + 1)) == list(range(resumed + 1, 101))
    losses: dict[int, float] = {}
    for attempt in range(1, begun + 2):
        losses |= run.losses(attempt)
    assert [losses[step] for step in range(1, 101)] == pytest.approx(curve(100))


def test_a_run_is_cancelled_with_a_checkpoint_and_its_ranks_are_not_started_again(submit: Callable) -> None:
    run = submit("stopped", settings={"max_restarts": 3}, max_steps=100_000, hyperparams={"seconds": 0.05})
    wait_until(lambda: run.losses(1), "the first steps")
    TorchrunLauncher().cancel(run.handle, 300.0)
    status = TorchrunLauncher().poll(run.handle)
    assert (status.status, status.exit_code) == ("cancelled", 130)
    assert (run.result["attempt"], run.has_saved(run.result["step"])) == (1, True)


def processes(known: list[dict[str, Any]]) -> str:
    """Those of them that run, with their commands and parents."""
    pids = [str(one["pid"]) for one in known if runs_here(one)]
    return subprocess.run(
        ["ps", "-o", "pid,ppid,stat,wchan:20,args", "-p", ",".join(pids)], capture_output=True, text=True, check=False
    ).stdout


def test_an_agent_that_is_killed_takes_its_ranks_with_it(submit: Callable) -> None:
    run = submit("orphaned", max_steps=100_000, hyperparams={"seconds": 0.05})
    wait_until(lambda: run.losses(1), "the first steps")
    (agent,) = children(run.folder.claimed(1)["pid"])
    below = [identity(pid) for pid in descendants(agent)]
    assert below
    os.kill(agent, signal.SIGKILL)
    wait_until(lambda: not any(map(runs_here, below)), "the ranks to be gone", found=lambda: processes(below))
    assert run.ended().status == "failed", run.log
