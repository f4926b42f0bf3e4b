"""The threads that serve one uploader: what they call next, and what becomes of each call.

::

    add(unit) ─▶ queue ─▶ open, upload_artifact, upload_artifact, … close ─▶ ledger, counters ─▶ when_done(unit)
                   ▲                          │
                   └── put back, for later ◀──┘ failure, hang

Unlike events, files have no order among themselves: several are copied at once, one that fails waits while others go
on, and a call that hangs is made again by another thread. These threads are not joined: they are daemons of our own,
since those of an executor are joined when the interpreter ends, and one that hangs would keep the process.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterable

import attrs

from hostcore.plugins.errors import one_line
from hostcore.supervisor.delivery.calls import ONCE, Breaker, Call, Timeouts, call_with_retries, lower_priority
from hostcore.supervisor.delivery.ledger import Ledger
from hostcore.supervisor.delivery.subscription import Destination
from hostcore.supervisor.delivery.units import Unit, UnitFile, is_unchanged
from hostcore.supervisor.delivery.upload_queue import Backlog, Task, UploadCounters, UploadQueue
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import FatalError, HostcoreError, TransientError
from hostcore_hookspecs.uploader import Artifact, UploadContext, UploadReceipt


@attrs.frozen(kw_only=True)
class UploadLimits(Timeouts):
    """The limits of the uploads to one destination."""

    #: A call may take so long, and longer for a large file: ``bytes_per_second`` is no hang.
    hang_seconds: float = 120.0
    bytes_per_second: float = 256 * 1024
    #: An ``open`` that takes longer gets nothing through, as far as the end of a run is concerned.
    open_seconds: float = 20.0
    #: Uploads at once, and calls that may hang beside them; of each uploader.
    at_once: int = 4
    lost: int = 4
    #: The least time between two snapshots of the logs that grow; more if they are long.
    log_seconds: float = 300.0
    #: The event log alone is copied so often while it grows, less often if it is long: it is copied as a whole.
    live_seconds: float = 60.0
    live_bytes_per_second: float = 128 * 1024
    #: How often hangs and retired checkpoints are looked at.
    tick_seconds: float = 1.0
    #: How often a ledger that another process holds is asked for.
    lock_seconds: float = 1.0

    def hang_of(self, size: int) -> float:
        """How long a call may take, in seconds.

        :param size: Of the file, in bytes.
        """
        return self.hang_seconds + size / self.bytes_per_second

    def live_of(self, size: int) -> float:
        """The least time between two copies of the event log, or of all logs, in seconds.

        :param size: Of the log, or of all together, in bytes.
        """
        return max(self.live_seconds, size / self.live_bytes_per_second)


class NotWhatWasSent(HostcoreError):
    """Something else than the artifact was found at its destination."""

    code = "uploads.differs"


class _Gone(FatalError):
    """The file is not where it was."""

    def __init__(self) -> None:
        super().__init__("it was removed or replaced before it was uploaded")


@attrs.define(kw_only=True, eq=False)
class _UploadCall(Call):
    """A call of the uploader that is going on."""

    #: How many artifacts had arrived when it began.
    arrived_before: int
    #: Whether it is the one try of an outage.
    is_probe: bool
    #: What is uploaded; None for ``open`` and ``close``.
    item: tuple[Task, UnitFile] | None = None
    #: Whether it hangs, and is not waited for.
    lost: bool = False


class _Outages:
    """Tells an outage from an artifact that fails by itself, and each of them once."""

    def __init__(self, counters: UploadCounters, limits: UploadLimits, *, clock: Callable[[], float]) -> None:
        self.breaker = Breaker(limits.intervals, clock=clock)
        self._intervals = limits.intervals
        self._counters = counters
        self._clock = clock
        self._count = 0
        self._is_told = False

    def put_back(self, call: _UploadCall, task: Task, file: UnitFile, error: BaseException, why: str) -> None:
        """Have a file tried again. While others get through, it alone has to wait."""
        failures = task.failures.get(file.relative_path, 0) + 1
        task.failures[file.relative_path] = failures
        pause = min(self._intervals.first_seconds * 2 ** min(failures - 1, 16), self._intervals.most_seconds)
        task.put_back(file, until=self._clock() + pause)
        alone = self._counters.files > call.arrived_before
        asked = isinstance(error, TransientError) and bool(error.retry_after_seconds)
        if call.is_probe or (not self.breaker.is_open and (asked or not alone)):
            # An artifact that fails by itself, again and again, is no news each time.
            self._count += self.breaker.failed(error) and task.told_in is None
        task.problem = why
        if task.told_in != self._count:
            task.told_in = self._count
            self._is_told = self._is_told or self.breaker.is_open
            self._counters.report(task.unit.name, why, will_retry=True)

    def note_useless(self, error: BaseException, why: str) -> None:
        """The uploader itself has failed, not with an artifact."""
        if self.breaker.failed(error) or not self._is_told:
            self._count += 1
            self._is_told = True
            self._counters.report("", why, will_retry=True)

    def note_success(self, tasks: Iterable[Task]) -> None:
        """A call has succeeded; an outage is over with that.

        :param tasks: Those that are not done: nothing of them waits any more.
        """
        if not self.breaker.succeeded() and not self._is_told:
            return
        tasks = list(tasks)
        if self._is_told:
            left = sum(len(task.remaining) for task in tasks)
            message = f"{self._counters.label} works again; files to catch up with: {left}"
            self._counters.warn("uploader.recovered", message)
        self._is_told = False
        for task in tasks:
            task.not_before.clear()


class UploadWorkers:
    """Copies units to one destination. All its state is read and changed while ``_changed`` is held.

    :param tell: Takes what the run's log should have of it.
    :param when_done: Called when a unit has arrived, or was given up.
    """

    def __init__(
        self,
        destination: Destination,
        *,
        tell: Callable[[events.Payload], object],
        when_done: Callable[[Unit], object],
        limits: UploadLimits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.destination = destination
        self._when_done = when_done
        self._limits = limits
        self._clock = clock
        self._changed = threading.Condition(threading.RLock())
        self._queue = UploadQueue()
        self._counters = UploadCounters(destination.label, tell)
        self._outages = _Outages(self._counters, limits, clock=clock)
        #: The calls that are going on.
        self._calls: list[_UploadCall] = []
        self._opened = self._closed = False
        #: Why the uploader cannot be used in this attempt.
        self._unusable: str | None = None
        #: Whether no more units will come; whether nothing more is to be copied.
        self._finishing = self._abandoned = False
        self._numbers = itertools.count(1)
        self._started_with: tuple[Ledger, UploadContext] | None = None

    # -- for the scheduler ---------------------------------------------------------------------------------------------

    def start(self, ledger: Ledger, context: UploadContext) -> None:
        """Start the threads."""
        with self._changed:
            self._started_with = ledger, context
            for _ in range(self._limits.at_once):
                self._start_thread()

    def lacks(self, unit: Unit) -> bool:
        """Whether anything of a unit has not arrived, as the ledger has it."""
        return not self._ledger.knows_all(self.destination.key, unit)

    def add(self, unit: Unit) -> None:
        """Take a unit to be copied, as far as the ledger does not know it."""
        ledger, key = self._ledger, self.destination.key
        left = [file for file in unit.files if not ledger.knows(key, file)]
        # A record that is there, while a file of it is not, says too much; it is offered again when they are all there.
        seal = unit.seal if unit.seal is not None and (left or not ledger.knows(key, unit.seal)) else None
        with self._changed:
            if not left and seal is None:
                self._counters.known[unit.name] = None
            elif self._unusable is not None:
                self._counters.given_up[unit.name] = self._unusable
            else:
                self._counters.given_up.pop(unit.name, None)
                self._queue.add(Task(unit=unit, left=left, seal=seal))
                self._changed.notify_all()
                return
        self._when_done(unit)

    def remove(self, unit: Unit, why: str | None = None) -> None:
        """Copy no more of a unit.

        :param why: It is given up, and that is told; None if a newer one of the same name stands for it.
        """
        with self._changed:
            task = self._queue.find(unit)
            if task is not None:
                self._queue.remove(task)
                if why is not None:
                    self._give_up(task, why)
            elif why is not None:
                self._counters.give_up(unit.name, why)
            self._changed.notify_all()

    def has(self, unit: Unit) -> bool:
        """Whether a unit is still to be copied."""
        with self._changed:
            return self._queue.find(unit) is not None

    def is_transferring(self, unit: Unit) -> bool:
        """Whether the copying of a unit has begun, and nothing is in its way now."""
        with self._changed:
            task = self._queue.find(unit)
            return task is not None and bool(task.busy or task.copied_files) and not self._outages.breaker.is_open

    def look(self) -> None:
        """Tell of calls that do not return, and let others take their places."""
        with self._changed:
            now = self._clock()
            for call in self._calls:
                if not call.told and call.is_overdue(now):
                    self._note_hang(call)

    def refuse_all(self, why: str) -> None:
        """Copy nothing in this attempt."""
        with self._changed:
            self._give_all_up(why)
            self._changed.notify_all()

    def hurry(self, *, last: bool) -> None:
        """Time is short: what has failed is tried again now.

        :param last: No more units will come: the uploader is closed after the last of them.
        """
        with self._changed:
            self._finishing = last
            self._outages.breaker.hurry()
            for task in self._queue:
                task.not_before.clear()
            self._changed.notify_all()

    def abandon(self) -> None:
        """Copy nothing more."""
        with self._changed:
            self._abandoned = True
            self._changed.notify_all()

    # -- for all -------------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether everything that was added has arrived or was given up; and, once no more comes, it is closed."""
        with self._changed:
            if self._queue:
                return False
            return self._closed or not self._finishing or not self._opened

    @property
    def is_complete(self) -> bool:
        """Whether everything that was added has arrived."""
        with self._changed:
            return not self._queue and not self._counters.given_up and self._unusable is None

    @property
    def is_stuck(self) -> bool:
        """Whether nothing of what is left gets through. Asked again and again while a run waits for its end."""
        with self._changed:
            is_left = bool(self._queue) or any(call.item is not None and not call.lost for call in self._calls)
            now = self._clock()
            opens = any(one.method == "open" and now - one.since > self._limits.open_seconds for one in self._calls)
            return not is_left or opens or self._outages.breaker.outage_seconds > 0

    @property
    def backlog(self) -> Backlog:
        """What was done and what is left."""
        with self._changed:
            counters, tasks = self._counters, list(self._queue)
            left = [file for task in tasks for file in task.remaining]
            busy = [call.item[1] for call in self._calls if call.item is not None and not call.lost]
            return Backlog(
                files=len(left) + len(busy),
                bytes=sum(file.size for file in (*left, *busy)),
                uploaded_files=counters.files,
                uploaded_bytes=counters.bytes,
                existed_files=counters.existed,
                copied=tuple(counters.copied),
                known=tuple(counters.known),
                left=[task.unit.name for task in tasks],
                failing={task.unit.name: task.problem for task in tasks if task.problem},
                given_up=dict(counters.given_up),
                unusable=self._unusable,
                outage_seconds=self._outages.breaker.outage_seconds,
            )

    # -- in the threads ------------------------------------------------------------------------------------------------

    @property
    def _ledger(self) -> Ledger:
        assert self._started_with is not None, "start comes first"
        return self._started_with[0]

    def _start_thread(self) -> None:
        name = f"hostcore upload {self.destination.name} {next(self._numbers)}"
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

    def _perform(self, call: _UploadCall) -> UploadReceipt | None:
        # The probe of an outage is a single call; before it, a few retries may keep it from being one.
        quick = ONCE if call.is_probe or call.method == "close" or self._abandoned else self._limits.quick
        if call.method == "open":
            assert self._started_with is not None
            call_with_retries(self.destination.open, self._started_with[1], limits=quick)
            return None
        if call.item is None:
            call_with_retries(self.destination.close, limits=quick)
            return None
        task, file = call.item
        if not _is_there(task.unit, file):
            raise _Gone
        return call_with_retries(_transfer, self.destination.upload_artifact, task.unit.artifact(file), limits=quick)

    def _next(self) -> _UploadCall | None:
        """The next call to make; None when there will be none."""
        with self._changed:
            while True:
                if self._is_over():
                    return None
                call, wait = self._choose()
                if call is not None:
                    self._calls.append(call)
                    return call
                self._changed.wait(wait)

    def _is_over(self) -> bool:
        if self._closed or self._unusable is not None:
            return True
        return self._abandoned and (not self._opened or any(not call.lost for call in self._calls))

    def _choose(self) -> tuple[_UploadCall | None, float | None]:
        """A call to make now, or how long to wait for one; for ever, if None."""
        going = [call for call in self._calls if not call.lost]
        if not self._opened:
            return (None, None) if self._calls else self._admitted("open", None)
        if self._abandoned or (self._finishing and not self._queue):
            return (None if going else self._new_call("close", None)), None
        busy = {call.item[1].relative_path for call in going if call.item is not None}
        now = self._clock()
        item = self._queue.next(now, busy=busy, probing=self._outages.breaker.is_open)
        if item is None:
            return None, self._queue.wait_seconds(now, busy=busy)
        return self._admitted("upload_artifact", item)

    def _admitted(self, method: str, item: tuple[Task, UnitFile] | None) -> tuple[_UploadCall | None, float | None]:
        seconds = self._outages.breaker.admit()
        return (None, seconds) if seconds else (self._new_call(method, item), None)

    def _new_call(self, method: str, item: tuple[Task, UnitFile] | None) -> _UploadCall:
        if item is not None:
            task, file = item
            task.begin(file)
        return _UploadCall(
            method=method,
            since=self._clock(),
            limit=self._limits.hang_of(item[1].size if item else 0),
            arrived_before=self._counters.files,
            is_probe=self._outages.breaker.is_open,
            item=item,
        )

    def _settle(self, call: _UploadCall, receipt: UploadReceipt | None, error: BaseException | None) -> bool:
        """Take in how a call has ended.

        :return: Whether its thread was replaced, and is to end.
        """
        # Files are looked at and written before the lock is taken, for which the supervisor's loop may wait.
        if call.item is not None and receipt is not None:
            self._note_in_ledger(*call.item, receipt)
        elif call.item is not None and not _is_there(call.item[0].unit, call.item[1]):
            error = _Gone()
        with self._changed:
            self._calls.remove(call)
            if call.method == "close":
                self._closed = True
                if error is not None:
                    told = f"{self.destination.label} could not be closed: {_in_words(error)}"
                    self._counters.warn("uploader.close", told)
            elif error is not None:
                if not call.lost:
                    self._note_failure(call, error)
            else:
                self._outages.note_success(self._queue)
                if call.item is None or receipt is None:
                    self._opened = True
                else:
                    self._note_arrival(*call.item, receipt, was_lost=call.lost)
            self._changed.notify_all()
        return call.lost

    def _note_in_ledger(self, task: Task, file: UnitFile, receipt: UploadReceipt) -> None:
        try:
            self._ledger.note(self.destination, task.unit, file, uri=receipt.uri)
            if not task.remaining:
                self._ledger.sync()
        except OSError as error:
            self._counters.warn("uploads.ledger", f"what was uploaded could not be written down: {error}")

    def _note_arrival(self, task: Task, file: UnitFile, receipt: UploadReceipt, *, was_lost: bool) -> None:
        """Count a file as arrived, and its unit, if it was the last one."""
        if not was_lost:
            task.busy -= 1
        elif task.seal is file:
            task.seal = None
        elif file in task.left:
            task.left.remove(file)
        else:
            return  # another call was made for it meanwhile
        self._counters.count(task, file, receipt)
        if task.is_done and task in self._queue:
            self._queue.remove(task)
            self._counters.complete(task)
            self._when_done(task.unit)

    def _note_failure(self, call: _UploadCall, error: BaseException) -> None:
        is_fatal = isinstance(error, FatalError)
        if call.item is None:
            if is_fatal:
                self._give_all_up(_in_words(error))
            elif not self._abandoned:
                self._outages.note_useless(error, f"{call.method}: {_in_words(error)}")
            return
        task, file = call.item
        if task not in self._queue:  # removed meanwhile
            task.busy -= 1
            return
        why = error.message if isinstance(error, _Gone) else f"{file.relative_path}: {_in_words(error)}"
        if self._abandoned:
            task.put_back(file, until=0.0)
        elif is_fatal:
            task.busy -= 1
            self._queue.remove(task)
            self._give_up(task, why)
        else:
            self._outages.put_back(call, task, file, error, why)

    def _note_hang(self, call: _UploadCall) -> None:
        """Tell of a call that does not return. An upload is made again by another thread."""
        call.told = True
        why = call.in_words
        if call.method == "close":
            self._closed = True
            self._counters.warn("uploader.close", f"{self.destination.label} {why}")
            self._changed.notify_all()
            return
        error = TimeoutError(why)
        if call.item is None:
            self._outages.note_useless(error, f"{self.destination.label} {why}")
            return
        task, file = call.item
        if sum(one.lost for one in self._calls) >= self._limits.lost:
            self._outages.breaker.failed(error)  # no thread is left to try it again
            self._counters.report(task.unit.name, f"{file.relative_path}: {why}", will_retry=True)
            return
        call.lost = True
        self._start_thread()
        if task in self._queue:
            self._outages.put_back(call, task, file, error, f"{file.relative_path}: {why}")
        self._changed.notify_all()

    def _give_up(self, task: Task, why: str) -> None:
        """Copy nothing more of a unit that was taken out of the queue, and tell it."""
        self._counters.give_up(task.unit.name, why)
        self._when_done(task.unit)

    def _give_all_up(self, why: str) -> None:
        """Copy nothing in this attempt, and tell it once."""
        self._unusable = why
        self._counters.report("", f"{why}; nothing is uploaded in this attempt", will_retry=False)
        for task in self._queue.clear():
            self._counters.given_up[task.unit.name] = why
            self._when_done(task.unit)


def _transfer(upload_artifact: Callable[[Artifact], UploadReceipt], artifact: Artifact) -> UploadReceipt:
    """Upload an artifact, and compare what was found at its destination with it.

    :raises NotWhatWasSent: When its size or SHA-256 is another.
    :raises FatalError: When what the uploader returns is no receipt.
    :raises BaseException: Whatever the uploader raises.
    """
    receipt = upload_artifact(artifact)
    if not isinstance(receipt, UploadReceipt) or not isinstance(receipt.uri, str):
        found = "a receipt without a URI" if isinstance(receipt, UploadReceipt) else type(receipt).__name__
        raise FatalError(f"upload_artifact returned {found}, not an UploadReceipt")
    if receipt.size != artifact.size:
        raise NotWhatWasSent(f"{receipt.size} bytes were found at {receipt.uri}, where {artifact.size} were sent")
    if receipt.sha256 and receipt.sha256.lower() != artifact.sha256:
        raise NotWhatWasSent(f"the content found at {receipt.uri} is not what was sent (SHA-256 differs)")
    return receipt


def _in_words(error: BaseException) -> str:
    """What an uploader has raised, in one line; its type only if it was not raised on purpose."""
    if not isinstance(error, HostcoreError):
        return one_line(error)
    hint = f"; {error.hint}" if error.hint else ""
    return " ".join(f"{error.message}{hint}".split())


def _is_there(unit: Unit, file: UnitFile) -> bool:
    """Whether a file can still be read, and is still the one that it was."""
    return file.path.is_file() and (unit.spooled is not None or is_unchanged(unit))
