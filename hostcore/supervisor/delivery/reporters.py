"""All reporters of an attempt, as the supervisor's loop sees them: it announces, takes news, and never waits."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from hostcore.events.merger import LogLine
from hostcore.runs.directory import RunDirectory
from hostcore.supervisor.delivery.cursor import Cursor, CursorFile, LogView
from hostcore.supervisor.delivery.events_source import EventLimits, EventSource
from hostcore.supervisor.delivery.subscriber import Subscriber
from hostcore.supervisor.delivery.subscription import ReporterSubscription
from hostcore_hookspecs import events
from hostcore_hookspecs.reporter import ReporterContext

#: How long those that are not in a call may take to leave when they are abandoned.
_LEAVE_SECONDS: Final = 1.0


@attrs.frozen(kw_only=True)
class Undelivered:
    """A reporter that was not told everything, or could not keep it."""

    label: str
    #: As ``hostcore replay --reporter`` takes it.
    name: str
    #: Why, in one line.
    message: str
    #: Events that it has not taken, and could be told later.
    events: int


class Reporters:
    """Tells every reporter every event of the log, each at its own pace.

    :param reporters: May be none.
    :param clock: Seconds, from anywhere; decides when something is tried again, and what counts as a hang.
    """

    def __init__(
        self,
        reporters: Sequence[ReporterSubscription],
        directory: RunDirectory,
        *,
        limits: EventLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reporters = list(reporters)
        self._directory = directory
        self._limits = limits or EventLimits()
        self._clock = clock
        self._log = LogView(directory.events)
        self._news: deque[events.Payload] = deque()
        self._workers: list[Subscriber[EventSource]] = []

    def start(self, ctx: ReporterContext) -> None:
        """Start a thread for each reporter. To be called before the attempt's first event is written.

        :raises OSError: When the folder of cursors cannot be made.
        """
        if not self._reporters:
            return
        self._directory.cursors.mkdir(exist_ok=True)
        self._workers = [self._worker(one, ctx) for one in self._reporters]
        for worker in self._workers:
            worker.start(worker.source.context(ctx))

    def announce(self, lines: Sequence[LogLine] = ()) -> None:
        """The log has grown. Never waits.

        :param lines: The newest; empty if they are not known.
        """
        self._log.note(lines)
        for worker in self._workers:
            worker.source.grow()

    def news(self) -> list[events.Payload]:
        """What the log should have of reporters that fail, hang or work again, since the last call."""
        for worker in self._workers:
            worker.poll()
        found = []
        while self._news:
            found.append(self._news.popleft())
        return found

    @property
    def taken(self) -> int:
        """How many events were taken in this attempt, by all reporters together: while it grows, there is progress."""
        return sum(worker.source.count for worker in self._workers)

    def missing(self) -> list[str]:
        """The labels of the required reporters that have given up, or have not taken all that is in the log now."""
        size = self._log.size
        return [
            worker.subscription.label
            for worker in self._workers
            if worker.subscription.required
            and (worker.source.refused is not None or worker.source.cursor.offset < size)
        ]

    def is_settled(self) -> bool:
        """Whether waiting changes nothing: each required reporter has taken all that is in the log, or has given up."""
        size = self._log.size
        return all(
            worker.source.refused is not None or worker.source.cursor.offset >= size
            for worker in self._workers
            if worker.subscription.required
        )

    def hurry(self) -> None:
        """The run waits for them: what is in an outage is tried now, and then at short intervals."""
        for worker in self._workers:
            worker.hurry()

    def finish(self) -> None:
        """No more events will come: each reporter is told what is left, soon, and closed; its thread ends."""
        for worker in self._workers:
            worker.hurry(last=True)

    def is_finished(self) -> bool:
        """Whether all threads have ended."""
        return all(worker.is_over for worker in self._workers)

    def abandon(self) -> list[str]:
        """Wait no longer. What was not told is told by the next attempt, or by ``hostcore replay``.

        :return: The labels of those that were not done.
        """
        left = [worker for worker in self._workers if not worker.is_over]
        for worker in left:
            worker.abandon()
        end = time.monotonic() + _LEAVE_SECONDS
        for worker in left:
            worker.join(end - time.monotonic())
            worker.source.save()
        size = self._log.size
        return [one.subscription.label for one in left if not one.is_over or one.source.cursor.offset < size]

    @property
    def failures(self) -> list[Undelivered]:
        """The reporters that have not taken all that is in the log, or that have failed when they were closed."""
        size, last = self._log.size, self._log.last_seq()
        return [
            Undelivered(
                label=worker.subscription.label,
                name=worker.subscription.name,
                message=worker.source.problem or "there was no time left to tell it everything",
                events=max(0, last - worker.source.cursor.seq),
            )
            for worker in self._workers
            if worker.source.problem or worker.source.cursor.offset < size
        ]

    def _worker(self, reporter: ReporterSubscription, ctx: ReporterContext) -> Subscriber[EventSource]:
        now = Cursor(seq=ctx.last_seq, offset=self._log.size)
        source = EventSource(
            reporter,
            self._log,
            file=CursorFile(self._directory.cursors / f"{reporter.name}.json", identity=reporter.identity),
            begin=now if reporter.live_only else None,
            last_seq=ctx.last_seq,
            limits=self._limits,
            emit=self._news.append,
            clock=self._clock,
        )
        return Subscriber(reporter, source, limits=self._limits, emit=self._news.append, clock=self._clock)


def pending(reporters: Sequence[ReporterSubscription], directory: RunDirectory) -> list[Undelivered]:
    """What the reporters of a run that has ended were never told, as their cursors have it."""
    log = LogView(directory.events)
    left = []
    for one in reporters:
        cursor, _ = CursorFile(directory.cursors / f"{one.name}.json", identity=one.identity).read(log)
        if cursor.offset < log.size and not one.live_only:
            told = Undelivered(
                label=one.label, name=one.name, message="they are pending", events=log.last_seq() - cursor.seq
            )
            left.append(told)
    return left
