"""Two ranks that the supervisor starts: however one of them ends, the run has one honest end, and nobody is left."""

import json
import signal
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from waiting import wait_until

ENDS = {"run_succeeded", "run_failed", "run_cancelled", "run_preempted"}
SLOW = {"max_steps": 10**6, "hyperparams": {"seconds": 0.01}}


@pytest.fixture(scope="module")
def ran(folder: Any, finish: Callable) -> Mapping[str, Any]:
    """Commands that need nobody to do anything to them, beside each other."""
    jobs = {
        "trained": folder.job("trained", metric_every=5),
        "raised": folder.job("raised", hyperparams={"fails": True}),
        "killed": folder.job("killed", callbacks=[{"use": "chaos", "faults": ["kill@step=7"]}]),
    }
    started = {name: folder.hostcore("run", job) for name, job in jobs.items()}
    return {name: finish(process) for name, process in started.items()}


class TestARunOnTwoRanks:
    def test_succeeds(self, ran: Mapping, folder: Any) -> None:
        assert (ran["trained"].code, ran["trained"].err) == (0, "")
        result = folder.run("trained").result
        assert (result["status"], result["step"], result["metrics"]["total"]) == ("succeeded", 20, 60.0)

    def test_is_told_by_rank_0_and_names_all_devices(self, ran: Mapping, folder: Any) -> None:
        events = folder.run("trained").events
        assert events[0]["devices"] == ["cpu", "cpu"]
        assert next(event for event in events if event["event"] == "run_started")["world_size"] == 2
        assert {event["src"][0] for event in events if event["src"]} == {0}
        assert [event["event"] for event in folder.run("trained").of_rank(1)] == ["run_succeeded"]
        record = json.loads((folder.run("trained").path / "config" / "run.json").read_text())
        assert record["world_size"] == 2
        assert record["environment"]["threads"] >= 1

    def test_has_a_file_for_what_each_rank_prints(self, ran: Mapping, folder: Any, finish: Callable) -> None:
        for rank in range(2):
            printed = folder.run("trained").output(rank)
            assert f"hello from rank {rank} of 2\n" in printed
            assert f"a word on standard error of rank {rank}\n" in printed
        assert "hello" not in ran["trained"].out
        shown = finish(folder.hostcore("logs", "trained", "--output", "--rank", "1"))
        assert (shown.code, shown.out) == (0, folder.run("trained").output(1))

    def test_is_verified_and_shown_with_its_ranks(self, ran: Mapping, folder: Any, finish: Callable) -> None:
        verified, status = finish(folder.hostcore("verify", "trained")), finish(folder.hostcore("status", "trained"))
        assert (verified.code, verified.err) == (0, "")
        assert "devices     2 ranks: cpu, cpu" in status.out


def test_a_rank_that_raises_is_the_one_that_is_told_and_takes_the_other_one_along(ran: Mapping, folder: Any) -> None:
    error = folder.run("raised").result["error"]
    assert (error["type"], error["message"], error["rank"]) == ("ValueError", "rank 1 has exploded", 1)
    assert "pair_trainer:Trainer" in error["plugin"]
    assert error == folder.run("raised").events[-1]["error"]
    assert [name for name in folder.run("raised").names if name in ENDS] == ["run_failed"]
    assert ran["raised"].code == 1
    assert ran["raised"].err.count("Traceback") == 1
    assert "error: ValueError: rank 1 has exploded (in pair_trainer:Trainer, on rank 1)" in ran["raised"].err
    assert "gloo" not in ran["raised"].err


def test_a_rank_that_is_killed_is_told_though_it_said_nothing_and_ends_the_run_once(ran: Mapping, folder: Any) -> None:
    error = folder.run("killed").result["error"]
    assert (ran["killed"].code, error["type"], error["rank"]) == (1, "WorkerDied", 0)
    assert error["message"].startswith("the worker of rank 0 was killed by SIGKILL after step ")
    assert [name for name in folder.run("killed").names if name in ENDS] == ["run_failed"]


def test_stopping_ends_all_ranks_at_one_step_with_a_checkpoint_and_leaves_nobody(
    folder: Any, finish: Callable, gone: Callable
) -> None:
    """Two slow runs, one ended by a signal, one by a command."""
    started = {name: folder.hostcore("run", folder.job(name, **SLOW)) for name in ("signalled", "cancelled")}
    pids = [pid for name in started for pid in folder.run(name).pids]
    started["signalled"].send_signal(signal.SIGTERM)
    assert finish(folder.hostcore("cancel", "cancelled")).code == 0
    for name, code, status in (("signalled", 75, "preempted"), ("cancelled", 130, "cancelled")):
        run, said = folder.run(name), finish(started[name])
        assert (said.code, run.result["status"]) == (code, status)
        assert run.result["final_checkpoint"] == f"checkpoints/step-{run.result['step']:06d}"
        assert [run.of_rank(rank)[-1]["event"] for rank in range(2)] == [f"run_{status}"] * 2
        assert {run.of_rank(rank)[-1]["step"] for rank in range(2)} == {run.result["step"]}
        assert [one for one in run.names if one in ENDS] == [f"run_{status}"]
    assert gone(pids)


def test_no_rank_outlives_a_supervisor_that_is_killed(folder: Any, gone: Callable) -> None:
    supervisor = folder.hostcore("run", folder.job("orphaned", **SLOW))
    pids = folder.run("orphaned").pids
    supervisor.kill()
    supervisor.wait()
    wait_until(lambda: gone(pids), "the end of both workers")
    assert not (folder.run("orphaned").path / "result.json").exists()


def test_devices_that_cannot_be_had_are_one_error_and_a_valid_job_is_shown_with_its_ranks(
    folder: Any, finish: Callable
) -> None:
    commands = {
        "gpus": (["run", "--devices", "cuda:7,cuda:8"], "there is no device 'cuda:", "/devices"),
        "unclear": (["run", "--devices", "cuda, cuda"], "does not say which GPU is meant", "cuda:0, cuda:1"),
        "in-process": (["run", "--in-process"], "has one rank, and the job asks for 2: cpu, cpu", "/devices"),
        "valid": (["validate"], "2 ranks: cpu, cpu; fp32", ""),
    }
    started = {name: folder.hostcore(*command, folder.job(name)) for name, (command, *_) in commands.items()}
    for name, (_, words, where) in commands.items():
        said = finish(started[name])
        assert said.code == (0 if name == "valid" else 2)
        assert words in said.out + said.err
        assert where in said.err
        assert said.err.count("error:") == (name != "valid")
        assert "Traceback" not in said.err
        assert not folder.run(name).path.exists()
