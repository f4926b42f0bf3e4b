"""Signals: their names; and whether a KeyboardInterrupt came from one, and so from a person, or from a plugin's code.

Imports nothing heavy: the worker's entry installs its signal handlers before it imports anything else.
"""

import os
import signal
import threading


class Interruption(KeyboardInterrupt):
    """What the host's own signal handlers raise."""


def interrupt(*_: object) -> None:
    """A handler of signals, which tells them from what a plugin raises."""
    raise Interruption


def is_by_signal(error: BaseException) -> bool:
    """Whether an exception is a KeyboardInterrupt that a signal has caused.

    Any other KeyboardInterrupt is a failure of the code that raised it, as SystemExit is. Where Python's own handler of
    SIGINT is in place, the two cannot be told apart, and a person is believed to have pressed Ctrl-C.
    """
    if not isinstance(error, KeyboardInterrupt):
        return False
    if isinstance(error, Interruption):
        return True
    in_main_thread = threading.current_thread() is threading.main_thread()  # handlers run there alone
    return in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def signal_name(number: int) -> str:
    """``SIGKILL``; a real-time signal has a number only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def end_session() -> None:
    """End this process and everything of its session at once."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)  # it was started by hand, and has no session of its own
