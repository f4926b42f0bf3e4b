"""Writing a checkpoint: there whole, or not at all, whenever the power goes."""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from hostcore.checkpoints import durable
from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.leftovers import settle
from hostcore.checkpoints.names import Claim, Purpose
from hostcore.checkpoints.record import CommitRecord, CommittedFile


def _always() -> None:
    """Nobody objects."""


def commit(
    directory: Path,
    *,
    step: int,
    epoch: int,
    final: bool,
    attempt: int,
    fill: Callable[[Path], None],
    may_commit: Callable[[], None] = _always,
) -> CommitRecord:
    """Write the checkpoint of a step, replacing an older one of the same step.

    The protocol, each line on the disk before the next begins::

        write the files into a hidden folder; hash them; write the record to a hidden file
        an older version: rename its record to a hidden name (it is withdrawn), then its folder
        rename the folder to step-000200
        rename the record to step-000200.json                   <- from here on the checkpoint exists
        remove the older version

    After an error nothing has changed: the hidden files are gone and an older version is back in its place.
    After a crash, ``remove_uncommitted`` of the next attempt does the same.

    :param directory: The run's ``checkpoints`` folder; created if missing.
    :param step: Finished steps.
    :param attempt: The attempt that writes, from 1.
    :param fill: Writes the files into the empty folder it is given. Its exceptions go through unchanged.
    :param may_commit: Called once before anything that others can see is touched; raises to refuse, because a higher
        attempt has taken over.
    :raises CheckpointError: When the file system refuses, or ``fill`` left something that is not a regular file.
    """
    claim = Claim(directory.absolute(), step, attempt)
    with _writing(claim):
        durable.make_folder(claim.directory)
        settle(claim)
    try:
        with _writing(claim):
            durable.make_folder(claim.hidden_folder("tmp"))
        fill(claim.hidden_folder("tmp"))
        with _writing(claim):
            files = _seal(claim.hidden_folder("tmp"))
            record = CommitRecord(step=step, epoch=epoch, final=final, attempt=attempt, files=files)
            durable.write_file(claim.hidden_record("tmp"), record.to_json())
            durable.fsync_folder(claim.directory)
        may_commit()
        with _writing(claim):
            _publish(claim)
    except BaseException:
        _discard(claim, "tmp")
        raise
    _discard(claim, "old")
    return record


def _discard(claim: Claim, purpose: Purpose) -> None:
    # The record first: beside a missing folder it would say that the folder has moved to its place.
    # What cannot be removed now stays hidden, and the next attempt removes it.
    with suppress(OSError):
        durable.remove_file(claim.hidden_record(purpose))
        durable.remove_folder(claim.hidden_folder(purpose))


def _publish(claim: Claim) -> None:
    """Do the renames of the protocol; on an error, undo those that were done."""
    moves = [
        *_make_room(claim),
        (claim.hidden_folder("tmp"), claim.folder),
        (claim.hidden_record("tmp"), claim.record),
    ]
    done: list[tuple[Path, Path]] = []
    try:
        for source, target in moves:
            done.append((source, target))  # before it is done: an interrupt may come between
            durable.move(source, target)
    except BaseException:
        for source, target in reversed(done):
            if os.path.lexists(target) and not os.path.lexists(source):
                durable.move(target, source)
        raise


def _make_room(claim: Claim) -> Sequence[tuple[Path, Path]]:
    """The renames that free the names of a step: an older version's record is withdrawn before its folder moves.

    A folder without a record of ours may be anybody's: it is set aside under a visible name, and stays.
    """
    occupied = [path for path in (claim.record, claim.folder) if os.path.lexists(path)]
    if _is_ours(claim):
        hidden = {claim.record: claim.hidden_record("old"), claim.folder: claim.hidden_folder("old")}
        return [(path, hidden[path]) for path in occupied]
    return [(path, _unused(path.with_name(f"{path.name}.set-aside"))) for path in occupied]


def _is_ours(claim: Claim) -> bool:
    try:
        return CommitRecord.from_json(claim.record.read_bytes()).step == claim.step
    except (CheckpointError, FileNotFoundError, IsADirectoryError):
        return False


def _unused(path: Path) -> Path:
    number = 1
    while os.path.lexists(candidate := path.with_name(f"{path.name}-{number}")):
        number += 1
    return candidate


def _seal(folder: Path) -> tuple[CommittedFile, ...]:
    """Bring all files and folders below a folder to the disk, and list the files with their hashes."""
    files: list[CommittedFile] = []
    for parent, subfolders, names in os.walk(folder, topdown=False, onerror=_raise):
        for name in sorted([*names, *subfolders]):
            path = Path(parent, name)
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise _not_a_file(path, folder)
            if path.is_file():
                files.append(_seal_file(path, folder))
        durable.fsync_folder(Path(parent))
    return tuple(sorted(files, key=lambda file: file.path))


def _seal_file(path: Path, folder: Path) -> CommittedFile:
    relative = path.relative_to(folder).as_posix()
    if not _is_unicode(relative):
        raise _not_a_file(path, folder)
    durable.fsync_file(path)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return CommittedFile(path=relative, size=os.fstat(file.fileno()).st_size, sha256=digest)


def _is_unicode(name: str) -> bool:
    """Whether JSON can carry a name; Linux allows any bytes, which Python shows as lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _not_a_file(path: Path, folder: Path) -> CheckpointError:
    return CheckpointError(
        f"a checkpoint cannot hold {str(path.relative_to(folder))!r}: it holds regular files with UTF-8 names only",
        code="checkpoint.content",
        hint="Write a copy of what a link points to, under a plain name.",
    )


def _raise(error: OSError) -> None:
    raise error


@contextmanager
def _writing(claim: Claim) -> Iterator[None]:
    """Turn what the file system refuses into an error that says what was lost and what was not."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"the checkpoint of step {claim.step} could not be written: {error.strerror or error}",
            code="checkpoint.write",
            file=str(error.filename or claim.directory),
            hint="Earlier checkpoints are intact. Make room or mend the permissions, then resume the run.",
        ) from error
