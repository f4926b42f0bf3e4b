"""What one uploader is to copy next: units in their order, the files of each in parallel, its seal last."""

from collections.abc import Iterator

import attrs

from hostcore.supervisor.uploads.unit import Turn, Unit, UnitFile


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
    #: When a file that has failed may be tried again, by path; on the clock of the schedule.
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


class Schedule:
    """The tasks of one destination that are not done, in their order."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []

    def add(self, task: Task) -> None:
        """Put a task behind those of the same turn."""
        position = sum(other.unit.turn <= task.unit.turn for other in self.tasks)
        self.tasks.insert(position, task)

    def find(self, unit: Unit) -> Task | None:
        """The task of a unit; None if it is done or was never added."""
        return next((task for task in self.tasks if task.unit is unit), None)

    def candidates(self) -> Iterator[tuple[Task, UnitFile]]:
        """All files that may be copied now, those that should come first first.

        What comes first is waited for until it has arrived or has failed: an outage of its own must not keep the rest.
        """
        first_is_missing = log_is_missing = False
        for task in self.tasks:
            turn = task.unit.turn
            if (turn > Turn.FIRST and first_is_missing) or (turn is Turn.LAST and task is not self.tasks[0]):
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
        found = [(task, file) for task, file in self.candidates() if file.relative_path not in busy]
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
