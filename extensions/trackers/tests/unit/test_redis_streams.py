"""What needs no server; ``extensions/trackers/tests/e2e`` has the rest, with a real one."""

from collections.abc import Callable
from typing import Any

import pytest

from hostcore_hookspecs import Secret, TransientError
from hostcore_hookspecs.events import EpochStarted
from hostcore_trackers.redis_streams import RedisStreamsReporter


def test_a_server_that_is_not_there_is_transient_and_no_secret_is_told(course: Callable[..., Any]) -> None:
    run = course()
    settings = RedisStreamsReporter.Settings(url="redis://127.0.0.1:9/0", username="me", password=Secret("hidden"))
    reporter = RedisStreamsReporter(settings=settings)
    reporter.open(run.ctx())
    with pytest.raises(TransientError, match="redis stream hostcore:flights-1: ") as caught:
        reporter.report_event(run.tell(EpochStarted()))
    reporter.close()
    assert "hidden" not in f"{caught.value.message} {settings!r}"
