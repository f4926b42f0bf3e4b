"""What ends a run besides signals: its time, a stall, the death of its supervisor; and what starts it again."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import hostcore
from hostcore.runs.result import RunResult

ENDS = {"run_succeeded", "run_failed", "run_cancelled", "run_preempted"}
SLOW = {"trainer": "small_trainer:Slow", "max_steps": 10**6, "metric_every": 1}
TIMED = {**SLOW, "run_id": "time", "device": "cpu", "terminal": False, "max_runtime_seconds": 5}


def hang(at: int, **keys: Any) -> dict[str, Any]:
    return {"max_steps": 10, "checkpoint_every": 1, "hyperparams": {"how": "hang", "at": at}, **keys}


#: Their supervisors are killed.
ORPHANS = {"hanging": hang(3), "training": SLOW}
JOBS = {
    **ORPHANS,
    "early": {**SLOW, "trainer": "small_trainer:SlowStart", "max_runtime_seconds": 0.05},
    "deaf": hang(3, grace_seconds=0.5),
    "stall": hang(3, stall_seconds=6),
    "restarts": {
        **SLOW,
        "max_steps": 6,
        "checkpoint_every": 1,
        "callbacks": ["small_trainer:FailOnce"],
        "max_restarts": 2,
    },
    "hopeless": {"max_steps": 10, "hyperparams": {"how": "exit", "at": 5}, "checkpoint_every": 2, "max_restarts": 1},
}


@pytest.fixture(scope="module")
def over(here: Path) -> list[RunResult]:
    """What becomes of a run here whose time is over."""
    return []


@pytest.fixture(scope="module")
def ended(project, until, over: list[RunResult]) -> Mapping:
    """The finished commands. They run beside each other, and beside a run in this process."""
    started = {
        run_id: project.start("run", project.job(f"{run_id}.json", run_id=run_id, **keys))
        for run_id, keys in JOBS.items()
    }
    until((project.path / "deaf.pid").exists, "the third step of the run that will not hear")
    until(lambda: project.run("deaf").rank_log().count('"checkpoint_saved"') == 2, "its second checkpoint")
    started["deaf"].signal(signal.SIGTERM)
    for run_id in ORPHANS:
        until((project.path / f"{run_id}.pid").exists, f"the third step of {run_id}")
        started[run_id].signal(signal.SIGKILL)
    # In this process, once torch is there: how long a worker takes to start depends on what else runs.
    hostcore.run({**TIMED, "run_id": "before", "max_steps": 1, "max_runtime_seconds": 0})
    over.append(hostcore.run(TIMED))
    return {run_id: command.end() for run_id, command in started.items()}


@pytest.mark.parametrize("run_id", [run_id for run_id in JOBS if run_id not in ORPHANS])
def test_every_attempt_has_one_terminal_event(ended: Mapping, project, run_id: str) -> None:
    run = project.run(run_id)
    for attempt in range(1, run.result["attempt"] + 1):
        assert len([name for name in run.names(attempt=attempt) if name in ENDS]) == 1
    assert run.names()[-1] in ENDS


def test_a_run_whose_time_is_over_is_preempted_with_a_checkpoint_and_goes_on_where_it_was(
    ended: Mapping, over: list[RunResult]
) -> None:
    (first,) = over
    assert (first.exit_code, first.status, first.requested_by) == (75, "preempted", "host")
    assert first.reason == "the 5 s of max_runtime_seconds are over"
    assert first.final_checkpoint == f"checkpoints/step-{first.step:06d}"
    again = hostcore.run({**TIMED, "max_steps": first.step + 3})
    assert (again.status, again.step, again.attempt) == ("succeeded", first.step + 3, 2)


def test_a_run_whose_time_is_over_while_it_is_starting_is_preempted_too(ended: Mapping, project) -> None:
    result = project.run("early").result
    assert (ended["early"].code, result["status"], result["step"]) == (75, "preempted", 0)


def test_a_worker_that_does_not_hear_is_killed_after_its_grace(ended: Mapping, project) -> None:
    result = project.run("deaf").result
    assert (ended["deaf"].code, result["status"], result["step"]) == (75, "preempted", 2)
    assert result["reason"] == "received SIGTERM; killed after 0.5 s"
    assert result["final_checkpoint"] in ("checkpoints/step-000001", "checkpoints/step-000002")
    with pytest.raises(ProcessLookupError):
        os.kill(project.run("deaf").worker_pid, 0)


def test_a_stalled_worker_is_killed_and_a_failure_that_says_where_it_stood(ended: Mapping, project) -> None:
    result = project.run("stall").result
    assert (ended["stall"].code, result["status"], result["error"]["type"]) == (1, "failed", "Stalled")
    assert "did not get beyond step 2" in result["error"]["message"]
    assert "stall_seconds" in result["error"]["hint"]
    assert "in _misbehave" in result["error"]["traceback"]
    with pytest.raises(ProcessLookupError):
        os.kill(project.run("stall").worker_pid, 0)


class TestAFailedRunWithRestarts:
    def test_goes_on_from_its_newest_checkpoint(self, ended: Mapping, project) -> None:
        run = project.run("restarts")
        assert ended["restarts"].code == 0
        assert (run.result["status"], run.result["attempt"], run.result["step"]) == ("succeeded", 2, 6)
        assert run.names(attempt=1)[-1] == "run_failed"
        (notice,) = [event for event in run.events if event.get("code") == "run.restarted"]
        assert "attempt 1 failed (RuntimeError: only once)" in notice["message"]

    def test_has_failed_when_they_are_used_up(self, ended: Mapping, project) -> None:
        run = project.run("hopeless")
        assert (ended["hopeless"].code, run.result["status"], run.result["attempt"]) == (1, "failed", 2)
        assert [name for name in run.names() if name in ENDS] == ["run_failed", "run_failed"]
        assert "run_resumed" in run.names(attempt=2)


@pytest.mark.parametrize("run_id", ORPHANS)
def test_a_worker_whose_supervisor_was_killed_is_gone_soon(ended: Mapping, project, until, run_id: str) -> None:
    worker = project.run(run_id).worker_pid

    def gone() -> bool:
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return True
        return False

    until(gone, "the worker to end")  # 5 seconds are promised; benchmarks/ has the figure
    assert list((project.run(run_id).path / "checkpoints").glob("step-*.json"))
