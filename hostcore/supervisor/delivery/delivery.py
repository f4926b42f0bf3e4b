"""The delivery of one attempt: its reporters and uploaders, from the first event to what is left at the end.

The workers never wait for them. When the run has ended, they have a limited time for what is left::

    samples and checkpoints are copied  ▸  the required ones decide  ▸  terminal event, result
                          ▸  logs and result are copied, reporters get the end  ▸  what is left is printed
"""

import math
import shlex
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from hostcore.events.merger import LogLine
from hostcore.runs.directory import RunDirectory
from hostcore.runs.result import NOT_DELIVERED, Left
from hostcore.supervisor.delivery.cursor import CursorFile, LogView
from hostcore.supervisor.delivery.events_source import EventLimits, EventSource, subscribed, undelivered
from hostcore.supervisor.delivery.subscriber import Subscriber
from hostcore.supervisor.delivery.subscription import ReporterSubscription
from hostcore.supervisor.delivery.uploads import Uploads
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import RunError
from hostcore_hookspecs.reporter import ReporterContext

_TICK_SECONDS: Final = 0.02
#: The time that reporters without a call under way have to leave when they are abandoned.
_LEAVE_SECONDS: Final = 1.0


@attrs.frozen(kw_only=True)
class WaitLimits:
    """Limits of the wait of an ended run for uploads and reporters that make no progress, in seconds."""

    #: For all of them together, from the end of the training on, while nothing that is required is left.
    idle: float = 10.0
    #: For the required uploads, all of which are in an outage.
    uploads: float = 30.0
    #: For the required reporters, none of which takes an event.
    required: float = 60.0
    #: For each of them, even if something gets done.
    at_most: float = math.inf


#: For a run whose next attempt delivers what is left, or whose disk does not let it end well.
SHORT_WAIT: Final = WaitLimits(idle=2.0, uploads=2.0, required=2.0, at_most=5.0)
#: The part of the idle time that is left for the end itself and its events.
_OF_THE_END: Final = 0.4
#: After such a wait, the log gets its reason.
_WAITING_SECONDS: Final = 3.0


class Delivery:
    """The reporters and uploaders of one attempt.

    :param leave_by: Returns until when an ended run may wait, on the clock, if a request limits it; given the time at
        which it began to.
    :param meanwhile: Called again and again while it waits.
    :param reserve_seconds: The part of the time of a run that was asked to end that the end itself gets.
    :param clock: Seconds, from anywhere.
    """

    def __init__(
        self,
        reporters: Sequence[ReporterSubscription],
        uploads: Uploads,
        directory: RunDirectory,
        *,
        leave_by: Callable[[float], float | None],
        meanwhile: Callable[[], object],
        reserve_seconds: float,
        limits: EventLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._subscriptions = reporters
        self._uploads = uploads
        self._directory = directory
        self._leave_by = leave_by
        self._meanwhile = meanwhile
        self._reserve = reserve_seconds
        self._limits = limits or EventLimits()
        self._clock = clock
        self._log = LogView(directory.events)
        self._reporters: list[Subscriber[EventSource]] = []
        self._events: deque[events.Payload] = deque()
        #: True if an outage was waited for already.
        self._waited_enough = False
        #: The time that the stop request had left, once it was up.
        self._left_at: float | None = None

    def start(self, context: ReporterContext) -> None:
        """Start all threads. To be called before the attempt's first event is written.

        :raises OSError: When the folder of cursors cannot be made.
        """
        self._reporters = subscribed(
            self._subscriptions,
            self._directory,
            self._log,
            context,
            limits=self._limits,
            emit=self._events.append,
            clock=self._clock,
        )
        self._uploads.start()

    def on_events(self, lines: Sequence[LogLine]) -> None:
        """Take in the newest lines of the log. Never waits."""
        self._log.note(lines)
        for one in self._reporters:
            one.source.grow()
        for line in lines:
            assert line.event is not None
            self._uploads.on_event(line.event)

    def drain_events(self) -> list[events.Payload]:
        """Return the events about reporters and uploads since the last call. None may follow the terminal event."""
        for one in self._reporters:
            one.poll()
        drained = []
        while self._events:
            drained.append(self._events.popleft())
        return [*drained, *self._uploads.drain_events()]

    def settle(self, limits: WaitLimits) -> RunError | None:
        """Wait for the copies of what the workers have left, and for the required reporters.

        :return: Why the run has failed, if something required was not delivered.
        """
        self._uploads.finish(final=False)
        most, reserve = limits.at_most, self._reserve
        self._waited_enough = not self._wait(
            self._uploads.is_drained,
            self._uploads.is_stuck,
            lambda: limits.uploads if self._uploads.missing() else limits.idle * (1 - _OF_THE_END),
            at_most=most,
            reserve=reserve,
            reason=self._upload_in_words,
        )
        # A later copy of the log, which grows while the reporters are waited for, is nothing that the job requires.
        not_copied = self._uploads.missing()
        required = [one for one in self._reporters if one.subscription.required]
        for one in self._reporters:
            one.hurry()
        self._wait(
            lambda: all(one.source.refused or one.source.is_complete for one in required),
            self._takes_nothing(),
            lambda: limits.required,
            at_most=most,
            reserve=reserve,
        )
        behind = [one.subscription.label for one in required if not one.source.is_complete]
        missing = [*(label for label in self._uploads.missing() if label in not_copied), *behind]
        return self._not_delivered(missing) if missing else None

    def finish(self, limits: WaitLimits) -> None:
        """Wait until all have the terminal event and the result, or none makes progress."""
        self._uploads.finish(final=True)
        for one in self._reporters:
            one.hurry(last=True)
        takes_nothing, idle = self._takes_nothing(), limits.idle * (_OF_THE_END if self._waited_enough else 1)
        self._wait(
            lambda: all(one.is_over for one in self._reporters) and self._uploads.is_drained(),
            lambda: takes_nothing() and (self._uploads.is_drained() or self._uploads.is_stuck()),
            lambda: idle,
            at_most=limits.at_most,
            at_least=self._reserve,
        )
        self.abandon()

    def abandon(self) -> None:
        """Stop. The next attempt, ``hostcore replay`` and ``hostcore upload`` deliver what is left."""
        abandon(self._reporters)
        self._uploads.abandon()

    @property
    def left(self) -> list[Left]:
        """The lines about what was not delivered."""
        return [*filter(None, (one.source.left for one in self._reporters)), *self._uploads.left]

    def _upload_in_words(self) -> str:
        left = self._uploads.pending()
        size = f"{left.files:,} files, {left.bytes / 1e6:,.1f} MB"
        return f"the training is over; what is left is uploaded: {size} (Ctrl-C leaves it to `hostcore upload`)"

    def _takes_nothing(self) -> Callable[[], bool]:
        """Return a function: True if no reporter has taken an event since its last call."""
        before = -1

        def takes_nothing() -> bool:
            nonlocal before
            before, last = sum(one.source.count for one in self._reporters), before
            return before == last

        return takes_nothing

    def _wait(
        self,
        done: Callable[[], bool],
        is_stuck: Callable[[], bool],
        seconds: Callable[[], float],
        *,
        at_most: float,
        reserve: float = 0.0,
        at_least: float = 0.0,
        reason: Callable[[], str] | None = None,
    ) -> bool:
        """Wait until something is done; not for longer than it makes progress, nor than a stop request allows.

        :param reserve: Seconds of what they allow that are left for others.
        :param at_least: Seconds that it may take even if that time is up, unless it is to end at once.
        :param reason: For the log, if it takes a while.
        :return: True if it is done.
        """
        began, stuck_since = self._clock(), None
        while not done():
            self._meanwhile()
            now = self._clock()
            leave_by = self._leave_by(began)
            if leave_by is not None:
                leave_by = min(leave_by, math.inf if self._left_at is None else self._left_at)
                if leave_by == -math.inf or now >= max(leave_by - reserve, began + at_least):
                    self._left_at = leave_by
                    return False
            if reason is not None and now - began >= _WAITING_SECONDS:
                self._events.append(events.Warning(code="run.waiting", message=reason()))
                reason = None
            stuck_since = (stuck_since or now) if is_stuck() else None
            if now - began >= at_most or (stuck_since and now - stuck_since >= seconds()):
                return False
            time.sleep(_TICK_SECONDS)
        return True

    def _not_delivered(self, missing: Sequence[str]) -> RunError:
        """Return the error of a run that itself has come to its end.

        :param missing: The labels of what the job requires and that has not everything.
        """
        left, run_id = self.left, self._directory.run_id
        causes = f": {'; '.join(one.message for one in left)}" if left else ""
        who = ", ".join(missing)
        ways = [shlex.join([*one.command[:2], run_id, *one.command[2:]]) for one in left if one.command]
        return RunError(
            type=NOT_DELIVERED,
            message=f"the training has come to its end, but {who}, which the job requires, has not everything{causes}",
            hint="nothing of the run is lost; the rest is delivered by: " + "; ".join(ways) if ways else None,
        )


def abandon(reporters: Sequence[Subscriber[EventSource]]) -> None:
    """Wait no longer for reporters, but write their cursors."""
    running = [one for one in reporters if not one.is_over]
    for one in running:
        one.abandon()
    end = time.monotonic() + _LEAVE_SECONDS
    for one in running:
        one.join(end - time.monotonic())
        one.source.save()


def left_before(reporters: Sequence[ReporterSubscription], directory: RunDirectory) -> list[Left]:
    """Return the lines about events that the reporters of an ended run never got, as their cursors have it."""
    log, left = LogView(directory.events), []
    for one in reporters:
        cursor, _ = CursorFile(directory.cursors / f"{one.name}.json", identity=one.identity).read(log)
        if cursor.offset < log.size and not one.live_only:
            left.append(undelivered(one, log.last_seq() - cursor.seq, "they are pending"))
    return left
