"""A file of JSON lines that many writers append to: each line in one write, after whatever is there already."""

import errno
import fcntl
import mmap
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from hostcore_hookspecs import FatalError

#: What will not be otherwise in a moment.
_NEVER = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENXIO})


class JsonlFile:
    """Appends documents to a file. A line that another writer left unfinished stays, on a line of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None
        self._is_regular = True
        #: Whether the last line has no end.
        self._is_torn = False

    def open(self, *, alone: bool = False) -> None:
        """Open the file; it is made, with its folder, if it is not there.

        :param alone: Wait until all others that have opened it so have closed it. Without that, a line that another
            process is writing just then may look unfinished, and be followed by an empty one.
        :raises FatalError: If its path is none that can be written.
        :raises OSError: If it cannot be opened now.
        """
        self.close()
        self._is_torn = False
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if error.errno not in _NEVER:
                raise
            raise FatalError(
                f"cannot write events to {self._path}: {error.strerror}",
                file=str(error.filename or self._path),
                hint="name a path in the reporter's settings that may be written",
            ) from error
        if alone:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(self._fd, fcntl.LOCK_EX)
        found = os.fstat(self._fd)
        self._is_regular = stat.S_ISREG(found.st_mode)
        if self._is_regular and found.st_size:
            self._is_torn = os.pread(self._fd, 1, found.st_size - 1) != b"\n"  # its writer died

    @property
    def is_open(self) -> bool:
        """True while it is open."""
        return self._fd is not None

    def last(self, is_wanted: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any] | None:
        """The last document of some kind; None if there is none. Lines that are no JSON objects are passed over."""
        if self._fd is None or not self._is_regular or not os.fstat(self._fd).st_size:
            return None
        with mmap.mmap(self._fd, 0, access=mmap.ACCESS_READ) as content:
            for line in _lines_backwards(content):
                try:
                    document = orjson.loads(line)
                except orjson.JSONDecodeError:
                    continue  # torn
                if isinstance(document, dict) and is_wanted(document):
                    return document
        return None

    def append(self, document: Mapping[str, Any]) -> None:
        """Append a line in one piece, so that no other writer can come in between.

        :raises OSError: If it could not be written as a whole.
        """
        assert self._fd is not None
        # orjson writes null where a float is not finite, so the line is strict JSON whatever the document holds.
        line = orjson.dumps(document, default=_plain, option=orjson.OPT_APPEND_NEWLINE)
        if self._is_torn:
            line = b"\n" + line
        written = os.write(self._fd, line)
        if written != len(line):
            self._is_torn = line[:written][-1:] != b"\n"
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        self._is_torn = False

    def sync(self) -> None:
        """Have the disk keep what was written."""
        if self._fd is not None and self._is_regular:
            os.fsync(self._fd)

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _lines_backwards(content: mmap.mmap) -> Iterator[bytes]:
    end = len(content)
    while end > 0:
        begin = content.rfind(b"\n", 0, end - 1) + 1
        yield content[begin:end]
        end = begin
