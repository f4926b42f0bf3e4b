"""A job is resumed as whoever asks has seen it."""

from typing import Any

import pytest
from waiting import wait_until


@pytest.fixture
def opened(opened: Any) -> Any:
    """With a job ``a`` that has failed at its second launch, as it will at every other."""
    opened.job(launcher="refusing", status="failed", launches=2)
    return opened


def resumed(opened: Any, body: Any) -> tuple[int, int]:
    """What comes of it: the status, and how often the job was launched by then."""
    answer = opened.client.post("/v1/jobs/a:resume", json=body)
    return answer.status_code, answer.json().get("launches")


def test_what_was_launched_since_is_left_as_it_is(opened: Any) -> None:
    assert resumed(opened, {"launches": 1}) == (200, 2)
    assert opened.service.jobs.get("a").phase == "ended"


def test_the_same_request_sent_twice_launches_once_also_if_that_launch_has_ended(opened: Any) -> None:
    assert resumed(opened, {"launches": 2}) == (202, 3)
    wait_until(lambda: opened.service.jobs.get("a").phase == "ended", "that launch to end")
    assert resumed(opened, {"launches": 2}) == (200, 3)
