"""The reporter ``jsonl``: appends every event to a file, a line of strict JSON each.

Events come at least once. In a file each is written once: what it holds of the run is looked up when it is opened.
"""

import errno
import mmap
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import orjson

from hostcore_hookspecs import Event, FatalError, ReporterContext
from hostcore_hookspecs.events import ENDS

#: What will not be otherwise in a moment.
_NEVER = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENXIO})


class JsonlReporter:
    """Appends events to a file, which may have those of earlier attempts and of other runs."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """Where it writes."""

        path: Path = attrs.field(metadata={"help": "The file to append to; made, with its folder, if it is not there."})

    def __init__(self, *, settings: Settings) -> None:
        self._path = settings.path
        self._fd: int | None = None
        self._is_regular = True
        self._last_seq = 0
        #: Whether the last line has no end.
        self._is_torn = False

    def open(self, ctx: ReporterContext) -> None:
        """Open the file, and find where the last attempt stopped writing.

        :raises FatalError: If its path is none that can be written.
        :raises OSError: If it cannot be opened now.
        """
        self.close()  # of a try before
        self._last_seq, self._is_torn = 0, False
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._fd = os.open(self._path, os.O_RDWR | flags, 0o644)
        except OSError as error:
            if error.errno not in _NEVER:
                raise
            raise FatalError(
                f"cannot write events to {self._path}: {error.strerror}",
                file=str(error.filename or self._path),
                hint="name a path in the reporter's settings that may be written",
            ) from error
        found = os.fstat(self._fd)
        self._is_regular = stat.S_ISREG(found.st_mode)
        if not self._is_regular or not found.st_size:
            return
        with mmap.mmap(self._fd, 0, access=mmap.ACCESS_READ) as content:
            self._is_torn = content[-1:] != b"\n"  # its writer died
            # A new run has its numbers before it, even where a file of the same name has some.
            self._last_seq = _last_seq(content, ctx.run_id) if ctx.last_seq else 0

    def report_event(self, event: Event) -> None:
        """Append the event, unless the file has it.

        :raises OSError: If it could not be written.
        """
        if self._fd is None or event.seq <= self._last_seq:
            return
        # orjson writes null where a float is not finite, so the line is strict JSON whatever the event holds.
        self._write(orjson.dumps(event.as_dict(), default=_plain, option=orjson.OPT_APPEND_NEWLINE))
        self._last_seq = event.seq
        if event.name in ENDS:
            self._sync()

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def _write(self, line: bytes) -> None:
        """Append in one piece, so that no other writer can come in between."""
        assert self._fd is not None
        if self._is_torn:
            line = b"\n" + line
        written = os.write(self._fd, line)
        if written != len(line):
            self._is_torn = line[:written][-1:] != b"\n"
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        self._is_torn = False

    def _sync(self) -> None:
        if self._fd is not None and self._is_regular:
            os.fsync(self._fd)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _last_seq(content: mmap.mmap, run_id: str) -> int:
    for line in _lines_backwards(content):
        try:
            event = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue  # torn
        if isinstance(event, dict) and event.get("run_id") == run_id and isinstance(event.get("seq"), int):
            return int(event["seq"])
    return 0


def _lines_backwards(content: mmap.mmap) -> Iterator[bytes]:
    end = len(content)
    while end > 0:
        begin = content.rfind(b"\n", 0, end - 1) + 1
        yield content[begin:end]
        end = begin
