"""The first retries: a few, soon, and not of what will not change."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from hostcore.supervisor.delivery.calls import QuickRetries, call_with_retries
from hostcore_hookspecs.errors import FatalError, TransientError

LIMITS = QuickRetries(retries=2, seconds=10)


def failing(*errors: BaseException) -> tuple[Callable[[str], str], list[str]]:
    """A call that raises these, one after the other, and then succeeds."""
    left, calls = list(errors), []

    def call(what: str) -> str:
        calls.append(what)
        if left:
            raise left.pop(0)
        return what.upper()

    return call, calls


def test_what_a_second_call_mends_is_no_failure() -> None:
    call, calls = failing(ConnectionResetError(), SystemExit(3))
    assert call_with_retries(call, "event", limits=LIMITS) == "EVENT"
    assert calls == ["event"] * 3


def test_the_last_error_is_raised_as_it_is() -> None:
    last = SystemExit(3)
    call, calls = failing(ValueError(), ValueError(), last)
    with pytest.raises(SystemExit) as raised:
        call_with_retries(call, "event", limits=LIMITS)
    assert raised.value is last
    assert len(calls) == 3


@pytest.mark.parametrize(
    "error",
    [FatalError("never"), TransientError("in an hour", retry_after_seconds=3600)],
    ids=["fatal", "asks for time"],
)
def test_what_will_not_change_so_soon_is_not_tried_again(error: Exception) -> None:
    call, calls = failing(error)
    with pytest.raises(type(error)):
        call_with_retries(call, "event", limits=LIMITS)
    assert len(calls) == 1


def test_a_time_to_wait_that_is_no_number_is_none() -> None:
    call, calls = failing(TransientError("busy", retry_after_seconds="5"))  # type: ignore[arg-type]
    assert call_with_retries(call, "event", limits=LIMITS) == "EVENT"
    assert len(calls) == 2


def test_without_retries_there_is_one_call() -> None:
    call, calls = failing(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        call_with_retries(call, "event", limits=QuickRetries(retries=0))
    assert len(calls) == 1


def test_retries_print_nothing() -> None:
    """stamina would tell of them through structlog or logging, which print where nobody has set them up."""
    program = """
from hostcore.supervisor.delivery.calls import QuickRetries, call_with_retries
left = [ValueError(), ValueError(), ValueError()]
def call():
    if left:
        raise left.pop()
call_with_retries(call, limits=QuickRetries())
assert not left
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
