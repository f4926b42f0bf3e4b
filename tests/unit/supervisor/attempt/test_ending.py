"""The end of an attempt, as its events have it."""

from typing import Any

import pytest

from hostcore.supervisor.attempt.ending import failing_for
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import RunError


@pytest.mark.parametrize("end", [events.RunCancelled(reason="asked"), events.RunPreempted(reason="asked")])
def test_only_a_success_becomes_a_failure_by_what_was_not_delivered(end: Any) -> None:
    error = RunError(type="NotDelivered", message="no")
    assert failing_for(events.RunSucceeded(), error) == events.RunFailed(error=error)
    assert failing_for(events.RunSucceeded(), None) == events.RunSucceeded()
    assert failing_for(end, error) is end
