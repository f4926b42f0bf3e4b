"""All reporters of an attempt, as the supervisor's loop sees them: it announces, takes news, and never waits."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from hostcore.runs.directory import RunDirectory
from hostcore.supervisor.delivery.addressee import Addressee
from hostcore.supervisor.delivery.courier import Courier, DeliveryLimits
from hostcore.supervisor.delivery.cursor import Cursor, CursorFile
from hostcore.supervisor.delivery.log_view import LogView
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


class Deliveries:
    """Tells every reporter every event of the log, each at its own pace.

    :param reporters: May be none.
    :param clock: Seconds, from anywhere; decides when something is tried again, and what counts as a hang.
    """

    def __init__(
        self,
        reporters: Sequence[Addressee],
        directory: RunDirectory,
        *,
        limits: DeliveryLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reporters = list(reporters)
        self._directory = directory
        self._limits = limits or DeliveryLimits()
        self._clock = clock
        self._log = LogView(directory.events)
        self._news: deque[events.Payload] = deque()
        self._couriers: list[Courier] = []

    def start(self, ctx: ReporterContext) -> None:
        """Start a thread for each reporter. To be called before the attempt's first event is written.

        :raises OSError: When the folder of cursors cannot be made.
        """
        if not self._reporters:
            return
        self._directory.cursors.mkdir(exist_ok=True)
        self._couriers = [self._courier(one, ctx) for one in self._reporters]
        for courier in self._couriers:
            courier.start()

    def announce(self) -> None:
        """The log has grown. Never waits."""
        for courier in self._couriers:
            courier.announce()

    def news(self) -> list[events.Payload]:
        """What the log should have of reporters that fail, hang or work again, since the last call."""
        for courier in self._couriers:
            courier.calls.look()
        found = []
        while self._news:
            found.append(self._news.popleft())
        return found

    @property
    def taken(self) -> int:
        """How many events were taken in this attempt, by all reporters together: while it grows, there is progress."""
        return sum(courier.taken for courier in self._couriers)

    def behind(self) -> list[str]:
        """The labels of the required reporters that have given up, or have not taken all that is in the log now."""
        size = self._log.size
        return [
            courier.addressee.label
            for courier in self._couriers
            if courier.addressee.required and (courier.calls.has_given_up or courier.cursor.offset < size)
        ]

    def is_settled(self) -> bool:
        """Whether waiting changes nothing: each required reporter has taken all that is in the log, or has given up."""
        size = self._log.size
        return all(
            courier.calls.has_given_up or courier.cursor.offset >= size
            for courier in self._couriers
            if courier.addressee.required
        )

    def hurry(self) -> None:
        """Somebody waits: what is in an outage is tried now, and then at short intervals."""
        for courier in self._couriers:
            courier.calls.hurry()

    def finish(self) -> None:
        """No more events will come: each reporter is told what is left, soon, and closed; its thread ends."""
        for courier in self._couriers:
            courier.finish()

    def is_finished(self) -> bool:
        """Whether all threads have ended."""
        return all(courier.is_over for courier in self._couriers)

    def abandon(self) -> list[str]:
        """Wait no longer. What was not told is told by the next attempt, or by ``hostcore replay``.

        :return: The labels of those that were not done.
        """
        left = [courier for courier in self._couriers if not courier.is_over]
        for courier in left:
            courier.abandon()
        end = time.monotonic() + _LEAVE_SECONDS
        for courier in left:
            courier.join(end - time.monotonic())
            courier.save()
        size = self._log.size
        return [one.addressee.label for one in left if not one.is_over or one.cursor.offset < size]

    @property
    def failures(self) -> list[Undelivered]:
        """The reporters that have not taken all that is in the log, or that have failed when they were closed."""
        size, last = self._log.size, self._log.last_seq()
        return [
            Undelivered(
                label=courier.addressee.label,
                name=courier.addressee.name,
                message=courier.calls.problem or "there was no time left to tell it everything",
                events=max(0, last - courier.cursor.seq),
            )
            for courier in self._couriers
            if courier.calls.problem or courier.cursor.offset < size
        ]

    def _courier(self, reporter: Addressee, ctx: ReporterContext) -> Courier:
        file = CursorFile(self._directory.cursors / f"{reporter.name}.json", identity=reporter.identity)
        now = Cursor(seq=ctx.last_seq, offset=self._log.size)
        return Courier(
            reporter,
            self._log,
            ctx,
            file,
            begin=lambda: now if reporter.live_only else self._read(file, reporter),
            tell=self._news.append,
            limits=self._limits,
            clock=self._clock,
        )

    def _read(self, file: CursorFile, reporter: Addressee) -> Cursor:
        cursor, problem = file.read(self._log)
        if problem:
            told = f"the cursor of {reporter.label} is of no use: {problem}"
            message = f"{told}; it is told everything from the first event on"
            self._news.append(events.Warning(code="reporter.cursor", message=message))
        return cursor


def pending(reporters: Sequence[Addressee], directory: RunDirectory) -> list[Undelivered]:
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
