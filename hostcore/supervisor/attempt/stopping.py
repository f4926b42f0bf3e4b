"""Making the workers stop: first by a request, then by a signal that kills.

Who may ask: signals, ``hostcore cancel``, and the limits of the job. The first counts. A worker that makes no progress
is not asked: it would not hear.
"""

import math
from collections.abc import Callable
from typing import Final

import attrs

from hostcore.runs.control import CancelRequest
from hostcore.supervisor.interrupts import Asked, Interrupts
from hostcore.supervisor.workers.session import WorkerSession

#: How long a worker that has written its end may take to leave. A plugin's thread could keep it running without end.
LEAVE_SECONDS: Final = 5.0
#: How long a stalled worker may take to write down where it stands, and die of it.
ABORT_SECONDS: Final = 5.0
_CANCEL_POLL_SECONDS: Final = 0.5


@attrs.frozen(kw_only=True)
class Limits:
    """What a job allows, in seconds; 0: no limit."""

    #: From a request to stop to the worker's end. A person at the keyboard may wait as long as they like.
    grace: float
    max_runtime: float = 0.0
    #: Without a finished step, or any other event, once training has begun.
    stall: float = 0.0


class Stopping:
    """Hears requests to stop, passes them on to all ranks, and kills them if one does not follow.

    :param read_cancel: The request of ``hostcore cancel``, once there is one.
    """

    def __init__(
        self,
        interrupts: Interrupts,
        limits: Limits,
        *,
        read_cancel: Callable[[], CancelRequest | None],
        clock: Callable[[], float],
    ) -> None:
        self._interrupts = interrupts
        self._limits = limits
        self._read_cancel = read_cancel
        self._clock = clock
        self._started = clock()
        self._told = False
        self._hurried = False
        self._forced = False
        self._cancel_poll_due = clock()
        self._kill_due: float | None = None
        self._leave_due: float | None = None
        self._signs_of_life: int | None = None
        self._alive_at = clock()
        #: The request that counts; None before the first.
        self.asked: Asked | None = None
        #: When that was, on the clock.
        self._asked_at = 0.0
        #: Why the worker was killed before it could write its end; None if it was not.
        self.killed: str | None = None
        #: Seconds without progress, when that is why it was killed.
        self.stalled: float | None = None

    def see_off(self, workers: WorkerSession, *, seconds: float = LEAVE_SECONDS) -> None:
        """They have written their ends, or one of them has failed: they may go, and have to.

        :param seconds: How long they may take, from the first call on.
        """
        if self._leave_due is None:
            self._leave_due = self._clock() + seconds
        elif self._clock() >= self._leave_due:
            workers.kill()

    def pass_on(self, workers: WorkerSession, *, released: bool) -> None:
        """Tell the workers that they are to stop; kill them when they are forced to, or their grace is over.

        :param released: True if the workers have been released to train.
        """
        self._listen()
        if self.killed:
            if self._kill_due is not None and self._clock() >= self._kill_due:
                workers.kill()  # what was only aborted
            return
        if self.asked is None:
            return
        if not self._told and released:
            self._told = True
            workers.send("stop", attrs.asdict(self.asked))
        if self._hurried and self._kill_due is None:
            self._kill_due = self._clock() + self._limits.grace
        if not released:
            self._kill(workers, f"{self.asked.reason} before the run had started")
        elif self._forced:
            by = "a second signal" if self._interrupts.forced else "force"
            self._kill(workers, f"{self.asked.reason}; killed by {by}")
        elif self._kill_due is not None and self._clock() >= self._kill_due:
            self._kill(workers, f"{self.asked.reason}; killed after {self._limits.grace:g} s")

    def asked_before_start(self) -> bool:
        """Whether there is no point in starting a worker any more."""
        self._listen()
        if self.asked is not None:
            self.killed = f"{self.asked.reason} before the run had started"
        return self.asked is not None

    def leave_by(self, since: float) -> float | None:
        """Until when an ended run may wait for its reporters and uploaders, on the clock; None: without a limit.

        A scheduler that has asked kills when the grace is over. A person who asks while the run waits means now; one
        who asks twice, at once: minus infinity.

        :param since: When it has begun to wait.
        """
        self._listen()
        if self._forced:
            return -math.inf
        if self.asked is None:
            return None
        if self._hurried:
            return self._asked_at + self._limits.grace
        return since + self._limits.grace if self._asked_at <= since else since

    def _listen(self) -> None:
        """Hear who has asked since the last time."""
        if self._interrupts.first is not None:
            self._ask(self._interrupts.first, hurried=self._interrupts.hurried, forced=self._interrupts.forced)
        if self._limits.max_runtime and self._clock() - self._started >= self._limits.max_runtime:
            reason = f"the {self._limits.max_runtime:g} s of max_runtime_seconds are over"
            self._ask(Asked(status="preempted", reason=reason, requested_by="host"), hurried=True)
        if self._clock() >= self._cancel_poll_due:
            self._cancel_poll_due = self._clock() + _CANCEL_POLL_SECONDS
            request = self._read_cancel()
            if request is not None:
                asked = Asked(status="cancelled", reason=request.reason, requested_by=request.requested_by)
                self._ask(asked, hurried=True, forced=request.force)

    def _ask(self, asked: Asked, *, hurried: bool, forced: bool = False) -> None:
        if self.asked is None:
            self.asked, self._asked_at = asked, self._clock()
        self._hurried = self._hurried or hurried
        self._forced = self._forced or forced

    def watch(self, workers: WorkerSession, signs_of_life: int) -> None:
        """Abort workers that make no progress. They write the tracebacks of their threads into their outputs, and die.

        :param signs_of_life: A number that grows with every event of the training.
        """
        if signs_of_life != self._signs_of_life:
            self._signs_of_life, self._alive_at = signs_of_life, self._clock()
        silent = self._clock() - self._alive_at
        if self._limits.stall and silent >= self._limits.stall and not self.killed:
            self.stalled, self.killed = silent, "stalled"
            self._kill_due = self._clock() + ABORT_SECONDS
            workers.abort()

    def _kill(self, workers: WorkerSession, reason: str) -> None:
        self.killed = reason
        workers.kill()
