"""The switch that everybody may use to stop a run."""

import os
import signal
import threading

import pytest

from hostcore.worker.stop import StopRequest, StopSwitch


def test_the_first_request_counts_and_all_are_heard_once() -> None:
    stop = StopSwitch()
    assert not stop.requested
    stop.request("enough", "callback:early-stopping")
    stop.request("now", "user", status="cancelled")
    assert stop.requested
    assert stop.first == StopRequest("succeeded", "enough", "callback:early-stopping")
    assert [request.reason for request in stop.unheard()] == ["enough", "now"]
    assert list(stop.unheard()) == []


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (signal.SIGINT, StopRequest("cancelled", "interrupted by the user", "user")),
        (signal.SIGTERM, StopRequest("preempted", "received SIGTERM", "signal:SIGTERM")),
        (signal.SIGUSR1, StopRequest("preempted", "received SIGUSR1", "signal:SIGUSR1")),
    ],
)
def test_a_signal_is_a_request(number: signal.Signals, expected: StopRequest) -> None:
    stop = StopSwitch()
    with stop.signals():
        os.kill(os.getpid(), number)
        assert stop.first == expected


def test_a_second_ctrl_c_interrupts() -> None:
    stop = StopSwitch()
    with stop.signals(), pytest.raises(KeyboardInterrupt):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
    assert stop.first.status == "cancelled"


def test_a_second_sigterm_does_not_interrupt() -> None:
    stop = StopSwitch()
    with stop.signals():
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
    assert stop.first.status == "preempted"


def test_the_handlers_from_before_come_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
    with StopSwitch().signals():
        pass
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)] == before


def test_a_wait_ends_when_somebody_asks_to_stop() -> None:
    stop = StopSwitch()
    timer = threading.Timer(0.05, stop.request, args=("enough", "user"))
    timer.start()
    stop.sleep(3600)
    timer.join()
    assert stop.requested


def test_a_wait_lasts_as_long_as_it_should_by_the_clock() -> None:
    times = iter([0.0, 0.0, 5.0, 9.9, 10.0])
    StopSwitch().sleep(10, clock=lambda: next(times))
    assert list(times) == []


def test_a_wait_after_a_request_ends_at_once() -> None:
    stop = StopSwitch()
    stop.request("enough", "user")
    stop.sleep(3600)
    assert stop.requested
