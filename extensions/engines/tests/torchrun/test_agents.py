"""Two agents of torchrun on this machine: a run of both, one that loses an agent, one that is cancelled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from curve_trainer import curve
from engine_contract import EngineContract
from engine_runs import Engine, EngineRun
from waiting import wait_until

from hostcore_builtin_plugins.processes import children, descendants, identity, kill_all, runs_here
from hostcore_engines.keeper.folder import LaunchFolder
from hostcore_engines.torchrun.launcher import TorchrunLauncher

#: Each sign of life of an agent makes another one that is about to join try again. Where they come more often than a
#: try takes, which is seconds on a busy machine, the two never meet: torchrun's own interval is 5 s. It waits 60 s for
#: the agent that serves the others.
PATIENT = {"keep_alive_interval": "30", "read_timeout": "300"}
#: The same rows in a step, whatever number of ranks is left.
TWO_AGENTS = {"resources": {"num_nodes": 2}, "global_batch_size": 2}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    path = tmp_path_factory.mktemp("two agents")
    engine = Engine(path=path, launcher=TorchrunLauncher(), section={"use": "torchrun", "rendezvous": PATIENT})
    yield engine
    engine.end_all()


class TestEveryRun(EngineContract):
    CANCELLED: ClassVar = {**TWO_AGENTS, "launcher": {"max_restarts": 3}}


def keeper_of(run: EngineRun, node: int) -> int:
    claimed = LaunchFolder.of(str(run.path), run.handle.id).claimed(node)
    assert claimed is not None
    return int(claimed["pid"])


def test_a_run_goes_on_from_its_checkpoint_when_an_agent_is_killed_with_its_workers(
    engine: Engine, tmp_path: Path
) -> None:
    # The second agent counts as lost after 20 s of silence. One that comes late joins the first, which has begun alone
    # after 20 s, in a new start. A fork of the tests' server, which has imported all that there is, would need seconds
    # for a try to join: these are interpreters of their own.
    rendezvous = {**PATIENT, "keep_alive_interval": "5", "keep_alive_max_attempt": "4", "last_call_timeout": "20"}
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    run = engine.submit(
        "lost",
        launcher={"min_nodes": 1, "rendezvous": rendezvous, "torchrun": torchrun},
        max_steps=100,
        checkpoint_every=10,
        hyperparams={"until": str(tmp_path / "killed")},
        **TWO_AGENTS,
    )
    saved = run.path / "checkpoints" / "step-000020.json"
    wait_until(
        lambda: run.world_sizes[-1:] == [2] and saved.exists(),
        "both agents, and the checkpoint of step 20",
        found=lambda: run.log,
    )
    kill_all(keeper_of(run, 1))
    assert run.poll().status == "running"
    (tmp_path / "killed").touch()
    run.until("succeeded")
    last = run.events("run_started")[-1]["attempt"]
    assert (run.result["attempt"], run.result["step"]) == (last, 100)
    assert run.world_sizes[-2:] == [2, 1]
    resumed = run.events("run_resumed")[-1]["step"]
    assert resumed >= 20
    assert list(run.losses(last)) == list(range(resumed + 1, 101))
    losses: dict[int, float] = {}
    for attempt in range(1, last + 1):
        losses |= run.losses(attempt)
    assert [losses[step] for step in range(1, 101)] == pytest.approx(curve(100))


def processes(known: list[dict[str, Any]]) -> str:
    """Those of them that run, with their commands and parents."""
    pids = [str(one["pid"]) for one in known if runs_here(one)]
    return subprocess.run(
        ["ps", "-o", "pid,ppid,stat,wchan:20,args", "-p", ",".join(pids)], capture_output=True, text=True, check=False
    ).stdout


def test_an_agent_that_is_killed_takes_its_ranks_with_it(engine: Engine) -> None:
    run = engine.submit("orphaned", max_steps=100_000, hyperparams={"seconds": 0.05}, **TWO_AGENTS)
    run.trains()
    (agent,) = children(keeper_of(run, 1))
    below = [identity(pid) for pid in descendants(agent)]
    assert below
    os.kill(agent, signal.SIGKILL)
    wait_until(lambda: not any(map(runs_here, below)), "the ranks to be gone", found=lambda: processes(below))
    run.until("failed")
