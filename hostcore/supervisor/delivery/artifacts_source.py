# ruff: noqa: D102 - a method without a docstring has that of Source
"""The source of one uploader: the next file that the ledger lacks, commit records last; a failure goes to the end.

::

    add(unit) ─▶ queue ─▶ upload_artifact ─▶ ledger ─▶ when_done(unit)
                   ▲             │
                   └─────────────┘ failure

Unlike events, files have no order among themselves, but for the seal of a unit, which is its commit record.
"""

import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Final

import attrs

from hostcore.plugins.errors import one_line
from hostcore.supervisor.delivery.backlog import Backlog, Copied
from hostcore.supervisor.delivery.ledger import Ledger
from hostcore.supervisor.delivery.source import Call, DeliveryLimits, Emit, Hang, Item, Source
from hostcore.supervisor.delivery.subscription import Destination
from hostcore.supervisor.delivery.units import Priority, Unit, UnitFile, is_unchanged
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import FatalError, HostcoreError
from hostcore_hookspecs.uploader import Artifact, UploadReceipt

_METHOD: Final = "upload_artifact"


@attrs.frozen(kw_only=True)
class UploadLimits(DeliveryLimits):
    """The limits of the uploads to one destination."""

    #: A call may take so long, and longer for a large file: ``bytes_per_second`` is no hang.
    hang_seconds: float = 120.0
    bytes_per_second: float = 256 * 1024
    #: An ``open`` that takes longer gets nothing through, as far as the end of a run is concerned.
    open_seconds: float = 20.0
    at_once: int = 4
    lost: int = 4
    #: Bytes of retired checkpoints that may wait; 0: no limit.
    spool_bytes: int = 0
    #: The time that a checkpoint may wait, unless it is the newest; 0: no limit.
    spool_seconds: float = 0.0
    #: The least time between two snapshots of the logs that grow; more if they are long.
    log_seconds: float = 300.0
    #: The event log alone is copied so often while it grows, less often if it is long: it is copied as a whole.
    live_seconds: float = 60.0
    live_bytes_per_second: float = 128 * 1024
    #: Between two looks at hangs and retired checkpoints.
    tick_seconds: float = 1.0
    #: Between two tries to get a ledger that another process holds.
    lock_seconds: float = 1.0

    def live_of(self, size: int) -> float:
        """Return the least time between two copies of the event log, or of all logs, in seconds.

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
class _FileItem(Item):
    """A file on its way to the destination."""

    task: "_UnitTask"
    file: UnitFile

    @property
    def path(self) -> str:
        """Its path at the destination."""
        return self.file.relative_path


@attrs.define(eq=False)
class _UnitTask:
    """A unit on its way to the destination."""

    unit: Unit
    #: Files that have not arrived, the seal apart.
    left: list[_FileItem] = attrs.field(factory=list)
    seal: _FileItem | None = None
    #: The last failure; None if nothing has failed since something arrived.
    problem: str | None = None
    #: Files that arrived.
    copied_files: int = 0
    copied_bytes: int = 0
    uri: str = ""

    @property
    def items(self) -> list[_FileItem]:
        """The files that have not arrived."""
        return self.left if self.seal is None else [*self.left, self.seal]

    @property
    def ready(self) -> Iterator[_FileItem]:
        """The files that may be copied now, as far as this unit is concerned."""
        return (item for item in self.left or filter(None, [self.seal]) if not item.is_busy)

    def arrive(self, item: _FileItem, receipt: UploadReceipt) -> None:
        """Note that a file has arrived."""
        if item is self.seal:
            self.seal = None
        else:
            self.left.remove(item)
        self.problem, self.uri = None, receipt.uri
        self.copied_files += 1
        self.copied_bytes += item.file.size


class ArtifactSource(Source[_FileItem]):
    """The files of the units that were added, as far as the ledger does not know them. Thousands may wait.

    :param when_done: Called when a unit has arrived, or was given up.
    """

    def __init__(
        self,
        destination: Destination,
        *,
        when_done: Callable[[Unit], object],
        limits: UploadLimits,
        emit: Emit,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(destination, limits=limits, emit=emit, clock=clock)
        self.destination = destination
        self._when_done = when_done
        self._held: Ledger | None = None
        self._queue: dict[Priority, dict[Unit, _UnitTask]] = {priority: {} for priority in Priority}
        #: Files that have arrived, and how many of them were there before.
        self._files = self._existed = 0
        self._bytes = 0
        self._copied: list[Copied] = []
        #: Names of units of which the ledger knew everything; a set that keeps its order.
        self._known: dict[str, None] = {}
        #: Reasons for which units were given up, by name.
        self._given_up: dict[str, str] = {}

    # -- for the scheduler ---------------------------------------------------------------------------------------------

    def hold(self, ledger: Ledger) -> None:
        """Begin to use the ledger, which this process holds."""
        self._held = ledger

    @property
    def _ledger(self) -> Ledger:
        assert self._held is not None, "the ledger comes first"
        return self._held

    def lacks(self, unit: Unit) -> bool:
        """Return True if anything of a unit has not arrived, as the ledger has it."""
        return not self._ledger.knows_all(self.destination.key, unit)

    def add(self, unit: Unit) -> None:
        """Take a unit to be copied, as far as the ledger does not know it."""
        task = self._task(unit)
        with self.changed:
            if not task.items:
                self._known[unit.name] = None
            elif self.refused is not None:
                self._given_up[unit.name] = self.refused
            else:
                self._given_up.pop(unit.name, None)
                self._queue[unit.priority][unit] = task
                self.changed.notify_all()
                return
        self._when_done(unit)

    def _task(self, unit: Unit) -> _UnitTask:
        ledger, key, task = self._ledger, self.destination.key, _UnitTask(unit)
        task.left = [self._item(task, file) for file in unit.files if not ledger.knows(key, file)]
        # A record whose files are not all there would promise too much: it is uploaded again behind them.
        if unit.seal is not None and (task.left or not ledger.knows(key, unit.seal)):
            task.seal = self._item(task, unit.seal)
        return task

    def _item(self, task: _UnitTask, file: UnitFile) -> _FileItem:
        call = partial(self._upload, task, file)
        return _FileItem(name=task.unit.name, method=_METHOD, size=file.size, call=call, task=task, file=file)

    def remove(self, unit: Unit, why: str | None = None) -> None:
        """Copy no more of a unit.

        :param why: It is given up, and that is emitted; None if a newer one of the same name stands for it.
        """
        with self.changed:
            was_queued = self._queue[unit.priority].pop(unit, None) is not None
            if why is not None:
                self._given_up[unit.name] = why
                self.emit(self._failed(unit.name, why, will_retry=False))
                if was_queued:
                    self._when_done(unit)
            self.changed.notify_all()

    def has(self, unit: Unit) -> bool:
        """Return True if a unit is still to be copied."""
        with self.changed:
            return unit in self._queue[unit.priority]

    def has_begun(self, unit: Unit) -> bool:
        """Return True if a unit is being copied."""
        with self.changed:
            task = self._queue[unit.priority].get(unit)
            return task is not None and (bool(task.copied_files) or any(item.is_busy for item in task.items))

    @property
    def is_complete(self) -> bool:
        """True if everything that was added has arrived."""
        with self.changed:
            return self.is_empty and not self._given_up and self.refused is None

    def backlog(self, outage_seconds: float) -> Backlog:
        """Return what was done and what is left."""
        with self.changed:
            tasks = list(self._tasks())
            left = [item.file for task in tasks for item in task.items]
            return Backlog(
                files=len(left),
                bytes=sum(file.size for file in left),
                uploaded_files=self._files,
                uploaded_bytes=self._bytes,
                existed_files=self._existed,
                copied=tuple(self._copied),
                known=tuple(self._known),
                left=[task.unit.name for task in tasks],
                failing={task.unit.name: task.problem for task in tasks if task.problem},
                given_up=dict(self._given_up),
                unusable=self.refused,
                outage_seconds=outage_seconds,
            )

    # -- for the subscriber --------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not any(self._queue.values())

    def next(self, now: float, *, busy: Collection[_FileItem], probing: bool) -> _FileItem | None:
        found = self._candidates(busy)
        if probing:  # any file, and the one that has waited longest
            return min(found, key=lambda item: item.not_before, default=None)
        return next((item for item in found if item.not_before <= now), None)

    def wait_seconds(self, now: float, *, busy: Collection[_FileItem]) -> float | None:
        waits = [item.not_before - now for item in self._candidates(busy)]
        return max(0.0, min(waits)) if waits else None

    def _tasks(self) -> Iterator[_UnitTask]:
        for tasks in self._queue.values():
            yield from tasks.values()

    def _candidates(self, busy: Collection[_FileItem]) -> Iterator[_FileItem]:
        """Yield the files that may be copied now, those that should come first first.

        Each unit that comes first is waited for until it has arrived or has failed: an outage of its own must not keep
        the rest.
        Two files are never copied to one name at once: a unit may be replaced by a newer version of itself.
        """
        paths = {item.path for item in busy}
        first_is_missing = log_is_missing = False
        for task in self._tasks():
            priority = task.unit.priority
            if first_is_missing:
                return
            if priority is Priority.LAST and task is not next(self._tasks()):
                return
            for item in task.ready:
                if item.path not in paths and (item is not task.seal or not log_is_missing):
                    yield item
            hopeful = task.problem is None
            first_is_missing = first_is_missing or (priority is Priority.FIRST and hopeful)
            log_is_missing = log_is_missing or (task.unit.is_log and hopeful)

    def wants(self, item: _FileItem) -> bool:
        task = item.task
        return self._queue[task.unit.priority].get(task.unit) is task and item in task.items

    def taken(self, item: _FileItem, result: UploadReceipt) -> None:
        task = item.task
        task.arrive(item, result)
        self._files += 1
        self._bytes += item.file.size
        self._existed += result.existed
        if not task.items and self._queue[task.unit.priority].pop(task.unit, None) is not None:
            self._complete(task)

    def _complete(self, task: _UnitTask) -> None:
        unit = task.unit
        self._copied.append(Copied(path=unit.name, uri=task.uri, files=task.copied_files, bytes=task.copied_bytes))
        if not unit.is_log:
            self.emit(events.ArtifactUploaded(path=unit.name, uri=task.uri, uploader=self.destination.label))
        self._when_done(unit)

    def put_back(self, item: _FileItem, *, until: float) -> None:
        item.not_before = until
        if item is not item.task.seal:
            item.task.left.remove(item)
            item.task.left.append(item)

    def retry_now(self) -> None:
        for task in self._tasks():
            for item in task.items:
                item.not_before = 0.0

    def give_up(self, item: _FileItem, problem: str) -> None:
        self.remove(item.task.unit, problem)

    def refuse(self, problem: str) -> None:
        with self.changed:
            self.refused = problem
            self.emit(self._failed("", f"{problem}; nothing is uploaded in this attempt", will_retry=False))
            tasks = list(self._tasks())
            for queue in self._queue.values():
                queue.clear()
            for task in tasks:
                self._given_up[task.unit.name] = problem
                self._when_done(task.unit)
            self.changed.notify_all()

    def is_last(self, item: _FileItem) -> bool:
        return len(item.task.left) + (item.task.seal is not None) == 1

    def words(self, error: BaseException) -> str:
        return _in_words(error)

    def described(self, call: Call[_FileItem], error: BaseException, words: str) -> str:
        if call.method == "close":
            return f"{self.destination.label} {words if isinstance(error, Hang) else f'could not be closed: {words}'}"
        if call.item is None:
            is_fatal = isinstance(error, FatalError)
            return words if is_fatal else f"{self.destination.label if isinstance(error, Hang) else 'open:'} {words}"
        call.item.task.problem = problem = words if isinstance(error, _Gone) else f"{call.item.path}: {words}"
        return problem

    def failure(self, name: str, problem: str) -> events.Payload:
        return self._failed(name, problem, will_retry=True)

    def _failed(self, name: str, message: str, *, will_retry: bool) -> events.UploadFailed:
        return events.UploadFailed(path=name, uploader=self.destination.label, message=message, will_retry=will_retry)

    def recovered(self, seconds: float) -> events.Payload:  # noqa: ARG002
        left = sum(not item.is_busy for task in self._tasks() for item in task.items)
        message = f"{self.destination.label} works again; files to catch up with: {left}"
        return events.Warning(code="uploader.recovered", message=message)

    def close_failure(self, problem: str, *, in_outage: bool) -> events.Payload:  # noqa: ARG002
        return events.Warning(code="uploader.close", message=problem)

    # -- in the threads of the subscriber ------------------------------------------------------------------------------

    def _upload(self, task: _UnitTask, file: UnitFile) -> UploadReceipt:
        """Upload a file, and note its arrival in the ledger."""
        unit = task.unit
        if not _is_there(unit, file):
            raise _Gone
        try:
            receipt = _transfer(self.destination.upload_artifact, unit.artifact(file))
        except BaseException:
            if not _is_there(unit, file):
                raise _Gone from None
            raise
        try:
            self._ledger.note(self.destination, unit, file, uri=receipt.uri)
            if all(item.is_busy for item in task.items):
                self._ledger.sync()
        except OSError as error:
            message = f"what was uploaded could not be written down: {error}"
            self.emit(events.Warning(code="uploads.ledger", message=message))
        return receipt


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
    """Return what an uploader has raised, in one line; its type only if it was not raised on purpose."""
    if not isinstance(error, HostcoreError):
        return one_line(error)
    hint = f"; {error.hint}" if error.hint else ""
    return " ".join(f"{error.message}{hint}".split())


def _is_there(unit: Unit, file: UnitFile) -> bool:
    """Return True if a file can still be read, and is still the one that it was."""
    return file.path.is_file() and (unit.spooled is not None or is_unchanged(unit))
