"""Files that are read only if they are regular: the writer of a run directory, or of a pipe, need not be trusted."""

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO


class NotRegular(FileNotFoundError):
    """There is something else than a regular file: a pipe, a device, a socket, a link."""


def open_regular(path: Path, *, follow_links: bool = False) -> BinaryIO:
    """Open a file to read it, without waiting for the writer of a pipe.

    :param follow_links: Whether a link in its place is followed.
    :raises NotRegular: When there is something that is no regular file.
    :raises OSError: When it cannot be opened.
    """
    return _opened(path, link=0 if follow_links else os.O_NOFOLLOW)


def open_below(folder: Path, parts: Sequence[str]) -> BinaryIO:
    """Open a file below a folder to read it. No link on the way is followed, not even one that was just put there.

    :param folder: May be a link.
    :param parts: The names on the way from there, the file's last.
    :raises NotRegular: When there is something that is no regular file.
    :raises OSError: When it cannot be opened.
    """
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            os.close(at)
            at = inner
        return _opened(Path(parts[-1] if parts else "."), link=os.O_NOFOLLOW, dir_fd=at)
    finally:
        os.close(at)


def _opened(path: Path, *, link: int, dir_fd: int | None = None) -> BinaryIO:
    try:
        descriptor = os.open(path, os.O_RDONLY | link | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
            raise NotRegular(*error.args, str(path)) from error
        raise
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise NotRegular(f"{path} is no regular file")
    return os.fdopen(descriptor, "rb")
