"""Stopping a run from outside: Ctrl-C once and twice, SIGTERM, and the death of the supervisor."""

import os
import signal
from collections.abc import Mapping
from typing import Any

import pytest

ENDS = {"run_succeeded", "run_failed", "run_cancelled", "run_preempted"}
SLOW = {"trainer": "small_trainer:Slow", "max_steps": 10**6, "metric_every": 1}
EARLY = {**SLOW, "trainer": "small_trainer:SlowStart"}
HANG = {"max_steps": 10, "hyperparams": {"how": "hang", "at": 3}}
JOBS = {"ctrl-c": SLOW, "sigterm": SLOW, "sigusr1": SLOW, "orphan": SLOW, "twice": HANG}


@pytest.fixture(scope="module")
def stopped(project, until) -> Mapping:
    """The finished commands, by what was done to them. They run beside each other."""
    started = {}
    for run_id, keys in JOBS.items():
        started[run_id] = project.start("run", project.job(f"{run_id}.json", run_id=run_id, **keys))
    for run_id in JOBS:
        until((project.path / f"{run_id}.pid").exists, f"the third step of {run_id}")
    started["ctrl-c"].signal(signal.SIGINT)
    started["sigterm"].signal(signal.SIGTERM)
    started["sigusr1"].signal(signal.SIGUSR1)
    started["orphan"].signal(signal.SIGKILL)
    started["twice"].signal(signal.SIGINT)
    until((project.path / "twice.canceled").exists, "the trainer to hear of the first Ctrl-C")
    started["twice"].signal(signal.SIGINT)
    started["early"] = project.start("run", project.job("early.json", run_id="early", **EARLY))
    until((project.run("early").path / "lease.json").exists, "the run to be opened")
    started["early"].signal(signal.SIGINT)
    return {run_id: command.end() for run_id, command in started.items()}


def go_on(project, run_id: str, max_steps: int) -> Any:
    """Go on with the copy of a run."""
    changes = ("--set", f"max_steps={max_steps}", "--set", f"run_id={run_id}-again")
    return project.command("run", project.path / f"{run_id}.json", *changes, "--json")


@pytest.fixture(scope="module")
def alone(stopped: Mapping, project, until) -> None:
    """The worker whose supervisor was killed has stopped by itself."""
    until(lambda: "run_preempted" in project.run("orphan").rank_log(), "the orphan to stop by itself")

    def gone() -> bool:
        try:
            os.kill(project.run("orphan").worker_pid, 0)
        except ProcessLookupError:
            return True
        return False

    until(gone, "the orphan's process to end")


@pytest.mark.parametrize(
    ("run_id", "code", "status", "reason", "by"),
    [
        ("ctrl-c", 130, "cancelled", "interrupted by the user", "user"),
        ("sigterm", 75, "preempted", "received SIGTERM", "signal:SIGTERM"),
        ("sigusr1", 75, "preempted", "received SIGUSR1", "signal:SIGUSR1"),
    ],
)
def test_a_run_that_is_asked_once_ends_with_a_checkpoint_and_with_who_asked_and_why(
    stopped: Mapping, project, run_id: str, code: int, status: str, reason: str, by: str
) -> None:
    said, run = stopped[run_id], project.run(run_id)
    result, names = run.result, run.names()
    assert (said.code, result["exit_code"], result["status"]) == (code, code, status)
    assert (result["reason"], result["requested_by"], result["error"]) == (reason, by, None)
    (request,) = [event for event in run.events if event["event"] == "stop_requested"]
    assert (request["reason"], request["requested_by"]) == (reason, by)
    checkpoint = f"checkpoints/step-{result['step']:06d}"
    assert result["final_checkpoint"] == checkpoint
    (saved,) = [event for event in run.events if event["event"] == "checkpoint_saved"]
    assert (saved["path"], saved["step"], saved["final"]) == (checkpoint, result["step"], False)
    assert (run.path / f"{checkpoint}.json").exists()
    assert [name for name in names if name in ENDS] == names[-1:]
    assert "Traceback" not in said.err
    assert said.out.startswith(status)
    assert_gone(run.worker_pid)


def test_a_worker_that_hangs_is_killed_by_a_second_signal(stopped: Mapping, project) -> None:
    run = project.run("twice")
    assert (stopped["twice"].code, run.result["status"], run.result["step"]) == (130, "cancelled", 0)
    assert run.result["requested_by"] == "user"
    assert run.result["reason"] == "interrupted by the user; killed by a second signal"
    assert [name for name in run.names() if name in ENDS] == ["run_cancelled"]
    assert_gone(run.worker_pid)


def assert_gone(pid: int) -> None:
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


class TestAWorkerWhoseSupervisorWasKilled:
    def test_writes_a_checkpoint_and_stops_by_itself(self, alone: None, project) -> None:
        log = project.run("orphan").rank_log()
        assert log.index("stop_requested") < log.index("checkpoint_saved") < log.index("run_preempted")
        assert "the supervisor is gone" in log
        assert list((project.run("orphan").path / "checkpoints").glob("step-*.json"))

    def test_leaves_a_run_that_is_lost_and_has_no_result(self, alone: None, project) -> None:
        assert not (project.run("orphan").path / "result.json").exists()
        status = project.command("status", "orphan", "--json").json
        assert (status["status"], status["ended_ms"]) == ("lost", None)

    def test_is_gone_on_with_and_its_last_events_are_in_the_log_once(self, alone: None, project) -> None:
        (record,) = (project.run("orphan").path / "checkpoints").glob("step-*.json")
        step = int(record.stem.removeprefix("step-"))
        run = project.copy("orphan", "orphan-again")
        again = go_on(project, "orphan", step + 5)
        assert (again.code, again.json["attempt"], again.json["step"]) == (0, 2, step + 5)
        assert [event["seq"] for event in run.events] == list(range(1, len(run.events) + 1))
        assert run.names(attempt=1)[-3:] == ["stop_requested", "checkpoint_saved", "run_preempted"]
        assert run.names(attempt=2)[:3] == ["run_submitted", "run_resumed", "run_started"]
        steps = [event["step"] for event in run.events if event["event"] == "metrics"]
        assert steps == list(range(1, step + 6)), "every step once, over the death of the supervisor"


def test_a_ctrl_c_while_the_worker_is_starting_is_a_cancelled_run(stopped: Mapping, project) -> None:
    assert stopped["early"].code == 130
    result = project.run("early").result
    assert (result["status"], result["requested_by"], result["step"]) == ("cancelled", "user", 0)
    names = project.run("early").names()
    assert (names[-1], "metrics" in names) == ("run_cancelled", False)


def test_what_was_stopped_goes_on_where_it_was_left(stopped: Mapping, project) -> None:
    before = project.run("ctrl-c").result["step"]
    run = project.copy("ctrl-c", "ctrl-c-again")
    again = go_on(project, "ctrl-c", before + 4)
    assert (again.code, again.json["status"], again.json["step"]) == (0, "succeeded", before + 4)
    assert list(run.metric()) == list(range(1, before + 5))
    whole = project.job("whole.json", run_id="whole", **{**SLOW, "max_steps": before + 4})
    assert project.command("run", whole).code == 0
    assert run.metric("noise") == project.run("whole").metric("noise")
    assert run.metric() == project.run("whole").metric()
