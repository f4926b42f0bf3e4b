"""The queue of one uploader: units in their order, files of each in parallel, its seal last; and what it has done."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from hostcore.supervisor.delivery.units import Turn, Unit, UnitFile
from hostcore_hookspecs import events
from hostcore_hookspecs.uploader import UploadReceipt


@attrs.define(eq=False)
class Task:
    """A unit on its way to one destination."""

    unit: Unit
    #: Still to be copied, not counting what is being copied.
    left: list[UnitFile]
    #: The seal, until it is begun.
    seal: UnitFile | None
    #: Files that are being copied.
    busy: int = 0
    #: When a file that has failed may be tried again, by path; on the clock of the workers.
    not_before: dict[str, float] = attrs.field(factory=dict)
    failures: dict[str, int] = attrs.field(factory=dict)
    #: What went wrong last; None if nothing has since something succeeded.
    problem: str | None = None
    #: In which outage its failure was told last; they are counted.
    told_in: int | None = None
    #: Files that arrived, and what they came to.
    copied_files: int = 0
    copied_bytes: int = 0
    uri: str = ""

    @property
    def is_done(self) -> bool:
        """Whether everything has arrived."""
        return not self.left and self.seal is None and not self.busy

    @property
    def remaining(self) -> list[UnitFile]:
        """Files whose copying has not begun, or has failed."""
        return self.left if self.seal is None else [*self.left, self.seal]

    @property
    def ready(self) -> list[UnitFile]:
        """What may be copied now, as far as this unit is concerned."""
        if self.left:
            return self.left
        return [self.seal] if self.seal is not None and not self.busy else []

    def begin(self, file: UnitFile) -> None:
        """Take a file as being copied."""
        if file is self.seal:
            self.seal = None
        else:
            self.left.remove(file)
        self.busy += 1

    def put_back(self, file: UnitFile, *, until: float) -> None:
        """A file that was begun is to be copied again."""
        self.busy -= 1
        self.not_before[file.relative_path] = until
        if self.unit.seal is not None and file.relative_path == self.unit.seal.relative_path:
            self.seal = file
        else:
            self.left.append(file)


class UploadQueue:
    """The tasks of one destination that are not done, in their order. Thousands may wait for the end of an outage."""

    def __init__(self) -> None:
        self._turns: dict[Turn, dict[Unit, Task]] = {turn: {} for turn in Turn}

    def __iter__(self) -> Iterator[Task]:
        for tasks in self._turns.values():
            yield from tasks.values()

    def __len__(self) -> int:
        return sum(map(len, self._turns.values()))

    def __contains__(self, task: Task) -> bool:
        return self.find(task.unit) is task

    def add(self, task: Task) -> None:
        """Put a task behind those of the same turn."""
        self._turns[task.unit.turn][task.unit] = task

    def find(self, unit: Unit) -> Task | None:
        """The task of a unit; None if it is done or was never added."""
        return self._turns[unit.turn].get(unit)

    def remove(self, task: Task) -> None:
        """Take a task out, which is there."""
        del self._turns[task.unit.turn][task.unit]

    def clear(self) -> list[Task]:
        """Take all out."""
        tasks = list(self)
        for of_turn in self._turns.values():
            of_turn.clear()
        return tasks

    def candidates(self) -> Iterator[tuple[Task, UnitFile]]:
        """All files that may be copied now, those that should come first first.

        What comes first is waited for until it has arrived or has failed: an outage of its own must not keep the rest.
        """
        first_is_missing = log_is_missing = False
        for task in self:
            turn = task.unit.turn
            if (turn > Turn.FIRST and first_is_missing) or (turn is Turn.LAST and task is not next(iter(self))):
                return
            for file in task.ready:
                if file is not task.seal or not log_is_missing:
                    yield task, file
            hopeful = task.problem is None
            first_is_missing = first_is_missing or (turn is Turn.FIRST and hopeful)
            log_is_missing = log_is_missing or (task.unit.is_log and hopeful)

    def next(self, now: float, *, busy: set[str], probing: bool) -> tuple[Task, UnitFile] | None:
        """The file to copy now.

        :param busy: Paths that are being copied: never two at once to one name.
        :param probing: Whether it is the one try of an outage: then any file, and the one that has waited longest.
        """
        found = (one for one in self.candidates() if one[1].relative_path not in busy)
        if probing:
            return min(found, key=lambda one: one[0].not_before.get(one[1].relative_path, 0.0), default=None)
        return next((one for one in found if one[0].not_before.get(one[1].relative_path, 0.0) <= now), None)

    def wait_seconds(self, now: float, *, busy: set[str]) -> float | None:
        """Until when the next file that has failed may be tried again; None if nothing waits."""
        waits = [
            task.not_before.get(file.relative_path, 0.0) - now
            for task, file in self.candidates()
            if file.relative_path not in busy
        ]
        return max(0.0, min(waits)) if waits else None


class UploadCounters:
    """What has become of the units of one uploader: counted, and told to the run's log.

    :param label: How messages name the uploader.
    :param tell: Takes what the run's log should have.
    """

    def __init__(self, label: str, tell: Callable[[events.Payload], object]) -> None:
        self.label = label
        self._tell = tell
        #: Files that have arrived, and how many of them were there before.
        self.files = self.existed = 0
        self.bytes = 0
        self.copied: list[Copied] = []
        #: Names of units of which the ledger knew everything; a set that keeps its order.
        self.known: dict[str, None] = {}
        #: Why units were given up, by name.
        self.given_up: dict[str, str] = {}

    def count(self, task: Task, file: UnitFile, receipt: UploadReceipt) -> None:
        """A file has arrived."""
        self.files += 1
        self.bytes += file.size
        self.existed += receipt.existed
        task.problem, task.uri = None, receipt.uri
        if task.failures.pop(file.relative_path, 0):
            task.told_in = None  # should it fail again, that is another story
        task.copied_files += 1
        task.copied_bytes += file.size

    def complete(self, task: Task) -> None:
        """A unit has arrived."""
        unit = task.unit
        self.copied.append(Copied(path=unit.name, uri=task.uri, files=task.copied_files, bytes=task.copied_bytes))
        if not unit.is_log:
            self._tell(events.ArtifactUploaded(path=unit.name, uri=task.uri, uploader=self.label))

    def give_up(self, name: str, why: str) -> None:
        """A unit will not arrive in this attempt."""
        self.given_up[name] = why
        self.report(name, why, will_retry=False)

    def report(self, path: str, message: str, *, will_retry: bool) -> None:
        """Tell of a failure."""
        self._tell(events.UploadFailed(path=path, uploader=self.label, message=message, will_retry=will_retry))

    def warn(self, code: str, message: str) -> None:
        """Tell of something else."""
        self._tell(events.Warning(code=code, message=message))


@attrs.frozen(kw_only=True)
class Copied:
    """A unit that has arrived."""

    #: As events have it.
    path: str
    #: Where its last file is: of a checkpoint, its commit record.
    uri: str
    #: Those that were copied now; others of it may have been there.
    files: int
    bytes: int


@attrs.frozen(kw_only=True)
class Backlog:
    """What one uploader has done in this attempt, and what it has left to do."""

    #: Left to copy; what was given up does not count.
    files: int = 0
    bytes: int = 0
    #: Arrived.
    uploaded_files: int = 0
    uploaded_bytes: int = 0
    #: Of ``uploaded_files``: were there before with the same content, and not written again.
    existed_files: int = 0
    copied: Sequence[Copied] = ()
    #: The paths of units of which the ledger knew all files.
    known: Sequence[str] = ()
    #: The paths of units that are still to be copied.
    left: Sequence[str] = ()
    #: What went wrong last with those of them that are tried again.
    failing: Mapping[str, str] = attrs.field(factory=dict)
    #: Why units were given up, by path.
    given_up: Mapping[str, str] = attrs.field(factory=dict)
    #: Why the uploader cannot be used in this attempt; None if it can.
    unusable: str | None = None
    #: How long nothing has got through, in seconds; 0 without an outage.
    outage_seconds: float = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether everything that there was has arrived."""
        return not self.left and not self.given_up and self.unusable is None

    @property
    def is_failing(self) -> bool:
        """Whether there is something left, and nothing of it gets through."""
        return bool(self.left) and (self.outage_seconds > 0 or len(self.failing) == len(self.left))


@attrs.frozen(kw_only=True)
class Pending:
    """What is left to copy, by the names of the uploaders."""

    by_uploader: Mapping[str, Backlog]

    @property
    def is_complete(self) -> bool:
        """Whether everything that there was has arrived everywhere."""
        return all(one.is_complete for one in self.by_uploader.values())

    @property
    def files(self) -> int:
        """Left to copy, all uploaders together."""
        return sum(one.files for one in self.by_uploader.values())

    @property
    def bytes(self) -> int:
        """Left to copy, all uploaders together."""
        return sum(one.bytes for one in self.by_uploader.values())

    @property
    def uploaded_files(self) -> int:
        """Arrived in this attempt, all uploaders together."""
        return sum(one.uploaded_files for one in self.by_uploader.values())

    @property
    def uploaded_bytes(self) -> int:
        """Arrived in this attempt, all uploaders together."""
        return sum(one.uploaded_bytes for one in self.by_uploader.values())
