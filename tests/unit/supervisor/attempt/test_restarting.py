"""Which failures are started again, and what becomes of the answer when that does not work."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from hostcore.runs.record import RunRecord
from hostcore.runs.result import RunResult
from hostcore.supervisor.attempt.lease_guard import RunTakenOver
from hostcore.supervisor.attempt.restarting import Restart, run_attempts
from hostcore.supervisor.opening import Opening, open_run
from hostcore.supervisor.plan import RunPlan
from hostcore_hookspecs.errors import HostcoreError, RunError


@pytest.fixture
def attempts(past: Any, plan: Callable[..., RunPlan]) -> Callable[..., tuple[RunResult, list[Restart | None]]]:
    """``attempts("failed", "succeeded", max_restarts=2)``: the attempts of a run end so, one after the other."""

    def run(
        *ends: str | HostcoreError, requested_by: str | None = None, because: str = "ValueError", **keys: Any
    ) -> Any:
        made = plan(**keys)
        left, restarts = list(ends), []

        def start(_: RunPlan, opening: Opening, restart: Restart | None) -> RunResult:
            restarts.append(restart)
            RunRecord(job=made.spec.to_json(), job_dir="/").write(made.directory.record)
            end = left.pop(0)
            if isinstance(end, HostcoreError):
                raise end
            error = RunError(type=because, message="bad") if end == "failed" else None
            result = past(made).result(end, attempt=opening.attempt)
            return attrs.evolve(result, error=error, requested_by=requested_by)

        opening = open_run(made)
        assert isinstance(opening, Opening)
        return run_attempts(made, opening, start), restarts

    return run


def test_a_failure_is_started_again_as_often_as_the_job_allows(attempts: Callable) -> None:
    result, restarts = attempts("failed", "failed", "failed", max_restarts=2)
    assert (result.status, result.attempt) == ("failed", 3)
    assert [restart and (restart.after.attempt, restart.wait_seconds) for restart in restarts] == [None, (1, 1), (2, 2)]
    assert restarts[1].message == "attempt 1 failed (ValueError: bad); started again"


@pytest.mark.parametrize("end", ["succeeded", "cancelled", "preempted"])
def test_no_other_end_is_started_again(attempts: Callable, end: str) -> None:
    result, restarts = attempts(end, max_restarts=2)
    assert (result.status, len(restarts)) == (end, 1)


def test_a_run_that_failed_while_it_was_asked_to_stop_is_not_started_again(attempts: Callable) -> None:
    result, restarts = attempts("failed", max_restarts=2, requested_by="user")
    assert (result.status, len(restarts)) == ("failed", 1)


def test_a_run_that_is_trained_and_not_delivered_is_not_trained_again(attempts: Callable) -> None:
    result, restarts = attempts("failed", max_restarts=2, because="NotDelivered")
    assert (result.status, len(restarts)) == ("failed", 1)


def test_an_attempt_knows_how_many_may_follow(past: Any, plan: Callable[..., RunPlan]) -> None:
    made, left = plan(max_restarts=2), []

    def start(of: RunPlan, opening: Opening, _: Restart | None) -> RunResult:
        left.append(of.restarts_left)
        RunRecord(job=made.spec.to_json(), job_dir="/").write(made.directory.record)
        result = past(made).result("failed", attempt=opening.attempt)
        return attrs.evolve(result, error=RunError(type="ValueError", message="bad"))

    opening = open_run(made)
    assert isinstance(opening, Opening)
    run_attempts(made, opening, start)
    assert left == [2, 1, 0]


def test_a_restart_that_is_refused_leaves_the_failure_as_the_end(attempts: Callable) -> None:
    result, _ = attempts("failed", HostcoreError("the weights are gone"), max_restarts=2)
    assert (result.status, result.error.message) == ("failed", "bad")
    assert result.error.hint == "it could not be started again: the weights are gone"


def test_a_run_that_was_taken_over_meanwhile_is_somebody_elses(attempts: Callable) -> None:
    with pytest.raises(RunTakenOver):
        attempts("failed", RunTakenOver("attempt 7 has taken it over"), max_restarts=2)
