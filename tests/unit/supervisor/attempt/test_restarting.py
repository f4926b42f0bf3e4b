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
def attempts(past: Any, plan: Callable[..., RunPlan]) -> Callable[..., tuple[RunResult, list[int]]]:
    """``attempts("failed", "succeeded", max_restarts=2)``: the attempts of a run end so, one after the other."""

    def run(
        *ends: str | HostcoreError, requested_by: str | None = None, because: str = "ValueError", **keys: Any
    ) -> Any:
        made = plan(**keys)
        left, may_follow = list(ends), []

        def start(of: RunPlan, opening: Opening, _: Restart | None) -> RunResult:
            may_follow.append(of.restarts_left)
            RunRecord(job=made.spec.to_json(), job_dir="/").write(made.directory.record)
            end = left.pop(0)
            if isinstance(end, HostcoreError):
                raise end
            error = RunError(type=because, message="bad") if end == "failed" else None
            result = past(made).result(end, attempt=opening.attempt)
            return attrs.evolve(result, error=error, requested_by=requested_by)

        opening = open_run(made)
        assert isinstance(opening, Opening)
        return run_attempts(made, opening, start), may_follow

    return run


@pytest.mark.parametrize(
    ("end", "why"),
    [
        ("succeeded", {}),
        ("cancelled", {}),
        ("preempted", {}),
        ("failed", {"requested_by": "user"}),  # it was asked to stop
        ("failed", {"because": "NotDelivered"}),  # it is trained
    ],
)
def test_what_is_no_failure_of_the_training_is_not_started_again(
    attempts: Callable, end: str, why: dict[str, str]
) -> None:
    result, begun = attempts(end, max_restarts=2, **why)
    assert (result.status, len(begun)) == (end, 1)


def test_an_attempt_knows_how_many_may_follow(attempts: Callable) -> None:
    result, left = attempts("failed", "failed", "failed", max_restarts=2)
    assert (result.status, left) == ("failed", [2, 1, 0])


def test_a_restart_that_is_refused_leaves_the_failure_as_the_end(attempts: Callable) -> None:
    result, _ = attempts("failed", HostcoreError("the weights are gone"), max_restarts=2)
    assert (result.status, result.error.message) == ("failed", "bad")
    assert result.error.hint == "it could not be started again: the weights are gone"


def test_a_run_that_was_taken_over_meanwhile_is_somebody_elses(attempts: Callable) -> None:
    with pytest.raises(RunTakenOver):
        attempts("failed", RunTakenOver("attempt 7 has taken it over"), max_restarts=2)
