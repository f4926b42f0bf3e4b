"""A KeyboardInterrupt of a signal is told from one that a plugin raises."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hostcore.interruption import Interruption, handle, interrupt, is_by_signal, signal_name


@pytest.fixture
def own_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, interrupt)
    yield
    signal.signal(signal.SIGINT, before)


def test_with_a_handler_of_the_hosts_every_other_keyboard_interrupt_is_a_plugins(own_handler: None) -> None:
    with pytest.raises(Interruption) as caught:
        signal.raise_signal(signal.SIGINT)
    assert is_by_signal(caught.value)
    for other in (KeyboardInterrupt(), ValueError(), SystemExit(), GeneratorExit()):
        assert not is_by_signal(other)
    assert [signal_name(number) for number in (9, 40)] == ["SIGKILL", "signal 40"]


def test_with_pythons_own_handler_it_is_taken_for_a_ctrl_c() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert is_by_signal(KeyboardInterrupt())
        with ThreadPoolExecutor(1) as thread:  # signals are handled in the main thread alone
            assert not thread.submit(is_by_signal, KeyboardInterrupt()).result()
    finally:
        signal.signal(signal.SIGINT, before)


#: The child gets the signal before anything of the host's runs in it.
AT_THE_FORK = """
import os, signal
os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))
from hostcore.supervisor.interrupts import Interrupts
from hostcore.worker.stop import StopSwitch, noted_by
stop = StopSwitch()
with Interrupts() as interrupts, noted_by(stop):
    child = os.fork()
    if child == 0:
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(code, stop.requested, interrupts.first, signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""


def test_a_signal_in_the_moment_of_a_fork_is_the_childs() -> None:
    said = subprocess.run([sys.executable, "-c", AT_THE_FORK], capture_output=True, text=True, check=True)
    assert said.stdout == f"{-signal.SIGTERM} False None set()\n"


def test_a_forked_child_keeps_the_handlers_that_a_plugin_has_set() -> None:
    before = handle(signal.SIGUSR1, interrupt)
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(3))
    try:
        if (child := os.fork()) == 0:
            signal.raise_signal(signal.SIGUSR1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    finally:
        handle(signal.SIGUSR1, before)
