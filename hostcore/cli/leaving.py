"""The end of a process whose run has ended: a signal changes nothing about its exit code any more."""

import atexit
import os
import signal
import sys
from types import FrameType
from typing import Final, NoReturn

from hostcore.supervisor.interrupts import Interrupts

_handed_over: Final[list[signal.Signals]] = []


@atexit.register  # before any plugin registers its own, so it is called after them
def _ignore() -> None:
    # Python gives up its handlers a while before the process is gone, but leaves a signal that is ignored.
    for number in _handed_over:
        signal.signal(number, signal.SIG_IGN)


def leave(interrupts: Interrupts, code: int) -> NoReturn:
    """End the process. A signal that comes now, while a plugin's threads are still busy, ends it at once.

    :param interrupts: Entered.
    :param code: The exit code that the run's end has recorded; it stays, whatever comes.
    """

    def at_once(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        os._exit(code)

    _handed_over.extend(interrupts.hand_over(at_once))
    sys.exit(code)
