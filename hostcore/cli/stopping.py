"""Signals to a command whose run has not begun, or has ended."""

import atexit
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, NoReturn

from hostcore.cli.output import echo, print_json
from hostcore.interruption import Interruption, handle
from hostcore.runs.result import EXIT_CODES
from hostcore.supervisor.interrupts import Interrupts

_NOT_BEGUN: Final = "before the run had begun; nothing was started"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


@contextmanager
def stoppable_at_once(interrupts: Interrupts, *, as_json: bool, so_that: str = _NOT_BEGUN) -> Iterator[None]:
    """End the command at the first signal while it is entered, whatever a plugin is doing: nothing was made yet.

    :param interrupts: Entered; it handles later signals.
    :param so_that: The end of the message for the user.
    :raises SystemExit: With the exit code of a run that was asked so.
    """
    noted = {number: signal.getsignal(number) for number in _SIGNALS}
    noted = {number: handler for number, handler in noted.items() if getattr(handler, "__self__", None) is interrupts}
    for number, handler in noted.items():
        handle(number, _then_interrupt(handler))
    try:
        yield
    except KeyboardInterrupt:
        if interrupts.first is None:
            raise
    finally:
        for number, handler in noted.items():
            handle(number, handler)
    asked = interrupts.first
    if asked is None:
        return
    message = f"{asked.reason} {so_that}"
    if as_json:
        error = {"code": "run.not_started", "message": message, "pointer": None, "file": None, "hint": None}
        print_json({"errors": [error]})
    else:
        echo(message, err=True)
    sys.exit(EXIT_CODES[asked.status])


def _then_interrupt(note: Any) -> Callable[[int, FrameType | None], None]:
    def handler(number: int, frame: FrameType | None) -> None:
        note(number, frame)
        raise Interruption

    return handler


_handed_over: Final[list[signal.Signals]] = []


@atexit.register  # before any plugin registers its own, so it is called after them
def _ignore() -> None:
    # Python gives up its handlers a while before the process is gone, but leaves a signal that is ignored.
    for number in _handed_over:
        handle(number, signal.SIG_IGN)


def leave(interrupts: Interrupts, code: int) -> NoReturn:
    """End the process. A signal that comes now, while a plugin's threads are still busy, ends it at once.

    :param interrupts: Entered.
    :param code: The exit code that the run's end has recorded; it stays, whatever comes.
    """

    def at_once(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        os._exit(code)

    _handed_over.extend(interrupts.hand_over(at_once))
    sys.exit(code)
