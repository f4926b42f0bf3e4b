"""What has become of the units of one uploader, counted, and told to the run's log."""

from collections.abc import Callable

from hostcore.supervisor.uploads.backlog import Copied
from hostcore.supervisor.uploads.schedule import Task
from hostcore.supervisor.uploads.unit import UnitFile
from hostcore_hookspecs import events
from hostcore_hookspecs.uploader import UploadReceipt


class Tally:
    """Counts, and tells.

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
