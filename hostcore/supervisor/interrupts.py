"""Signals that the supervisor gets: the first asks the run to stop, a second Ctrl-C forces it."""

import signal
import threading
from types import FrameType
from typing import Any, Final

import attrs

_MEANING: Final = {
    signal.SIGINT: ("cancelled", "interrupted by the user", "user"),
    signal.SIGTERM: ("preempted", "received SIGTERM", "signal:SIGTERM"),
    signal.SIGUSR1: ("preempted", "received SIGUSR1", "signal:SIGUSR1"),
    signal.SIGHUP: ("preempted", "the terminal was closed", "signal:SIGHUP"),
}


@attrs.frozen(kw_only=True)
class Asked:
    """What a signal asked for."""

    status: str
    reason: str
    requested_by: str


class Interrupts:
    """Notes signals while it is entered. Outside the main thread, where none can be had, it notes nothing."""

    def __init__(self) -> None:
        self.first: Asked | None = None
        #: Whether a Ctrl-C came after another request to stop.
        self.forced = False
        #: Whether a scheduler has asked, first or later: it will not wait.
        self.hurried = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            heard = [number for number in _MEANING if signal.getsignal(number) is not signal.SIG_IGN]  # nohup
            self._before = {number: signal.signal(number, self._note) for number in heard}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of a handler
        self.hurried = self.hurried or number != signal.SIGINT
        if self.first is None:
            status, reason, requested_by = _MEANING[signal.Signals(number)]
            self.first = Asked(status=status, reason=reason, requested_by=requested_by)
        elif number == signal.SIGINT:
            self.forced = True
