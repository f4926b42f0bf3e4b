"""Whether a KeyboardInterrupt came from a signal, and so from a person, or was raised by a plugin's own code.

Imports nothing heavy: the worker's entry installs its signal handlers before it imports anything else.
"""

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
