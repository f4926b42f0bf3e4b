"""When the other side is asked again, and what of it is told."""

import math
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from desk import Clock

from hostcore.supervisor.delivery.calls import Breaker, Intervals
from hostcore_hookspecs.errors import TransientError


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(clock=clock)


def test_while_all_is_well_everybody_is_admitted(breaker: Breaker) -> None:
    assert [breaker.admit() for _ in range(3)] == [0, 0, 0]
    assert not breaker.succeeded()
    assert not breaker.is_open


def test_an_outage_is_probed_at_growing_intervals_up_to_half_a_minute(breaker: Breaker, clock: Clock) -> None:
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


def test_the_other_side_is_left_alone_for_as_long_as_it_asks(breaker: Breaker, clock: Clock) -> None:
    breaker.failed(TransientError("busy", retry_after_seconds=120))
    assert breaker.admit() == 120
    clock.now += 119
    breaker.hurry()
    assert breaker.admit() == 1


@pytest.mark.parametrize("asked", [None, -5, math.nan, math.inf, "soon"])
def test_what_is_no_time_to_wait_is_passed_over(breaker: Breaker, asked: object) -> None:
    breaker.failed(TransientError("busy", retry_after_seconds=asked))  # type: ignore[arg-type]
    assert breaker.admit() == 1


def test_in_a_hurry_it_is_tried_now_and_soon_again(breaker: Breaker, clock: Clock) -> None:
    for _ in range(6):
        breaker.failed(OSError())
    assert breaker.admit() == 30
    breaker.hurry()
    assert breaker.admit() == 0
    breaker.failed(OSError())
    assert breaker.admit() == 1
    assert clock.now == 1000


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
