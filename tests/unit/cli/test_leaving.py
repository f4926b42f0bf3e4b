"""Signals to a process whose run has ended."""

import signal
import subprocess
import sys
from contextlib import suppress

import pytest

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP]
SCRIPT = """
import os, signal, sys, threading
from hostcore.cli.stopping import leave
from hostcore.supervisor.interrupts import Interrupts
{before}
with Interrupts() as interrupts:
    leave(interrupts, 7)
"""
BUSY = """
def forever():
    threading.main_thread().join()  # Python is on its way out, and waits for this thread
    print("leaving", flush=True)
    threading.Event().wait()

threading.Thread(target=forever).start()
"""
#: Called when the interpreter takes its modules apart, long after its own handlers have gone.
LAST_MOMENT = """
class Last:
    def __del__(self, kill=os.kill, pid=os.getpid(), number={number}):
        print("last moment", flush=True)
        kill(pid, number)

last = Last()
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_thread_that_a_plugin_has_left_does_not_hold_it(number: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT.format(before=BUSY)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == "leaving\n"
        while process.poll() is None:  # Python misses a signal that comes right when it begins to wait for the thread
            process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
        assert process.returncode == 7


@pytest.mark.parametrize("number", SIGNALS)
def test_its_exit_code_stays_until_the_last_moment(number: signal.Signals) -> None:
    script = SCRIPT.format(before=LAST_MOMENT.format(number=int(number)))
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout) == (7, "last moment\n")
