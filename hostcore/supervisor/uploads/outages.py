"""The failures of one uploader: what is told of them, and how long they are waited for."""

import time
from collections.abc import Callable, Iterable

import attrs

from hostcore.supervisor.delivery.breaker import Breaker
from hostcore.supervisor.uploads.patience import Limits
from hostcore.supervisor.uploads.schedule import Task
from hostcore.supervisor.uploads.tally import Tally
from hostcore.supervisor.uploads.unit import UnitFile
from hostcore_hookspecs.errors import TransientError


@attrs.define(eq=False)
class Call:
    """A call of the uploader that is going on."""

    method: str
    since: float
    #: How long it may take, in seconds.
    limit: float
    #: How many artifacts had arrived when it began.
    arrived_before: int
    #: Whether it is the one try of an outage.
    is_probe: bool
    task: Task | None = None
    file: UnitFile | None = None
    #: Whether it was told that it hangs; a lost one is not waited for either.
    told: bool = False
    lost: bool = False


class Outages:
    """Tells an outage from an artifact that fails by itself, and each of them once."""

    def __init__(self, tally: Tally, limits: Limits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.breaker = Breaker(limits.intervals, clock=clock)
        self._intervals = limits.intervals
        self._tally = tally
        self._clock = clock
        self._count = 0
        self._is_told = False

    def put_back(self, call: Call, task: Task, file: UnitFile, error: BaseException, why: str) -> None:
        """Have a file tried again. While others get through, it alone has to wait."""
        failures = task.failures.get(file.relative_path, 0) + 1
        task.failures[file.relative_path] = failures
        pause = min(self._intervals.first_seconds * 2 ** min(failures - 1, 16), self._intervals.most_seconds)
        task.put_back(file, until=self._clock() + pause)
        alone = self._tally.files > call.arrived_before
        asked = isinstance(error, TransientError) and bool(error.retry_after_seconds)
        if call.is_probe or (not self.breaker.is_open and (asked or not alone)):
            # An artifact that fails by itself, again and again, is no news each time.
            self._count += self.breaker.failed(error) and task.told_in is None
        task.problem = why
        if task.told_in != self._count:
            task.told_in = self._count
            self._is_told = self._is_told or self.breaker.is_open
            self._tally.report(task.unit.name, why, will_retry=True)

    def note_useless(self, error: BaseException, why: str) -> None:
        """The uploader itself has failed, not with an artifact."""
        if self.breaker.failed(error) or not self._is_told:
            self._count += 1
            self._is_told = True
            self._tally.report("", why, will_retry=True)

    def note_success(self, tasks: Iterable[Task]) -> None:
        """A call has succeeded; an outage is over with that.

        :param tasks: Those that are not done: nothing of them waits any more.
        """
        if not self.breaker.succeeded() and not self._is_told:
            return
        tasks = list(tasks)
        if self._is_told:
            left = sum(len(task.remaining) for task in tasks)
            message = f"{self._tally.label} works again; files to catch up with: {left}"
            self._tally.warn("uploader.recovered", message)
        self._is_told = False
        for task in tasks:
            task.not_before.clear()
