"""When the other side is asked again: a few times soon, and then at growing intervals, as long as it asks for."""

import math
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from desk import Clock

from hostcore.supervisor.delivery.calls import Breaker, Intervals, QuickRetries, call_with_retries
from hostcore_hookspecs.errors import FatalError, TransientError


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(clock=clock)


def test_an_outage_is_probed_at_growing_intervals_up_to_half_a_minute(breaker: Breaker, clock: Clock) -> None:
    assert [breaker.admit() for _ in range(3)] == [0, 0, 0]
    waits = []
    begins = breaker.failed(OSError())
    for _ in range(8):
        waits.append(breaker.admit())
        clock.now += waits[-1]
        assert breaker.admit() == 0
        assert not breaker.failed(OSError()), "it is the same outage"
    assert begins
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]
    assert breaker.outage_seconds == sum(waits)
    breaker.hurry()
    assert breaker.admit() == 0
    breaker.failed(OSError())
    assert breaker.admit() == 1, "in a hurry it is soon tried again"
    assert breaker.succeeded()
    assert not breaker.succeeded()
    assert (breaker.admit(), breaker.outage_seconds) == (0, 0)


def test_a_single_caller_is_the_probe_and_another_one_if_it_hangs(breaker: Breaker, clock: Clock) -> None:
    breaker.failed(OSError())
    clock.now += 1
    ready = threading.Barrier(8)

    def ask() -> float:
        ready.wait()
        return breaker.admit()

    with ThreadPoolExecutor(8) as threads:
        answers = sorted(one.result() for one in [threads.submit(ask) for _ in range(8)])
    assert answers == [0, *[2.0] * 7]
    clock.now += 2
    assert breaker.admit() == 0


def test_what_fails_and_recovers_and_fails_again_is_asked_ever_less(breaker: Breaker, clock: Clock) -> None:
    waits = []
    for _ in range(4):
        assert breaker.failed(OSError())
        waits.append(breaker.admit())
        clock.now += waits[-1]
        assert breaker.succeeded()
    assert waits == [1, 2, 4, 8]
    clock.now += Intervals().steady_seconds
    breaker.failed(OSError())
    assert breaker.admit() == 1


@pytest.mark.parametrize(
    ("asked", "waits"), [(120, 120), (None, 1), (-5, 1), (math.nan, 1), (math.inf, 1), ("soon", 1)]
)
def test_the_other_side_is_left_alone_for_as_long_as_it_asks_if_that_is_a_time(
    breaker: Breaker, clock: Clock, asked: object, waits: int
) -> None:
    breaker.failed(TransientError("busy", retry_after_seconds=asked))  # type: ignore[arg-type]
    assert breaker.admit() == waits
    breaker.hurry()
    assert breaker.admit() == (waits if waits == asked else 0), "in a hurry as well"


@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (SystemExit(3), 3),
        (TransientError("busy", retry_after_seconds="5"), 3),  # type: ignore[arg-type]
        (FatalError("never"), 1),
        (TransientError("in an hour", retry_after_seconds=3600), 1),
    ],
    ids=repr,
)
def test_a_call_is_made_again_soon_unless_nothing_will_have_changed_and_its_last_error_is_raised(
    error: BaseException, calls: int
) -> None:
    made: list[str] = []

    def call(what: str) -> str:
        made.append(what)
        raise error

    with pytest.raises(type(error)) as raised:
        call_with_retries(call, "event", limits=QuickRetries(retries=2, seconds=10))
    assert raised.value is error
    assert made == ["event"] * calls


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
