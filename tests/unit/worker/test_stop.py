"""The switch that everybody may use to stop a run."""

import ctypes
import os
import signal
import threading
import time

import pytest

from hostcore.worker.stop import EndRequest, StopSwitch, noted_by


def test_the_first_request_counts_and_all_are_heard_once() -> None:
    stop = StopSwitch()
    assert not stop.requested
    stop.request("enough", "callback:early-stopping")
    stop.request("now", "user", status="cancelled")
    assert stop.requested
    assert stop.first == EndRequest("succeeded", "enough", "callback:early-stopping")
    assert [request.reason for request in stop.unheard()] == ["enough", "now"]
    assert list(stop.unheard()) == []


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (signal.SIGINT, EndRequest("cancelled", "interrupted by the user", "user")),
        (signal.SIGTERM, EndRequest("preempted", "received SIGTERM", "signal:SIGTERM")),
        (signal.SIGUSR1, EndRequest("preempted", "received SIGUSR1", "signal:SIGUSR1")),
    ],
)
def test_a_signal_is_a_request(number: signal.Signals, expected: EndRequest) -> None:
    stop = StopSwitch()
    with noted_by(stop):
        os.kill(os.getpid(), number)
        assert stop.first == expected
        if number == signal.SIGINT:  # the second one interrupts
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), number)
        else:
            os.kill(os.getpid(), number)
    assert stop.first == expected


def test_a_signal_is_noted_while_native_code_keeps_python_from_running_handlers() -> None:
    stop = StopSwitch()
    native, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)  # all zeros: an unlocked mutex
    noted = []

    def send_and_look() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        end = time.monotonic() + 60
        while not stop.requested and time.monotonic() < end:
            time.sleep(0.001)
        noted.append(stop.first)
        native.pthread_mutex_unlock(mutex)

    with noted_by(stop):
        native.pthread_mutex_lock(mutex)
        other = threading.Thread(target=send_and_look)
        other.start()
        native.pthread_mutex_lock(mutex)  # waits for the other thread, and no signal interrupts it
        other.join()
    assert noted == [EndRequest("preempted", "received SIGTERM", "signal:SIGTERM")]
    assert [request.reason for request in stop.unheard()] == ["received SIGTERM"]


def test_a_signal_to_a_forked_child_is_the_childs_own() -> None:
    stop = StopSwitch()
    reader, writer = os.pipe()
    with noted_by(stop):
        child = os.fork()
        if child == 0:
            os.write(writer, b"here")
            signal.pause()
        os.read(reader, 4)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
    assert not stop.requested


def test_a_forked_child_that_lives_on_holds_nobody_up() -> None:
    reader, writer = os.pipe()
    with noted_by(StopSwitch()):
        child = os.fork()
        if child == 0:
            os.read(reader, 1)
            os._exit(0)
    os.write(writer, b"x")  # the context was left while the child lived
    assert os.waitpid(child, 0)[1] == 0


def test_a_wait_lasts_as_long_as_it_should_by_the_clock() -> None:
    times = iter([0.0, 0.0, 5.0, 9.9, 10.0])
    StopSwitch().sleep(10, clock=lambda: next(times))
    assert list(times) == []
