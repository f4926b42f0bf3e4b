"""The thread that serves one reporter: it reads the log, tells event after event, and remembers how far it has come."""

import threading
import time
from collections.abc import Callable

import attrs

from hostcore.supervisor.delivery.addressee import Addressee
from hostcore.supervisor.delivery.background import lower_priority
from hostcore.supervisor.delivery.calls import LOOK_SECONDS, Calls, Patience
from hostcore.supervisor.delivery.cursor import Cursor, CursorFile
from hostcore.supervisor.delivery.log_view import Line, LogView
from hostcore_hookspecs import events
from hostcore_hookspecs.reporter import ReporterContext


@attrs.frozen(kw_only=True)
class DeliveryLimits(Patience):
    """How patient a delivery is, and how eager."""

    #: The least time from one writing of a cursor to the next.
    save_seconds: float = 1.0
    #: So long a reporter that has nothing to do lets events gather: they come in bursts.
    gather_seconds: float = 0.01


class Courier:
    """Serves one reporter, in a thread of its own.

    :param file: Where its cursor is written; None: nowhere.
    :param begin: Says where it begins; called in its thread, when no other serves the reporter any more.
    :param tell: Takes what the run's log should have of it.
    """

    def __init__(
        self,
        addressee: Addressee,
        log: LogView,
        ctx: ReporterContext,
        file: CursorFile | None,
        *,
        begin: Callable[[], Cursor],
        tell: Callable[[events.Payload], object],
        limits: DeliveryLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.addressee = addressee
        #: Behind the last event that was taken.
        self.cursor = Cursor()
        #: How many events were taken.
        self.taken = 0
        self._log = log
        self._ctx = ctx
        self._file = file
        self._begin = begin
        self._tell = tell
        self._limits = limits or DeliveryLimits()
        self._clock = clock
        self.calls = Calls(
            addressee.label, tell=tell, save=self.save, missed=self._missed, patience=self._limits, clock=clock
        )
        self._news = threading.Event()
        self._no_more = threading.Event()
        self._abandoned = threading.Event()
        self._over = threading.Event()
        self._saved_at = clock()
        self._cannot_save = False
        self._thread = threading.Thread(target=self._serve, name=f"hostcore reporter {addressee.name}", daemon=True)

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
        self.calls.hurry()
        self._news.set()

    def abandon(self) -> None:
        """Tell nothing more, and end as soon as no call is going on."""
        self._abandoned.set()
        self.calls.end()
        self._news.set()

    def join(self, seconds: float) -> None:
        """Wait for its end; not if it hangs."""
        end = time.monotonic() + seconds
        while not self.is_over and not self.calls.hangs and (left := end - time.monotonic()) > 0:
            self._over.wait(min(left, LOOK_SECONDS))

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._over.is_set()

    def save(self) -> None:
        """Write the cursor."""
        self._saved_at = self._clock()
        if self._file is None:
            return
        try:
            self._file.write(self.cursor)
        except OSError as error:
            if not self._cannot_save:
                self._cannot_save = True
                told = f"the cursor of {self.addressee.label} cannot be written, so that events may be told again"
                self._tell(events.Warning(code="reporter.cursor", message=f"{told}: {error}"))

    # -- in its own thread ---------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        lower_priority()
        if self._take_turn():
            self._serve_in_turn()
        self._over.set()

    def _serve_in_turn(self) -> None:
        reporter = self.addressee
        try:
            self.cursor = self._begin()
            if self.calls.insist("open", reporter.open, self._ctx):
                self._tell_all()
                self.calls.once("close", reporter.close)
        except BaseException as error:  # noqa: BLE001 - of hostcore's own: told as well, not printed by the thread
            self.calls.give_up(error)
        finally:
            self.save()
            reporter.turn.release()

    def _take_turn(self) -> bool:
        """Wait until the thread of an earlier attempt has left the reporter. Whether that has happened."""
        acquire = self.calls.timed("a call of an earlier attempt", self._acquire_turn)
        return bool(acquire())

    def _acquire_turn(self) -> bool:
        while not self._abandoned.is_set():
            if self.addressee.turn.acquire(timeout=LOOK_SECONDS):
                return True
        return False

    def _tell_all(self) -> None:
        """Tell what is in the log and what is added to it, until nothing more will be, or it must not go on."""
        while not self._abandoned.is_set():
            is_last = self._no_more.is_set()
            self._news.clear()
            lines: list[Line] = []
            if not self.calls.insist(f"reading {self._log.path.name}", self._read, lines):
                return
            for line in lines:
                if not self._take(line):
                    return
            if not lines:
                if is_last:
                    return
                self._rest()

    def _read(self, lines: list[Line]) -> None:
        lines += self._log.after(self.cursor.offset)

    def _take(self, line: Line) -> bool:
        """Tell a line's event. Whether it was taken."""
        if line.event is None:
            where = f"at byte {self.cursor.offset} of {self._log.path.name}"
            told = f"the line {where} is no event; {self.addressee.label} is not told of it"
            self._tell(events.Warning(code="events.corrupt", message=told))
            self.cursor = Cursor(seq=self.cursor.seq, offset=line.end)
            return True
        if not self.calls.insist("report_event", self.addressee.report_event, line.event):
            return False
        self.cursor = Cursor(seq=line.event.seq, offset=line.end)
        self.taken += 1
        if self._clock() - self._saved_at >= self._limits.save_seconds:
            self.save()
        return True

    def _rest(self) -> None:
        """Wait for news; write the cursor when it is due."""
        due = self._saved_at + self._limits.save_seconds - self._clock()
        if not self._news.wait(max(0.0, due)):
            self.save()
            self._news.wait()
        if not self._no_more.is_set():
            self._no_more.wait(self._limits.gather_seconds)

    def _missed(self) -> int:
        return self._log.last_seq() - self.cursor.seq
