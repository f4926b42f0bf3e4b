"""Files that are read only if they are regular: the writer of a run directory, or of a pipe, need not be trusted."""

import errno
import os
import stat
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
    try:
        link = 0 if follow_links else os.O_NOFOLLOW
        descriptor = os.open(path, os.O_RDONLY | link | os.O_NONBLOCK | os.O_CLOEXEC)
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
