# ruff: noqa: D102 - a method without a docstring has that of Source
"""The source of one reporter: the next line of the log behind a cursor; an event that fails holds up the others."""

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import attrs

from hostcore.events.merger import LogLine
from hostcore.plugins.errors import one_line
from hostcore.runs.directory import RunDirectory
from hostcore.runs.result import Left
from hostcore.supervisor.delivery.cursor import Cursor, CursorFile, LogView
from hostcore.supervisor.delivery.source import Call, DeliveryLimits, Emit, Item, Source
from hostcore.supervisor.delivery.subscriber import Subscriber
from hostcore.supervisor.delivery.subscription import ReporterSubscription
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.reporter import ReporterContext


@attrs.frozen(kw_only=True)
class EventLimits(DeliveryLimits):
    """The limits of the delivery to one reporter."""

    #: The least time from one writing of a cursor to the next.
    save_seconds: float = 1.0
    #: Delay before an idle reporter reads: events come in bursts.
    gather_seconds: float = 0.01


class EventSource(Source[Item]):
    """The events of a log for one reporter. Its calls are made by one thread, which also reads and writes the cursor.

    :param file: Where the cursor is written; None: nowhere.
    :param begin: The cursor to begin at; None: that of the file.
    :param last_seq: The number of the newest event of the log.
    """

    def __init__(
        self,
        subscription: ReporterSubscription,
        log: LogView,
        *,
        file: CursorFile | None,
        begin: Cursor | None,
        last_seq: int,
        limits: EventLimits,
        emit: Emit,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(subscription, limits=limits, emit=emit, clock=clock)
        #: Behind the last event that was taken.
        self.cursor = begin or Cursor()
        #: Events that were taken.
        self.count = 0
        #: The last failure, in one line; None if nothing is wrong now.
        self.problem: str | None = None
        #: The exception behind it.
        self.error: BaseException | None = None
        self._reporter = subscription
        self._log = log
        self._file = file
        self._last_seq = last_seq
        self._save_seconds = limits.save_seconds
        self._gather_seconds = limits.gather_seconds
        self._begun = begin is not None
        self._lines: deque[LogLine] = deque()
        #: True if the log may hold lines behind those that were read.
        self._has_grown = True
        self._was_idle = False
        #: The item that was given out, until it is taken.
        self._current: Item | None = None
        self._saved: Cursor | None = None
        self._saved_at = clock()
        self._cannot_save = False

    def context(self, context: ReporterContext) -> ReporterContext:
        """Return the argument of the reporter's ``open``."""
        return attrs.evolve(context, warn=self._warn)

    def _warn(self, message: str) -> None:
        self.emit(events.Warning(code="reporter.value", message=f"{self._reporter.label}: {message}"))

    def grow(self) -> None:
        """Note that the log has grown."""
        # The thread clears this before it reads, so what is set already stands for these lines, too.
        if not self._has_grown:
            with self.changed:
                self._has_grown = True
                self.changed.notify_all()

    def save(self) -> None:
        """Write the cursor, once it was read. A failure is emitted once."""
        self._saved_at = self.clock()
        if self._file is None or not self._begun:
            return
        cursor = self.cursor
        try:
            self._file.write(cursor)
        except OSError as error:
            with self.changed:  # the thread and the supervisor's loop both write it
                was_reported, self._cannot_save = self._cannot_save, True
            if not was_reported:
                problem = f"the cursor of {self._reporter.label} cannot be written, so that events may be told again"
                self.emit(events.Warning(code="reporter.cursor", message=f"{problem}: {error}"))
        self._saved = cursor

    # -- for the subscriber --------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        if not self._begun:
            with suppress(OSError):  # else it is read once the reporter is open, as often as it takes
                self._read_cursor()

    @property
    def is_empty(self) -> bool:
        waits = self._current is not None or self._lines or self._has_grown or not self._begun
        return self.refused is not None or not waits

    @property
    def is_complete(self) -> bool:
        return self.refused is None and self.cursor.offset >= self._log.size

    @property
    def left(self) -> Left | None:
        """The line about events that the reporter has not taken, or about a ``close`` that has failed."""
        if not self.problem and self.cursor.offset >= self._log.size:
            return None
        count = max(0, self._log.last_seq() - self.cursor.seq)
        return undelivered(self._reporter, count, self.problem or "there was no time left to tell it everything")

    def next(self, now: float, *, busy: Collection[Item], probing: bool) -> Item | None:  # noqa: ARG002
        if self._current is None:
            self._current = self._step(now)
        return self._current

    def _step(self, now: float) -> Item | None:
        if not self._begun:
            return Item(method="reading its cursor", call=self._read_cursor)
        if self._lines:
            return Item(method="report_event", call=partial(self._report, self._lines[0]))
        if self._has_grown:
            return Item(method=f"reading {self._log.path.name}", call=self._read)
        if self._save_due(now) <= 0:
            return Item(method="writing its cursor", call=self.save)
        return None

    def wait_seconds(self, now: float, *, busy: Collection[Item]) -> float | None:  # noqa: ARG002
        due = self._save_due(now)
        return None if due == math.inf else max(0.0, due)

    def _save_due(self, now: float) -> float:
        if self._file is None or self.cursor == self._saved:
            return math.inf
        return self._saved_at + self._save_seconds - now

    def taken(self, item: Item, result: Any) -> None:  # noqa: ARG002
        self._current = self.problem = self.error = None

    def put_back(self, item: Item, *, until: float) -> None:
        """Have it tried again as soon as the breaker admits it: nothing comes before it."""

    def give_up(self, item: Item, problem: str) -> None:  # noqa: ARG002
        self.refuse(problem)

    def refuse(self, problem: str) -> None:
        self.refused = self.problem = problem
        self.emit(self.failure("", f"{problem}; it gets no more events in this attempt"))

    def retry_now(self) -> None:
        self._has_grown = True

    def words(self, error: BaseException) -> str:
        return _in_words(error)

    def described(self, call: Call[Item], error: BaseException, words: str) -> str:
        if call.method != "close" or self.refused is None:
            self.problem, self.error = words, error
        return words

    def failure(self, name: str, problem: str) -> events.Payload:  # noqa: ARG002
        return events.ReporterFailed(reporter=self._reporter.label, message=problem)

    def recovered(self, seconds: float) -> events.Payload:
        self.problem = self.error = None
        missed = max(self._last_seq, self._log.newest_seq) - self.cursor.seq
        message = f"{self._reporter.label} works again after {seconds:.0f} s; events to catch up with: {missed}"
        return events.Warning(code="reporter.recovered", message=message)

    def close_failure(self, problem: str, *, in_outage: bool) -> events.Payload | None:
        return None if in_outage or self.refused is not None else self.failure("", problem)

    def leave(self) -> None:
        self.save()

    # -- in its thread -------------------------------------------------------------------------------------------------

    def _read_cursor(self) -> None:
        assert self._file is not None
        self.cursor, problem = self._file.read(self._log)
        self._begun = True
        if problem:
            label = self._reporter.label
            message = f"the cursor of {label} is of no use: {problem}; it is told everything from the first event on"
            self.emit(events.Warning(code="reporter.cursor", message=message))

    def _read(self) -> None:
        if self._was_idle:
            time.sleep(self._gather_seconds)
        self._has_grown = False
        try:
            self._lines += self._log.after(self.cursor.offset)
        except BaseException:
            self._has_grown = True
            raise
        self._was_idle = not self._lines
        if self._lines:
            self._has_grown = True  # there may be more

    def _report(self, line: LogLine) -> None:
        """Report the event of a line, unless the line is none."""
        if line.event is None:
            where = f"at byte {self.cursor.offset} of {self._log.path.name}"
            message = f"the line {where} is no event; {self._reporter.label} is not told of it"
            self.emit(events.Warning(code="events.corrupt", message=message))
            self.cursor = Cursor(seq=self.cursor.seq, offset=line.end)
        else:
            try:
                self._reporter.report_event(line.event)
            except BaseException:
                self.save()  # the process may not live to do it later
                raise
            self.cursor = Cursor(seq=line.event.seq, offset=line.end)
            self.count += 1
        if self._lines and self._lines[0] is line:
            self._lines.popleft()
        if self.clock() - self._saved_at >= self._save_seconds:
            self.save()


def subscribed(
    reporters: Sequence[ReporterSubscription],
    directory: RunDirectory,
    log: LogView,
    context: ReporterContext,
    *,
    limits: EventLimits,
    emit: Emit,
    clock: Callable[[], float] = time.monotonic,
) -> list[Subscriber[EventSource]]:
    """Start a subscriber for each reporter of an attempt.

    :raises OSError: When the folder of cursors cannot be made.
    """
    if reporters:
        directory.cursors.mkdir(exist_ok=True)
    now = Cursor(seq=context.last_seq, offset=log.size)
    subscribers = []
    for one in reporters:
        source = EventSource(
            one,
            log,
            file=CursorFile(directory.cursors / f"{one.name}.json", identity=one.identity),
            begin=now if one.live_only else None,
            last_seq=context.last_seq,
            limits=limits,
            emit=emit,
            clock=clock,
        )
        subscribers.append(Subscriber(source))
    for subscriber in subscribers:
        subscriber.start(subscriber.source.context(context))
    return subscribers


def undelivered(reporter: ReporterSubscription, count: int, why: str) -> Left:
    """Return the line about a reporter that has not taken everything, and the command that delivers it.

    :param count: Events that it has not taken; 0: it has failed otherwise.
    """
    if not count:
        return Left(message=f"the reporter {reporter.label} failed: {why}")
    return Left(
        message=f"the reporter {reporter.label} has not taken {count:,} events: {why}",
        command=["hostcore", "replay", "--reporter", reporter.name, "--pending"],
    )


def _in_words(error: BaseException) -> str:
    if not isinstance(error, HostcoreError):
        return one_line(error)
    text = one_line(error).removeprefix(f"{type(error).__module__}.")
    return f"{text} ({' '.join(error.hint.split())})" if error.hint else text
