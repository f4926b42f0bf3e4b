"""The file system calls of the commit protocol, each finished only when a power cut can no longer undo it.

Everything in this room that changes the file system goes through here, and from here through ``os.open``, ``os.write``,
``os.fsync``, ``os.rename``, ``os.unlink``, ``os.mkdir`` and ``os.rmdir``, looked up in this module's ``os`` at every
call: what a test puts in its place sees the whole protocol, and can make any part of it fail.
"""

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from hostcore.events.folder_sync import sync_folder

#: Large enough that a thread which writes seldom has to ask the training loop for the interpreter.
_CHUNK_BYTES: Final = 16 << 20
#: What a file must leave free on its disk, for the log and the result of the run, which is worth more than it.
_SPARE_BYTES: Final = 64 << 10


def fsync_file(path: Path) -> None:
    """Bring the content of a file to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_folder(path: Path) -> None:
    """Bring the names in a folder to the disk: what was created, renamed or removed in it."""
    sync_folder(path, system=os)


def make_folder(path: Path) -> None:
    """Create a folder, and those above it where they are missing. Its own name is not brought to the disk.

    :raises FileExistsError: When something else has the name.
    """
    if path.is_dir():
        return
    if not path.parent.is_dir():
        make_folder(path.parent)
        fsync_folder(path.parent.parent)
    try:
        os.mkdir(path)  # noqa: PTH102
    except FileExistsError:
        if not path.is_dir():  # else another process has just made it
            raise


def make_hidden_folder(path: Path) -> None:
    """Create a folder whose name need not survive a power cut: it gets another before it is worth anything.

    :raises FileExistsError: When the name is taken.
    """
    os.mkdir(path)  # noqa: PTH102


def require_room(folder: Path, size: int) -> None:
    """See that a file fits, if the file system has figures: one that does not would fill the disk until it is removed.

    :param size: In bytes.
    :raises OSError: When it does not (``ENOSPC``).
    """
    told = os.statvfs(folder)
    free = (told.f_bfree if os.geteuid() == 0 else told.f_bavail) * told.f_frsize
    if told.f_blocks and free < size + _SPARE_BYTES:  # some network file systems have no figures
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def write_file(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Write a file that has no readers yet, in place of one that may be there.

    :param parts: Its content, in pieces of bytes; a memory view is one-dimensional and of bytes.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        for part in parts:
            rest = memoryview(part)
            while rest:
                rest = rest[os.write(descriptor, rest[:_CHUNK_BYTES]) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def move(source: Path, target: Path) -> None:
    """Rename within a folder, atomically. A file replaces a file; a folder never replaces one that is not empty."""
    os.rename(source, target)  # noqa: PTH104
    fsync_folder(target.parent)


def remove_file(path: Path) -> None:
    """Remove a file, if it is there."""
    if os.path.lexists(path):
        os.unlink(path)  # noqa: PTH108
        fsync_folder(path.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder with all it holds, if it is there: in each folder by name, what is inside before the folder."""
    if os.path.lexists(path):
        _remove_tree(path)
        fsync_folder(path.parent)


def _remove_tree(path: Path) -> None:
    for entry in sorted(path.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            _remove_tree(entry)
        else:
            os.unlink(entry)  # noqa: PTH108
    os.rmdir(path)  # noqa: PTH106
