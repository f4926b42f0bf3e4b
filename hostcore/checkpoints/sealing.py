"""Bringing files to the disk and hashing them, both at once: the disk does not wait for SHA-256, nor the other way.

``hashlib`` lets go of the interpreter, so hashing takes a second core and no time from the training loop. The thread
that hashes only reads; the calls that change the file system stay in one order.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from hostcore.checkpoints import durable
from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.record import CommittedFile


def write_sealed(folder: Path, name: str, parts: Sequence[bytes | memoryview]) -> CommittedFile:
    """Write a file below a checkpoint's folder, on the disk when this returns.

    :param name: Its path in the folder, with ``/``.
    :param parts: Its content, in pieces.
    :raises OSError: When the file system refuses.
    """
    size = sum(len(part) for part in parts)
    durable.require_room(folder, size)
    with _hashing() as thread:
        digest = thread.submit(_sha256, parts)
        durable.write_file(folder / name, parts)
        return CommittedFile(path=name, size=size, sha256=digest.result())


def seal(folder: Path, sealed: Iterable[CommittedFile]) -> tuple[CommittedFile, ...]:
    """Bring all files and folders below a folder to the disk, and list the files with their hashes.

    :param sealed: Files that are on the disk and hashed. They are listed as they are, if they still have their size.
    :raises CheckpointError: When the folder holds anything but files and folders, or not what was sealed.
    :raises OSError: When the file system refuses.
    """
    known = {file.path: file for file in sealed}
    listed: dict[str, CommittedFile] = {}
    with _hashing() as thread:
        hashing: dict[str, Future[CommittedFile]] = {}
        for relative, path in files_below(folder):
            if relative in known:
                listed[relative] = _checked(path, known[relative])
            else:
                hashing[relative] = thread.submit(_hash_file, path, relative)
                durable.fsync_file(path)
        if missing := known.keys() - listed.keys():
            raise _changed(folder / min(missing), "is missing")
        _fsync_folders(folder)
        listed |= {relative: hashed.result() for relative, hashed in hashing.items()}
    return tuple(listed[relative] for relative in sorted(listed))


def _hashing() -> ThreadPoolExecutor:
    """The one thread that hashes; as a context manager, it is waited for."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="sha256")


def _sha256(parts: Sequence[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _hash_file(path: Path, relative: str) -> CommittedFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return CommittedFile(path=relative, size=os.fstat(file.fileno()).st_size, sha256=digest)


def files_below(folder: Path, above: str = "") -> Iterator[tuple[str, Path]]:
    """All files below a folder with their paths in it, in an order that depends on their names alone.

    :raises CheckpointError: When something is neither a file nor a folder, or has a name that JSON cannot carry.
    """
    for path in sorted(folder.iterdir()):
        relative = f"{above}{path.name}"
        if path.is_symlink() or not (path.is_file() or path.is_dir()) or not _is_unicode(path.name):
            raise _not_a_file(relative)
        if path.is_dir():
            yield from files_below(path, f"{relative}/")
        else:
            yield relative, path


def _fsync_folders(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            _fsync_folders(path)
    durable.fsync_folder(folder)


def _checked(path: Path, file: CommittedFile) -> CommittedFile:
    size = path.stat().st_size
    if size != file.size:
        raise _changed(path, f"has {size} bytes where {file.size} were written")
    return file


def _is_unicode(name: str) -> bool:
    """Return whether JSON can carry a name; Linux allows any bytes, which Python shows as lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _not_a_file(relative: str) -> CheckpointError:
    return CheckpointError(
        f"a checkpoint cannot hold {relative!r}: it holds regular files with UTF-8 names only",
        code="checkpoint.content",
        hint="Write a copy of what a link points to, under a plain name.",
    )


def _changed(path: Path, how: str) -> CheckpointError:
    return CheckpointError(
        f"{path.name} was changed before its checkpoint was committed: it {how}",
        code="checkpoint.content",
        file=str(path),
        hint="Write only into the folder that save_checkpoint is given.",
    )
