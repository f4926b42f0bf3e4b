"""The threads that call launchers: a bounded number, each for a bounded time."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from hostcore_service.store.job import StoredJob

#: So many threads that were given up, for each room, may be left over before no more are started.
_MOST_LEFT_OVER: Final = 16


@attrs.define(eq=False)
class _LauncherCall:
    job: StoredJob
    #: Monotonic, in seconds.
    since: float
    given_up: bool = False


class LauncherPool:
    """Threads that call launchers.

    One that does not come back is given up: its room is free again, and the lease of its job is not renewed. It cannot
    be killed, but it does not keep the process from ending.

    :param rooms: How many may be busy.
    :param longest_seconds: How long one may take before it is given up.
    :param when_free: Called when one is free again.
    """

    def __init__(
        self,
        rooms: int,
        *,
        longest_seconds: float,
        when_free: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rooms = rooms
        self._longest_seconds = longest_seconds
        self._when_free = when_free
        self._clock = clock
        self._changed = threading.Condition()
        self._calls: list[_LauncherCall] = []

    @property
    def free(self) -> int:
        """Number of launches that can start now."""
        with self._changed:
            busy = sum(not one.given_up for one in self._calls)
            left_over = len(self._calls) - busy
        return self._rooms - busy if left_over < self._rooms * _MOST_LEFT_OVER else 0

    @property
    def jobs(self) -> Sequence[StoredJob]:
        """The jobs that threads are busy with, without those that were given up."""
        with self._changed:
            return [one.job for one in self._calls if not one.given_up]

    def start(self, job: StoredJob, handle: Callable[[StoredJob], object]) -> None:
        """Handle a job in a thread.

        :param handle: Raises nothing.
        """
        call = _LauncherCall(job, self._clock())
        with self._changed:
            self._calls.append(call)
        name = f"launcher of {job.run_id}"
        try:
            threading.Thread(target=self._run, args=(call, handle), name=name, daemon=True).start()
        except RuntimeError:  # this process may have no more threads; the job is claimed again after its lease
            with self._changed:
                self._calls.remove(call)
            raise

    def _run(self, call: _LauncherCall, handle: Callable[[StoredJob], object]) -> None:
        try:
            handle(call.job)
        finally:
            with self._changed:
                self._calls.remove(call)
                self._changed.notify_all()
            self._when_free()

    def give_up(self) -> Sequence[StoredJob]:
        """Give up those that take too long; their jobs."""
        before = self._clock() - self._longest_seconds
        with self._changed:
            overdue = [one for one in self._calls if not one.given_up and one.since < before]
            for one in overdue:
                one.given_up = True
        return [one.job for one in overdue]

    def finish(self, seconds: float) -> Sequence[StoredJob]:
        """Wait until all are free; the jobs of those that are not."""
        with self._changed:
            self._changed.wait_for(lambda: all(one.given_up for one in self._calls), seconds)
        return self.jobs
