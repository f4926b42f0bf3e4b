"""Ranks that torchrun has started, on one node and as two agents."""

import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

import psutil
import pytest
from ports import free_ports

ALONE = {"device": "cpu"}  # one device: that there are two ranks is torchrun's doing


@pytest.fixture(scope="module")
def ran(folder: Any, finish: Callable) -> Mapping[str, Any]:
    """A run of one torchrun; and one of two, whose rank 1 fails."""
    node = folder.torchrun(folder.job("node", **ALONE), "--nproc-per-node", "2", "--standalone")
    job = folder.job("agents", hyperparams={"fails": True}, **ALONE)
    meeting = ("--master-addr", "127.0.0.1", "--master-port", str(free_ports(1)))
    where = ("--nnodes", "2", "--nproc-per-node", "1", *meeting)
    agents = [folder.torchrun(job, *where, "--node-rank", str(rank)) for rank in range(2)]
    return {"node": finish(node), "agents": [finish(agent) for agent in agents]}


def test_one_node_has_one_run_that_succeeds_for_both_of_the_ranks_that_torchrun_started(
    ran: Mapping, folder: Any
) -> None:
    assert ran["node"].code == 0, ran["node"].err
    run = folder.run("node")
    assert (run.result["status"], run.result["step"], run.result["attempt"]) == ("succeeded", 20, 1)
    assert run.result["metrics"]["total"] == 60.0
    assert ran["node"].out.count("succeeded  node") == 1
    assert run.events[0]["devices"] == ["cpu", "cpu"]
    assert [f"hello from rank {rank} of 2" in run.output(rank) for rank in range(2)] == [True, True]
    assert sorted(path.name for path in (run.path / "logs").glob("rank-2*")) == []


def test_two_agents_fail_when_a_rank_of_one_fails_and_leave_nothing_where_they_met(ran: Mapping, folder: Any) -> None:
    assert [agent.code for agent in ran["agents"]] == [1, 1]
    error = folder.run("agents").result["error"]
    assert (error["type"], error["message"], error["rank"]) == ("ValueError", "rank 1 has exploded", 1)
    assert [agent.err.count("error: ValueError: rank 1 has exploded") for agent in ran["agents"]] == [1, 0]
    assert sorted(path.name for path in (folder.path / "runs").iterdir()) == ["agents", "node"]


def test_a_signal_to_one_supervisor_stops_the_ranks_of_both(folder: Any, finish: Callable) -> None:
    job = folder.job("stopped", **ALONE, max_steps=100_000, hyperparams={"seconds": 0.01})
    node = folder.torchrun(job, "--nproc-per-node", "2", "--standalone")
    os.kill(psutil.Process(folder.run("stopped").pids[1]).ppid(), signal.SIGTERM)
    assert finish(node).code != 0
    result = folder.run("stopped").result
    assert (result["status"], result["requested_by"]) == ("preempted", "signal:SIGTERM")
    assert (folder.run("stopped").path / "checkpoints" / f"step-{result['step']:06}.json").exists()
