"""Making a worker stop: politely first, then by force."""

from collections.abc import Callable
from typing import Final

import attrs

from hostcore.supervisor.interrupts import Interrupts
from hostcore.supervisor.spawn import Worker

#: How long a worker that has written its end may take to leave. A thread of a plugin's could keep it for ever.
LEAVE_SECONDS: Final = 5.0


class Stopping:
    """Passes on what signals asked for, and kills a worker that does not follow."""

    def __init__(self, interrupts: Interrupts, *, grace_seconds: float, clock: Callable[[], float]) -> None:
        self._interrupts = interrupts
        self._grace_seconds = grace_seconds
        self._clock = clock
        self._told = False
        self._kill_due: float | None = None
        self._leave_due: float | None = None
        #: Why the worker was killed before it could write its end; None if it was not.
        self.killed: str | None = None

    def see_off(self, worker: Worker) -> None:
        """The worker has written its end: it may go, and has to."""
        if self._leave_due is None:
            self._leave_due = self._clock() + LEAVE_SECONDS
        elif self._clock() >= self._leave_due:
            worker.kill()

    def pass_on(self, worker: Worker, *, submitted: bool) -> None:
        """Tell the worker of a signal; kill it at the second Ctrl-C, or when a scheduler's grace is over.

        :param submitted: Whether the worker has been told to go.
        """
        asked = self._interrupts.first
        if asked is None or self.killed:
            return
        if not self._told and submitted:
            self._told = True
            worker.channel.send("stop", attrs.asdict(asked))
        if self._interrupts.hurried and self._kill_due is None:
            # A person may wait as long as they like; a scheduler will not.
            self._kill_due = self._clock() + self._grace_seconds
        if not submitted:
            self._kill(worker, f"{asked.reason} before the run had started")
        elif self._interrupts.forced:
            self._kill(worker, "killed by a second Ctrl-C")
        elif self._kill_due is not None and self._clock() >= self._kill_due:
            self._kill(worker, f"{asked.reason}; killed after {self._grace_seconds:g} s")

    def _kill(self, worker: Worker, reason: str) -> None:
        self.killed = reason
        worker.kill()
