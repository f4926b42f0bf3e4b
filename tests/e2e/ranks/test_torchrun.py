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
    where = (
        "--nnodes",
        "2",
        "--nproc-per-node",
        "1",
        "--master-addr",
        "127.0.0.1",
        "--master-port",
        str(free_ports(1)),
    )
    agents = [folder.torchrun(job, *where, "--node-rank", str(rank)) for rank in range(2)]
    return {"node": finish(node), "agents": [finish(agent) for agent in agents]}


class TestOneNode:
    def test_has_one_run_that_succeeds_for_both(self, ran: Mapping, folder: Any) -> None:
        assert ran["node"].code == 0, ran["node"].err
        result = folder.run("node").result
        assert (result["status"], result["step"], result["attempt"], result["metrics"]["total"]) == (
            *("succeeded", 20, 1),
            60.0,
        )
        assert ran["node"].out.count("succeeded  node") == 1

    def test_has_the_ranks_that_torchrun_started_and_no_more(self, ran: Mapping, folder: Any) -> None:
        assert folder.run("node").events[0]["devices"] == ["cpu", "cpu"]
        assert [f"hello from rank {rank} of 2" in folder.run("node").output(rank) for rank in range(2)] == [True, True]
        assert sorted(path.name for path in (folder.run("node").path / "logs").glob("rank-2*")) == []


class TestTwoAgents:
    def test_fail_both_when_a_rank_of_one_fails(self, ran: Mapping) -> None:
        assert [agent.code for agent in ran["agents"]] == [1, 1]

    def test_tell_the_failure_of_that_rank_once(self, ran: Mapping, folder: Any) -> None:
        error = folder.run("agents").result["error"]
        assert (error["type"], error["message"], error["rank"]) == ("ValueError", "rank 1 has exploded", 1)
        assert [agent.err.count("error: ValueError: rank 1 has exploded") for agent in ran["agents"]] == [1, 0]

    def test_leave_nothing_where_they_met(self, ran: Mapping, folder: Any) -> None:
        assert sorted(path.name for path in (folder.path / "runs").iterdir()) == ["agents", "node"]


def test_a_signal_to_one_supervisor_stops_the_ranks_of_both(folder: Any, finish: Callable) -> None:
    job = folder.job("stopped", **ALONE, max_steps=100_000, hyperparams={"seconds": 0.01})
    node = folder.torchrun(job, "--nproc-per-node", "2", "--standalone")
    os.kill(psutil.Process(folder.run("stopped").pids[1]).ppid(), signal.SIGTERM)
    assert finish(node).code != 0
    result = folder.run("stopped").result
    assert (result["status"], result["requested_by"]) == ("preempted", "signal:SIGTERM")
    assert (folder.run("stopped").path / "checkpoints" / f"step-{result['step']:06}.json").exists()
