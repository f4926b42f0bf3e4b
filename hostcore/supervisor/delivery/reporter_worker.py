"""The thread that serves one reporter: it reads the log, reports event after event, and keeps the cursor.

The order of events is the order of the log: an event that fails is tried until it is taken, and those behind it wait.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import attrs

from hostcore.events.merger import LogLine
from hostcore.plugins.errors import one_line
from hostcore.supervisor.delivery.calls import ONCE, Breaker, Call, Timeouts, call_with_retries, lower_priority
from hostcore.supervisor.delivery.cursor import Cursor, CursorFile, LogView
from hostcore.supervisor.delivery.subscription import ReporterSubscription
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import FatalError, HostcoreError
from hostcore_hookspecs.reporter import ReporterContext

T = TypeVar("T")

#: In an outage the thread looks that often whether it should try at once, or no more.
_LOOK_SECONDS: Final = 0.25


@attrs.frozen(kw_only=True)
class ReporterTimeouts(Timeouts):
    """The limits of the delivery to one reporter."""

    #: The least time from one writing of a cursor to the next.
    save_seconds: float = 1.0
    #: So long a reporter that has nothing to do lets events gather: they come in bursts.
    gather_seconds: float = 0.01


class ReporterWorker:
    """Serves one reporter, in a thread of its own. Tells each outage once, and once that it is over.

    :param file: Where its cursor is written; None: nowhere.
    :param begin: Says where it begins; called in its thread, when no other thread serves the reporter any more.
    :param tell: Takes what the run's log should have of it.
    """

    def __init__(
        self,
        subscription: ReporterSubscription,
        log: LogView,
        ctx: ReporterContext,
        file: CursorFile | None,
        *,
        begin: Callable[[], Cursor],
        tell: Callable[[events.Payload], object],
        timeouts: ReporterTimeouts | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.subscription = subscription
        #: Behind the last event that was taken.
        self.cursor = Cursor()
        #: How many events were taken.
        self.taken = 0
        #: What it failed with last, in one line; None if nothing is wrong with it now.
        self.problem: str | None = None
        #: The exception behind that, if there is one.
        self.error: BaseException | None = None
        #: Whether it must not be called any more.
        self.has_given_up = False
        self._log = log
        self._ctx = attrs.evolve(ctx, warn=self._warn)
        self._file = file
        self._begin = begin
        self._tell = tell
        self._timeouts = timeouts or ReporterTimeouts()
        self._clock = clock
        self._breaker = Breaker(self._timeouts.intervals, clock=clock)
        self._lock = threading.Lock()
        self._call: Call | None = None
        #: Since when it fails or hangs, if that was told.
        self._told_since: float | None = None
        self._news = threading.Event()
        self._no_more = threading.Event()
        self._abandoned = threading.Event()
        #: Whether no call is tried again, nor a new one made.
        self._ended = threading.Event()
        self._over = threading.Event()
        self._saved_at = clock()
        self._cannot_save = False
        name = f"hostcore reporter {subscription.name}"
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    # -- for the supervisor's loop -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def announce(self) -> None:
        """The log has grown."""
        # It clears this before it reads, so that what is set already stands for this line, too.
        if not self._news.is_set():
            self._news.set()

    def finish(self) -> None:
        """Nothing more will be written: end when everything was told."""
        self._no_more.set()
        self.hurry()
        self._news.set()

    def hurry(self) -> None:
        """Time is short: what fails is tried again soon."""
        self._breaker.hurry()

    def abandon(self) -> None:
        """Tell nothing more, and end as soon as no call is going on; ``close`` may follow."""
        self._abandoned.set()
        self._ended.set()
        self._news.set()

    def join(self, seconds: float) -> None:
        """Wait for its end; not if it hangs."""
        end = time.monotonic() + seconds
        while not self.is_over and not self._hangs and (left := end - time.monotonic()) > 0:
            self._over.wait(min(left, _LOOK_SECONDS))

    def _warn(self, message: str) -> None:
        self._tell(events.Warning(code="reporter.value", message=f"{self.subscription.label}: {message}"))

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._over.is_set()

    @property
    def outage_seconds(self) -> float:
        """How long nothing has got through; 0 if nothing is wrong."""
        since = self._told_since
        return 0.0 if since is None else max(0.0, self._clock() - since)

    def look(self) -> None:
        """Tell of a call that does not return, once."""
        with self._lock:  # it cannot return just now
            call = self._call
            if call is None or not self._hangs or self._told_since is not None:
                return
            self._told_since, self.problem = call.since, call.in_words
        self._tell(events.ReporterFailed(reporter=self.subscription.label, message=self.problem))

    def save(self) -> None:
        """Write the cursor."""
        self._saved_at = self._clock()
        if self._file is None:
            return
        try:
            self._file.write(self.cursor)
        except OSError as error:
            with self._lock:  # the thread and the supervisor's loop both write it
                was_told, self._cannot_save = self._cannot_save, True
            if not was_told:
                told = f"the cursor of {self.subscription.label} cannot be written, so that events may be told again"
                self._tell(events.Warning(code="reporter.cursor", message=f"{told}: {error}"))

    @property
    def _hangs(self) -> bool:
        call = self._call
        return call is not None and call.is_overdue(self._clock())

    # -- in its own thread ---------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        lower_priority()
        if self._timed("a call of an earlier attempt", self._acquire_turn):
            self._serve_in_turn()
        self._over.set()

    def _acquire_turn(self) -> bool:
        """Wait until the thread of an earlier attempt has left the reporter. Whether that has happened."""
        while not self._abandoned.is_set():
            if self.subscription.turn.acquire(timeout=_LOOK_SECONDS):
                return True
        return False

    def _serve_in_turn(self) -> None:
        reporter = self.subscription
        try:
            self.cursor = self._begin()
            if self._insist("open", reporter.open, self._ctx):
                self._report_all()
                self._call_once("close", reporter.close)
        except BaseException as error:  # noqa: BLE001 - of hostcore's own: told as well, not printed by the thread
            self._give_up(error)
        finally:
            self.save()
            reporter.turn.release()

    def _report_all(self) -> None:
        """Report what is in the log and what is added to it, until nothing more will be, or it must not go on."""
        while not self._abandoned.is_set():
            is_last = self._no_more.is_set()
            self._news.clear()
            lines: list[LogLine] = []
            if not self._insist(f"reading {self._log.path.name}", self._read, lines):
                return
            for line in lines:
                if not self._take(line):
                    return
            if not lines:
                if is_last:
                    return
                self._rest()

    def _read(self, lines: list[LogLine]) -> None:
        lines += self._log.after(self.cursor.offset)

    def _take(self, line: LogLine) -> bool:
        """Report a line's event. Whether it was taken."""
        if line.event is None:
            where = f"at byte {self.cursor.offset} of {self._log.path.name}"
            told = f"the line {where} is no event; {self.subscription.label} is not told of it"
            self._tell(events.Warning(code="events.corrupt", message=told))
            self.cursor = Cursor(seq=self.cursor.seq, offset=line.end)
            return True
        if not self._insist("report_event", self.subscription.report_event, line.event):
            return False
        self.cursor = Cursor(seq=line.event.seq, offset=line.end)
        self.taken += 1
        if self._clock() - self._saved_at >= self._timeouts.save_seconds:
            self.save()
        return True

    def _rest(self) -> None:
        """Wait for news; write the cursor when it is due."""
        due = self._saved_at + self._timeouts.save_seconds - self._clock()
        if not self._news.wait(max(0.0, due)):
            self.save()
            self._news.wait()
        if not self._no_more.is_set():
            self._no_more.wait(self._timeouts.gather_seconds)

    # -- its calls -----------------------------------------------------------------------------------------------------

    def _insist(self, method: str, call: Callable[..., object], *arguments: Any) -> bool:
        """Call until it returns.

        :return: Whether it has. Otherwise it has given up, or there is no more time.
        """
        while not self._ended.is_set():
            if seconds := self._breaker.admit():
                self._ended.wait(min(seconds, _LOOK_SECONDS))
                continue
            # The probe of an outage is a single call; before it, a few retries may keep it from being one.
            quick = ONCE if self._breaker.is_open else self._timeouts.quick
            try:
                call_with_retries(self._timed, method, call, *arguments, limits=quick)
            except FatalError as error:
                self._give_up(error)
            except BaseException as error:  # noqa: BLE001 - whatever a reporter raises, the run and the others go on
                self._breaker.failed(error)
                self._note_failure(error)
            else:
                self._breaker.succeeded()
                self._recover()
                return True
        return False

    def _call_once(self, method: str, call: Callable[..., object]) -> None:
        try:
            self._timed(method, call)
        except BaseException as error:  # noqa: BLE001 - as above
            if not self.has_given_up:
                self._note_failure(error)

    def _timed(self, method: str, call: Callable[..., T], *arguments: Any) -> T:
        """Call, watched for a hang while it goes on."""
        self._call = Call(method=method, since=self._clock(), limit=self._timeouts.hang_seconds)
        try:
            return call(*arguments)
        finally:
            with self._lock:
                self._call = None

    def _give_up(self, error: BaseException) -> None:
        """Call nothing any more, but ``close``."""
        self.has_given_up = True
        self._ended.set()
        self.problem, self.error = _in_words(error), error
        message = f"{self.problem}; it gets no more events in this attempt"
        self._tell(events.ReporterFailed(reporter=self.subscription.label, message=message))
        self.save()

    def _note_failure(self, error: BaseException) -> None:
        self.problem, self.error = _in_words(error), error
        if self._told_since is None:
            self._told_since = self._clock()
            self._tell(events.ReporterFailed(reporter=self.subscription.label, message=self.problem))
            self.save()  # the process may not live to do it later

    def _recover(self) -> None:
        if self._told_since is None:
            return
        seconds = self.outage_seconds
        self._told_since = self.problem = self.error = None
        missed = self._log.last_seq() - self.cursor.seq
        told = f"{self.subscription.label} works again after {seconds:.0f} s; events to catch up with: {missed}"
        self._tell(events.Warning(code="reporter.recovered", message=told))


def _in_words(error: BaseException) -> str:
    if not isinstance(error, HostcoreError):
        return one_line(error)
    text = one_line(error).removeprefix(f"{type(error).__module__}.")
    return f"{text} ({' '.join(error.hint.split())})" if error.hint else text
