"""The files of a run that others may have, where its directory is seen from here."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, Protocol

import attrs

from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.find import load_record
from hostcore.checkpoints.names import record_name
from hostcore.checkpoints.record import CommitRecord
from hostcore.events.regular_file import open_below
from hostcore.runs.directory import RunDirectory
from hostcore.supervisor.run_status import CommittedCheckpoint, checkpoints_in
from hostcore_hookspecs.errors import HostcoreError
from hostcore_service.jobs.downloads import FileContent, from_descriptor

#: What is listed at the most.
MOST: Final = 10_000

#: The job as it was run: of its folder, the one file that others may have.
RECORD: Final = "config/run.json"
#: The files that hostcore itself runs a run by. Clients do not get them; checkpoints have routes of their own.
_OWN: Final = frozenset(
    {"attempts", "checkpoints", "config", "control", "cursors", "spool", "lease.json", "uploads.jsonl"}
)
_UNFINISHED: Final = (".tmp", ".lock", ".part")


class NoSuchFile(HostcoreError):
    """There is no such file, or none that others may have."""

    code = "file.unknown"


@attrs.frozen(kw_only=True)
class ArtifactFile:
    """A file."""

    #: Below the run directory.
    path: str
    bytes: int
    modified_ms: int | None


class RunFiles(Protocol):
    """The files of a run, wherever they lie."""

    def checkpoints(self) -> Sequence[CommittedCheckpoint]:
        """The committed checkpoints, oldest first."""

    def record(self, step: int) -> CommitRecord:
        """The commit record of a checkpoint.

        :raises CheckpointError: When there is none.
        """

    def open_of_checkpoint(self, record: CommitRecord, path: str) -> FileContent:
        """A file that a commit record names.

        :raises HostcoreError: When it is not there.
        """

    def artifacts(self) -> Iterator[ArtifactFile]:
        """The other files, by path."""

    def open(self, path: str) -> FileContent:
        """One of the other files.

        :param path: See :func:`require_artifact`.
        :raises HostcoreError: When it is not there.
        """


def is_artifact(path: str) -> bool:
    """Return whether a path below a run directory may be an artifact's: no part of it is hidden or leads elsewhere."""
    parts = path.split("/")
    if not all(part and not part.startswith(".") and "\0" not in part for part in parts):
        return False
    return path == RECORD or not (parts[0] in _OWN or path.endswith(_UNFINISHED))


def require_artifact(path: str) -> None:
    """See that a path may be one of an artifact.

    :raises NoSuchFile: When it may not.
    """
    if not is_artifact(path):
        raise no_such(path)


def no_such(path: str) -> NoSuchFile:
    """The error for a path."""
    return NoSuchFile(
        f"there is no file {path!r:.300}", hint="GET …/artifacts and GET …/checkpoints list what there is"
    )


@attrs.frozen
class LocalFiles:
    """Files of a run directory, and of nothing outside of it: its job may have written links and paths into them."""

    directory: RunDirectory

    def checkpoints(self) -> Sequence[CommittedCheckpoint]:
        """See :class:`RunFiles`."""
        return sorted(checkpoints_in(self.directory.checkpoints), key=lambda one: one.step)

    def record(self, step: int) -> CommitRecord:
        """See :class:`RunFiles`."""
        path = self.directory.checkpoints / record_name(step)
        if not path.exists():
            raise CheckpointError(f"there is no checkpoint of step {step}", code="checkpoint.not_found")
        return load_record(path).record

    def open_of_checkpoint(self, record: CommitRecord, path: str) -> FileContent:
        """See :class:`RunFiles`."""
        return _opened(self.directory.path, f"checkpoints/{record.folder_name}/{path}", path)

    def artifacts(self) -> Iterator[ArtifactFile]:
        """See :class:`RunFiles`."""
        record = self.directory.record
        if record.is_file() and not record.is_symlink():
            yield _artifact(RECORD, record.lstat())
        yield from _walked(self.directory.path, "")

    def open(self, path: str) -> FileContent:
        """See :class:`RunFiles`."""
        return _opened(self.directory.path, path, path)


def _walked(folder: Path, below: str) -> Iterator[ArtifactFile]:
    """All artifacts of a folder, by path; links are none.

    :param below: What their paths begin with; with ``/`` at its end.
    """
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return  # it is not there, or was removed just now
    for entry in entries:
        name = f"{below}{entry.name}"
        try:
            if not is_artifact(name):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _walked(Path(entry.path), f"{name}/")
            elif entry.is_file(follow_symlinks=False):
                yield _artifact(name, entry.stat(follow_symlinks=False))
        except FileNotFoundError:
            continue


def _artifact(name: str, status: os.stat_result) -> ArtifactFile:
    return ArtifactFile(path=name, bytes=status.st_size, modified_ms=status.st_mtime_ns // 1_000_000)


def _opened(folder: Path, below: str, path: str) -> FileContent:
    """A regular file below a folder, opened without following a link on the way.

    :param path: What it was asked for as.
    :raises NoSuchFile: When there is none.
    """
    try:
        with open_below(folder, PurePosixPath(below).parts) as file:
            return from_descriptor(os.dup(file.fileno()), path.rpartition("/")[2])
    except (OSError, ValueError) as error:  # also a name that no file system can have
        raise no_such(path) from error
