"""Signals: handlers, names; and whether a KeyboardInterrupt came from one, and so from a person, or from a plugin.

Imports nothing heavy: the worker's entry installs its signal handlers before it imports anything else.
"""

import os
import signal
import threading
from typing import Any, Final

#: The host's handlers in place, by signal, each with the handler from before the host's first.
_installed: Final[dict[int, tuple[Any, Any]]] = {}
_forking: Final = threading.local()


class Interruption(KeyboardInterrupt):
    """Exception of the host's own signal handlers."""


def interrupt(*_: object) -> None:
    """Signal handler whose exception differs from those of plugins."""
    raise Interruption


def handle(number: int, handler: Any) -> Any:
    """Install a signal handler for this process alone: a forked child has the handler from before the host's first.

    A plugin may fork, and multiprocessing, a DataLoader or the plugin itself ends the child with a signal.

    :return: The handler that was replaced; installing it again takes this one away.
    """
    first = _installed[number][1] if number in _installed else signal.getsignal(number)
    if handler == first:
        _installed.pop(number, None)
    else:
        _installed[number] = (handler, first)
    return signal.signal(number, handler)


def _before_fork() -> None:
    # A signal to a child that still has the host's handlers would be lost: it waits until they are gone.
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, list(_installed))


def _after_fork() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _in_child() -> None:
    if _installed:
        signal.set_wakeup_fd(-1)  # the parent reads what is written there
    while _installed:
        number, (handler, first) = _installed.popitem()
        if signal.getsignal(number) == handler:  # else a plugin has set its own
            signal.signal(number, first)
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)


def is_by_signal(error: BaseException) -> bool:
    """Return whether an exception is a KeyboardInterrupt that a signal has caused.

    Any other KeyboardInterrupt is a failure of the code that raised it, as SystemExit is. Where Python's own handler of
    SIGINT is in place, the two cannot be distinguished, and a person is believed to have pressed Ctrl-C.
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
