"""Finding checkpoints, and telling whole ones from damaged ones."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.names import record_name, step_of_folder, step_of_record
from hostcore.checkpoints.record import CommitRecord, CommittedFile
from hostcore.events.regular_file import open_regular

#: Of a commit record, in bytes: what is longer is none.
_MOST: Final = 64 << 20
#: Inode, size and time of change: another version of a record is another file.
_FileIdentity = tuple[int, int, int]


@attrs.frozen(kw_only=True)
class Found:
    """A checkpoint."""

    record: CommitRecord
    #: Its folder; absolute.
    folder: Path


@attrs.frozen(kw_only=True)
class Skipped:
    """Something that looks like a checkpoint and was passed over."""

    path: Path
    #: One sentence for people.
    reason: str


@attrs.frozen(kw_only=True)
class Search:
    """The result of a search from the newest checkpoint to the oldest."""

    #: The newest checkpoint that verifies; None if none does.
    found: Found | None
    #: What is newer than it and does not verify, newest first.
    skipped: tuple[Skipped, ...]


def verify(directory: Path, record: CommitRecord) -> None:
    """Compare a checkpoint with its record, reading every byte.

    Files that the record does not list are ignored: notes beside the weights do not spoil a checkpoint.

    :param directory: The folder that holds the checkpoint's folder.
    :raises CheckpointError: When a file is missing, or has another size or content than was committed.
    """
    folder = directory / record.folder_name
    if not folder.is_dir():
        raise _damaged(folder, "its folder is missing")
    for file in record.files:  # sizes first: they cost nothing, and reveal a truncated file
        _check_size(folder, file)
    for file in record.files:
        _check_content(folder, file)


def _check_size(folder: Path, file: CommittedFile) -> None:
    path = folder / file.path
    try:
        size = path.stat().st_size if path.is_file() else None
    except OSError as error:
        raise _damaged(path, f"{file.path} cannot be read: {error.strerror}") from error
    if size is None:
        raise _damaged(path, f"{file.path} is missing")
    if size != file.size:
        raise _damaged(path, f"{file.path} has {size} bytes where {file.size} were committed")


def _check_content(folder: Path, file: CommittedFile) -> None:
    path = folder / file.path
    try:
        with path.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise _damaged(path, f"{file.path} cannot be read: {error.strerror}") from error
    if digest != file.sha256:
        raise _damaged(path, f"the content of {file.path} is not what was committed (SHA-256 differs)")


def _damaged(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(
        reason, code="checkpoint.damaged", file=str(path), hint="Use an older checkpoint, or restore the file."
    )


def newest(directory: Path) -> Search:
    """The newest checkpoint that verifies.

    :param directory: A run's ``checkpoints`` folder; may be missing.
    """
    skipped: list[Skipped] = []
    for step in reversed(steps_in(directory)):
        record_path = directory.absolute() / record_name(step)
        try:
            found = _load(record_path, step)
            verify(found.folder.parent, found.record)
        except CheckpointError as error:
            skipped.append(Skipped(path=record_path.with_suffix(""), reason=error.message))
        else:
            return Search(found=found, skipped=tuple(skipped))
    return Search(found=None, skipped=tuple(skipped))


def committed(directory: Path) -> list[CommitRecord]:
    """The records of all checkpoints whose folder is there, oldest first, without reading the checkpoints.

    What is not a record is left out; :func:`newest` has the reasons.

    :param directory: A run's ``checkpoints`` folder; may be missing.
    """
    return CommittedRecords(directory).look()


class CommittedRecords:
    """The records of all checkpoints whose folder is there. Each is read once, for as long as its file is the same.

    For who looks after each save: it reads what is new, however many there are.

    :param directory: A run's ``checkpoints`` folder; may be missing.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        #: By step: the identity of its file, and its contents.
        self._known: dict[int, tuple[_FileIdentity, CommitRecord]] = {}

    def look(self) -> list[CommitRecord]:
        """The records as they are now, oldest first, without reading the checkpoints.

        What is not a record is left out; :func:`newest` has the reasons.
        """
        found: dict[int, tuple[_FileIdentity, CommitRecord]] = {}
        for step, identity in sorted(self._entries().items()):
            known = self._known.get(step)
            if known is not None and known[0] == identity:
                found[step] = known
                continue
            try:
                found[step] = identity, _load(self._directory / record_name(step), step).record
            except CheckpointError:
                continue
        self._known = found
        return [record for _, record in found.values()]

    def _entries(self) -> dict[int, _FileIdentity]:
        """The steps that have a record and a folder, and which file the record is."""
        records: dict[int, _FileIdentity] = {}
        folders: set[int] = set()
        try:
            with os.scandir(self._directory) as entries:
                for entry in entries:
                    if (step := step_of_record(entry.name)) is not None:
                        with suppress(FileNotFoundError):  # removed in this moment
                            status = entry.stat(follow_symlinks=False)
                            records[step] = status.st_ino, status.st_size, status.st_mtime_ns
                    elif (step := step_of_folder(entry.name)) is not None and entry.is_dir():
                        folders.add(step)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        return {step: identity for step, identity in records.items() if step in folders}


def steps_in(directory: Path) -> list[int]:
    """The steps that have a record or a folder, oldest first.

    :param directory: A run's ``checkpoints`` folder; may be missing.
    """
    names = [path.name for path in directory.iterdir()] if directory.is_dir() else []
    found = {step_of_record(name) for name in names} | {step_of_folder(name) for name in names}
    return sorted(step for step in found if step is not None)


def _load(path: Path, step: int) -> Found:
    try:
        with open_regular(path) as file:
            record = CommitRecord.from_json(file.read(_MOST), file=path)
    except FileNotFoundError as error:
        raise CheckpointError(
            f"it has no commit record {path.name} beside it, so it was never finished or is being removed",
            code="checkpoint.uncommitted",
            file=str(path),
            hint="Use a checkpoint that has its record: a folder and the .json file of the same name.",
        ) from error
    except OSError as error:
        raise CheckpointError(f"its commit record cannot be read: {error.strerror}", file=str(path)) from error
    if record.step != step:
        raise CheckpointError(
            f"the commit record is of step {record.step}, but it is named as step {step}",
            code="checkpoint.record",
            file=str(path),
            hint=f"Rename record and folder back to {record.folder_name}.",
        )
    return Found(record=record, folder=path.absolute().with_suffix(""))


def names_checkpoint(text: str) -> bool:
    """Return whether a text names a checkpoint: its commit record, or its folder, whose name a run might have, too."""
    path = Path(text)
    return step_of_record(path.name) is not None or (step_of_folder(path.name) is not None and path.is_dir())


def load_record(path: Path) -> Found:
    """The checkpoint that a user names, by its record ``step-000200.json`` or by its folder. Does not verify it.

    :raises CheckpointError: When the path is neither, or the checkpoint was never committed.
    """
    step = step_of_record(path.name)
    if step is None:
        step = step_of_folder(path.name)
    if step is None or not path.exists():
        raise _no_such(path)
    found = _load(path.with_name(record_name(step)), step)
    if not found.folder.is_dir():
        raise _damaged(found.folder, "its folder is missing")
    return found


def _no_such(path: Path) -> CheckpointError:
    what = "is not a checkpoint" if path.exists() else "does not exist"
    hint = "Name a checkpoint by its record or folder, such as runs/RUN/checkpoints/step-000200.json."
    for directory in (path, path / "checkpoints", path.parent):
        if records := committed(directory):
            hint = f"The newest checkpoint there is {directory / record_name(records[-1].step)}."
            break
    return CheckpointError(f"{path} {what}", code="checkpoint.not_found", file=str(path), hint=hint)
