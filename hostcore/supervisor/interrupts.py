"""Signals that the supervisor gets: the first asks the run to stop, a second forces it."""

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import attrs

from hostcore.interruption import handle

_MEANING: Final = {
    signal.SIGINT: ("cancelled", "interrupted by the user", "user"),
    signal.SIGTERM: ("preempted", "received SIGTERM", "signal:SIGTERM"),
    signal.SIGUSR1: ("preempted", "received SIGUSR1", "signal:SIGUSR1"),
    signal.SIGHUP: ("preempted", "the terminal was closed", "signal:SIGHUP"),
}

#: A scheduler may deliver one signal twice, to a process and through its parent.
_SAME_SECONDS: Final = 2.0


@attrs.frozen(kw_only=True)
class Asked:
    """A request to stop."""

    #: The status that the run ends with.
    status: str
    reason: str
    requested_by: str


class Interrupts:
    """Notes signals while it is entered. Outside the main thread, where none can be had, it notes nothing."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.first: Asked | None = None
        #: Whether a signal came a second time, or a Ctrl-C after any other. A scheduler that warns (SIGUSR1) and later
        #: asks (SIGTERM) forces nothing.
        self.forced = False
        #: Whether a scheduler has asked, first or later: it will not wait.
        self.hurried = False
        #: Whether another process of the run has passed on a Ctrl-C.
        self._cancelled_elsewhere = False
        #: When each signal came first.
        self._seen: dict[int, float] = {}
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            heard = [number for number in _MEANING if signal.getsignal(number) is not signal.SIG_IGN]  # nohup
            self._before = {number: handle(number, self._note) for number in heard}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            handle(number, handler)

    def hear(self, asked: Asked, *, hurried: bool, forced: bool) -> None:
        """Take in what was asked of another process that belongs to the run."""
        self._cancelled_elsewhere = self._cancelled_elsewhere or asked.status == "cancelled"
        self.first = self.first or asked
        self.hurried = self.hurried or hurried
        self.forced = self.forced or forced

    def hand_over(self, handler: Callable[[int, FrameType | None], None]) -> list[signal.Signals]:
        """Have another handler get the signals from now on, also after the exit of this.

        :return: The signals.
        """
        heard = list(self._before)
        for number in heard:
            handle(number, handler)
        self._before = {}
        return heard

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of a handler
        now = self._clock()
        self.hurried = self.hurried or number != signal.SIGINT
        if self.first is None:
            status, reason, requested_by = _MEANING[signal.Signals(number)]
            self.first = Asked(status=status, reason=reason, requested_by=requested_by)
        elif number == signal.SIGINT and self._cancelled_elsewhere and number not in self._seen:
            pass  # an engine that interrupts all ranks of a run interrupts it once, whatever order the ranks get it in
        elif number == signal.SIGINT or now - self._seen.get(number, now) > _SAME_SECONDS:
            self.forced = True
        self._seen.setdefault(number, now)
