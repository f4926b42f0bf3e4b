"""The threads that attend to jobs: so many at once, and none for ever."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from hostcore_service.store.job import StoredJob

#: So many threads that were given up, for each room, may be left over before no more jobs are attended to.
_MOST_LEFT_OVER: Final = 16


@attrs.define(eq=False)
class _Attendance:
    job: StoredJob
    #: Monotonic, in seconds.
    since: float
    given_up: bool = False


class Attendants:
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
        self._attendances: list[_Attendance] = []

    @property
    def free(self) -> int:
        """How many jobs may be given to them now."""
        with self._changed:
            busy = sum(not one.given_up for one in self._attendances)
            left_over = len(self._attendances) - busy
        return self._rooms - busy if left_over < self._rooms * _MOST_LEFT_OVER else 0

    @property
    def attended(self) -> Sequence[StoredJob]:
        """The jobs that threads are busy with, without those that were given up."""
        with self._changed:
            return [one.job for one in self._attendances if not one.given_up]

    def give(self, job: StoredJob, attend: Callable[[StoredJob], object]) -> None:
        """Have one attend to a job.

        :param attend: Raises nothing.
        """
        attendance = _Attendance(job, self._clock())
        with self._changed:
            self._attendances.append(attendance)
        name = f"attendant of {job.run_id}"
        try:
            threading.Thread(target=self._attend, args=(attendance, attend), name=name, daemon=True).start()
        except RuntimeError:  # this process may have no more threads; the job is claimed again after its lease
            with self._changed:
                self._attendances.remove(attendance)
            raise

    def _attend(self, attendance: _Attendance, attend: Callable[[StoredJob], object]) -> None:
        try:
            attend(attendance.job)
        finally:
            with self._changed:
                self._attendances.remove(attendance)
                self._changed.notify_all()
            self._when_free()

    def give_up(self) -> Sequence[StoredJob]:
        """Give up those that take too long; their jobs."""
        before = self._clock() - self._longest_seconds
        with self._changed:
            overdue = [one for one in self._attendances if not one.given_up and one.since < before]
            for one in overdue:
                one.given_up = True
        return [one.job for one in overdue]

    def finish(self, seconds: float) -> Sequence[StoredJob]:
        """Wait until all are free; the jobs of those that are not."""
        with self._changed:
            self._changed.wait_for(lambda: all(one.given_up for one in self._attendances), seconds)
        return self.attended
