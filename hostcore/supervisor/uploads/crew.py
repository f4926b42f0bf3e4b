"""The threads that serve one uploader: what they call next, and what becomes of each call.

Nobody waits for these threads. They are daemons of our own: those of an executor are joined when the interpreter ends,
and one that hangs would keep the process.
"""

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from hostcore.plugins.errors import one_line
from hostcore.supervisor.delivery.background import lower_priority
from hostcore.supervisor.delivery.retries import QuickRetries, call_with_retries
from hostcore.supervisor.uploads.destination import Destination
from hostcore.supervisor.uploads.ledger import Ledger
from hostcore.supervisor.uploads.outages import Call, Outages
from hostcore.supervisor.uploads.patience import Limits
from hostcore.supervisor.uploads.schedule import Schedule, Task
from hostcore.supervisor.uploads.sources import is_unchanged
from hostcore.supervisor.uploads.tally import Tally
from hostcore.supervisor.uploads.transfer import transfer
from hostcore.supervisor.uploads.unit import Unit, UnitFile
from hostcore_hookspecs.errors import FatalError, HostcoreError
from hostcore_hookspecs.uploader import UploadContext, UploadReceipt

_ONCE: Final = QuickRetries(retries=0)


class _Gone(FatalError):
    """The file is not where it was."""

    def __init__(self) -> None:
        super().__init__("it was removed from its place before it was uploaded, and could not be linked into the spool")


class Crew:
    """Works through a schedule. Everything of it is read and changed while ``changed`` is held.

    :param when_done: Called when a unit has arrived, or was given up.
    """

    def __init__(
        self,
        destination: Destination,
        tally: Tally,
        *,
        when_done: Callable[[Unit], object],
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.schedule = Schedule()
        self.tally = tally
        self.outages = Outages(tally, limits, clock=clock)
        #: The calls that are going on.
        self.calls: list[Call] = []
        self.opened = self.closed = False
        #: Why the uploader cannot be used in this attempt.
        self.unusable: str | None = None
        #: Whether no more units will come; whether nothing more is to be copied.
        self.finishing = self.abandoned = False
        self._destination = destination
        self._when_done = when_done
        self._limits = limits
        self._clock = clock
        self._numbers = itertools.count(1)
        self._ledger: Ledger | None = None
        self._context: UploadContext | None = None

    def start(self, ledger: Ledger, context: UploadContext) -> None:
        """Start the threads."""
        with self.changed:
            self._ledger, self._context = ledger, context
            for _ in range(self._limits.at_once):
                self._start_thread()

    def _start_thread(self) -> None:
        name = f"hostcore upload {self._destination.name} {next(self._numbers)}"
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        lower_priority()
        while (call := self._next()) is not None:
            receipt: UploadReceipt | None = None
            error: BaseException | None = None
            try:
                receipt = self._perform(call)
            except BaseException as raised:  # noqa: BLE001 - whatever an uploader raises, the run goes on
                error = raised
            if self._settle(call, receipt, error):
                return

    def _perform(self, call: Call) -> UploadReceipt | None:
        # The probe of an outage is a single call; before it, a few retries may keep it from being one.
        quick = _ONCE if call.is_probe or call.method == "close" or self.abandoned else self._limits.quick
        if call.task is None or call.file is None:
            method: Callable[..., Any] = getattr(self._destination, call.method)
            call_with_retries(method, *([self._context] if call.method == "open" else []), limits=quick)
            return None
        if not _is_there(call.task.unit, call.file):
            raise _Gone
        upload, artifact = self._destination.upload_artifact, call.task.unit.artifact(call.file)
        return call_with_retries(transfer, upload, artifact, limits=quick)

    def _next(self) -> Call | None:
        """The next call to make; None when there will be none."""
        with self.changed:
            while True:
                if self._is_over():
                    return None
                call, wait = self._choose()
                if call is not None:
                    self.calls.append(call)
                    return call
                self.changed.wait(wait)

    def _is_over(self) -> bool:
        if self.closed or self.unusable is not None:
            return True
        return self.abandoned and (not self.opened or any(not call.lost for call in self.calls))

    def _choose(self) -> tuple[Call | None, float | None]:
        """A call to make now, or how long to wait for one; for ever, if None."""
        going = [call for call in self.calls if not call.lost]
        if not self.opened:
            return (None, None) if self.calls else self._admitted(lambda: self._new_call("open"))
        if self.abandoned or (self.finishing and not self.schedule.tasks):
            return (None if going else self._new_call("close")), None
        busy = {call.file.relative_path for call in going if call.file is not None}
        probing = self.outages.breaker.is_open
        now = self._clock()
        found = self.schedule.next(now, busy=busy, probing=probing)
        if found is None:
            return None, self.schedule.wait_seconds(now, busy=busy)
        return self._admitted(lambda: self._begin(*found))

    def _admitted(self, begin: Callable[[], Call]) -> tuple[Call | None, float | None]:
        seconds = self.outages.breaker.admit()
        return (None, seconds) if seconds else (begin(), None)

    def _begin(self, task: Task, file: UnitFile) -> Call:
        task.begin(file)
        return self._new_call("upload_artifact", size=file.size, task=task, file=file)

    def _new_call(self, method: str, *, size: int = 0, **subject: Any) -> Call:
        limit = self._limits.hang_of(size)
        return Call(
            method=method,
            since=self._clock(),
            limit=limit,
            arrived_before=self.tally.files,
            is_probe=self.outages.breaker.is_open,
            **subject,
        )

    def _settle(self, call: Call, receipt: UploadReceipt | None, error: BaseException | None) -> bool:
        """Take in how a call has ended.

        :return: Whether its thread was replaced, and is to end.
        """
        # Files are looked at and written before the lock is taken, for which the supervisor's loop may wait.
        if receipt is not None:
            self._note_in_ledger(call, receipt)
        elif call.task is not None and call.file is not None and not _is_there(call.task.unit, call.file):
            error = _Gone()
        with self.changed:
            self.calls.remove(call)
            if call.method == "close":
                self.closed = True
                if error is not None:
                    self.tally.warn(
                        "uploader.close", f"{self._destination.label} could not be closed: {_in_words(error)}"
                    )
            elif error is not None:
                if not call.lost:
                    self._note_failure(call, error)
            else:
                self.outages.note_success(self.schedule.tasks)
                if receipt is None:
                    self.opened = True
                else:
                    self._note_arrival(call, receipt)
            self.changed.notify_all()
        return call.lost

    def _note_in_ledger(self, call: Call, receipt: UploadReceipt) -> None:
        assert self._ledger is not None
        assert call.task is not None
        assert call.file is not None
        try:
            self._ledger.note(self._destination, call.task.unit, call.file, uri=receipt.uri)
            if not call.task.remaining:
                self._ledger.sync()
        except OSError as error:
            self.tally.warn("uploads.ledger", f"what was uploaded could not be written down: {error}")

    def _note_arrival(self, call: Call, receipt: UploadReceipt) -> None:
        """Count a file as arrived, and its unit, if it was the last one."""
        task, file = call.task, call.file
        assert task is not None
        assert file is not None
        if not call.lost:
            task.busy -= 1
        elif task.seal is file:
            task.seal = None
        elif file in task.left:
            task.left.remove(file)
        else:
            return  # another call was made for it meanwhile
        self.tally.count(task, file, receipt)
        if task.is_done and task in self.schedule.tasks:
            self.schedule.tasks.remove(task)
            self.tally.complete(task)
            self._when_done(task.unit)

    def _note_failure(self, call: Call, error: BaseException) -> None:
        is_fatal = isinstance(error, FatalError)
        if call.task is None or call.file is None:
            if is_fatal:
                self.give_all_up(_in_words(error))
            elif not self.abandoned:
                self.outages.note_useless(error, f"{call.method}: {_in_words(error)}")
            return
        task, file = call.task, call.file
        if task not in self.schedule.tasks:  # removed meanwhile
            task.busy -= 1
            return
        why = error.message if isinstance(error, _Gone) else f"{file.relative_path}: {_in_words(error)}"
        if self.abandoned:
            task.put_back(file, until=0.0)
        elif is_fatal:
            task.busy -= 1
            self.schedule.tasks.remove(task)
            self.give_up(task, why)
        else:
            self.outages.put_back(call, task, file, error, why)

    def note_hang(self, call: Call) -> None:
        """Tell of a call that does not return. An upload is made again by another thread."""
        call.told = True
        why = f"has not returned from {call.method} for {call.limit:.0f} s"
        if call.method == "close":
            self.closed = True
            self.tally.warn("uploader.close", f"{self._destination.label} {why}")
            self.changed.notify_all()
            return
        error = TimeoutError(why)
        if call.task is None or call.file is None:
            self.outages.note_useless(error, f"{self._destination.label} {why}")
            return
        if sum(one.lost for one in self.calls) >= self._limits.lost:
            self.outages.breaker.failed(error)  # nobody is left to try it again
            self.tally.report(call.task.unit.name, f"{call.file.relative_path}: {why}", will_retry=True)
            return
        call.lost = True
        self._start_thread()
        if call.task in self.schedule.tasks:
            self.outages.put_back(call, call.task, call.file, error, f"{call.file.relative_path}: {why}")
        self.changed.notify_all()

    def give_up(self, task: Task, why: str) -> None:
        """Copy nothing more of a unit that was taken out of the schedule, and tell it."""
        self.tally.give_up(task.unit.name, why)
        self._when_done(task.unit)

    def give_all_up(self, why: str) -> None:
        """Copy nothing in this attempt, and tell it once."""
        self.unusable = why
        self.tally.report("", f"{why}; nothing is uploaded in this attempt", will_retry=False)
        tasks, self.schedule.tasks = self.schedule.tasks, []
        for task in tasks:
            self.tally.given_up[task.unit.name] = why
            self._when_done(task.unit)


def _in_words(error: BaseException) -> str:
    """What an uploader has raised, in one line; its type only if it was not raised on purpose."""
    if not isinstance(error, HostcoreError):
        return one_line(error)
    hint = f"; {error.hint}" if error.hint else ""
    return " ".join(f"{error.message}{hint}".split())


def _is_there(unit: Unit, file: UnitFile) -> bool:
    """Whether a file can still be read, and is still the one that it was."""
    return file.path.is_file() and (unit.spooled is not None or is_unchanged(unit))
