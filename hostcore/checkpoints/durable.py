"""The file system calls of the commit protocol, each finished only when a power cut can no longer undo it.

Everything in this room that changes the file system, apart from what fills a temporary folder, goes through here: what
a test records here is the protocol.
"""

import errno
import os
import shutil
from pathlib import Path


def fsync_file(path: Path) -> None:
    """Bring the content of a file to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_folder(path: Path) -> None:
    """Bring the names in a folder to the disk: what was created, renamed or removed in it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot do this for folders; their renames are durable by themselves.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Create a folder, and those above it where they are missing.

    :raises FileExistsError: When something else has the name.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        fsync_folder(folder.parent)


def write_file(path: Path, content: bytes) -> None:
    """Write a file that nobody looks at yet."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def move(source: Path, target: Path) -> None:
    """Rename within a folder, atomically. A file replaces a file; a folder never replaces one that is not empty."""
    source.rename(target)
    fsync_folder(target.parent)


def remove_file(path: Path) -> None:
    """Remove a file, if it is there."""
    if os.path.lexists(path):
        path.unlink(missing_ok=True)
        fsync_folder(path.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder with all it holds, if it is there."""
    if os.path.lexists(path):
        shutil.rmtree(path)
        fsync_folder(path.parent)
