"""Files of a run directory as they may be read: whoever writes there need not be trusted by whoever reads."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read it, without following a link in its place and without waiting for whoever writes a pipe.

    :raises FileNotFoundError: When there is no regular file.
    :raises OSError: When it cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
            raise FileNotFoundError(*error.args, str(path)) from error
        raise
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise FileNotFoundError(f"{path} is no regular file")
    return os.fdopen(descriptor, "rb")
