"""The place of a reporter in the event log, ``cursors/<name>.json``, and the log as its readers see it."""

import os
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from hostcore.events.codec import CorruptLog, decode_event
from hostcore.events.merger import LogLine
from hostcore.events.strict_json import dump
from hostcore.events.writer import now_ms
from hostcore_hookspecs.events import Event

#: Bytes that are read at once. A longer line is read as a whole all the same.
_CHUNK_BYTES: Final = 64 * 1024
#: Decoded events that are kept for readers that are a little behind.
_KEPT_EVENTS: Final = 1024


class LogView:
    """Reads the log for several threads. The writer holds none of its locks.

    :param path: The log; it may not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        #: By where they begin.
        self._recent: OrderedDict[int, LogLine] = OrderedDict()
        #: New lines that no reader has taken yet; the oldest are dropped, and read from the disk.
        self._written: deque[LogLine] = deque(maxlen=_KEPT_EVENTS)
        #: The end of the log, in bytes; None: not known.
        self._end: int | None = None
        #: Number of the newest event that was noted; 0 before the first.
        self.newest_seq = 0

    @property
    def size(self) -> int:
        """Its size now, in bytes."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def note(self, lines: Sequence[LogLine]) -> None:
        """Take lines that were written, so that they need not be read and decoded again. Never waits.

        :param lines: The newest, behind which there is nothing; empty if that is not known.
        """
        self._written.extend(lines)
        self._end = lines[-1].end if lines else None
        if lines and lines[-1].event is not None:
            self.newest_seq = lines[-1].event.seq

    def after(self, offset: int) -> list[LogLine]:
        """Return some of the lines that begin at an offset; none if there is no whole one yet.

        :raises OSError: When the log cannot be read.
        """
        with self._lock:
            while self._written:
                self._keep(self._written.popleft())
            if offset not in self._recent and (self._end is None or offset < self._end):
                self._read(offset)
            found: list[LogLine] = []
            while (line := self._recent.get(offset)) is not None:
                found.append(line)
                offset = line.end
            return found

    def last_seq(self) -> int:
        """Return the number of the newest event; 0 if there is none."""
        return self.seq_before(self.size)

    def seq_before(self, offset: int) -> int:
        """Return the number of the last event whose line ends at or before an offset; 0 if there is none."""
        length = _CHUNK_BYTES
        while offset > 0:
            begin = max(0, offset - length)
            lines = self._bytes(begin, offset - begin).split(b"\n")
            # The first may be the end of a line, and behind the last \n there may be the beginning of one.
            for line in reversed(lines[0 if begin == 0 else 1 : -1]):
                if seq := _seq_of(line):
                    return seq
            if begin == 0:
                break
            length *= 2
        return 0

    def ends_line(self, offset: int) -> bool:
        """Return True if a line ends just before an offset."""
        return self._bytes(offset - 1, 1) == b"\n"

    def _bytes(self, offset: int, length: int) -> bytes:
        try:
            with self.path.open("rb", buffering=0) as log:
                log.seek(offset)
                return log.read(length)
        except FileNotFoundError:
            return b""

    def _read(self, offset: int) -> None:
        """Decode the whole lines of a chunk, and keep them."""
        length, chunk = _CHUNK_BYTES, b""
        while b"\n" not in chunk:
            chunk = self._bytes(offset, length)
            if len(chunk) < length and b"\n" not in chunk:
                return  # the line is still being written
            length *= 2
        for line in chunk[: chunk.rindex(b"\n")].split(b"\n"):
            end = offset + len(line) + 1
            self._keep(LogLine(_event_of(line), offset, end))
            offset = end

    def _keep(self, line: LogLine) -> None:
        self._recent[line.begin] = line
        if len(self._recent) > _KEPT_EVENTS:
            self._recent.popitem(last=False)


@attrs.frozen(kw_only=True)
class Cursor:
    """A place in the event log: behind the last event that was taken."""

    #: Of that event; 0 before the first.
    seq: int = 0
    #: In bytes.
    offset: int = 0


class CursorFile:
    """The file of one cursor. Single writer.

    :param identity: Whose cursor it is.
    """

    def __init__(self, path: Path, *, identity: str) -> None:
        self.path = path
        self._identity = identity
        self._lock = threading.Lock()
        self._written: Cursor | None = None

    def read(self, log: LogView) -> tuple[Cursor, str | None]:
        """Return the place to resume at.

        :return: A place in this log, and the fault of the file, if that is why it is the beginning.
        """
        try:
            found = orjson.loads(self.path.read_bytes())
        except FileNotFoundError:
            return Cursor(), None
        except (OSError, orjson.JSONDecodeError) as error:
            return Cursor(), f"it cannot be read: {error}"
        cursor, problem = self._understood(found)
        if problem is None:
            problem = _misfit(cursor, log)
        return (Cursor(), problem) if problem else (cursor, None)

    def _understood(self, found: Any) -> tuple[Cursor, str | None]:
        if not isinstance(found, dict) or not all(_is_count(found.get(key)) for key in ("seq", "offset")):
            return Cursor(), "it is damaged"
        if found.get("reporter") != self._identity:
            return Cursor(), f"it belongs to {found.get('reporter')}"
        return Cursor(seq=found["seq"], offset=found["offset"]), None

    def write(self, cursor: Cursor) -> None:
        """Replace the file, if it holds something else.

        Not synced to the disk: a cursor that a power cut takes back only means that events are reported again.

        :raises OSError: When it cannot be written, or its folder is gone.
        """
        with self._lock:
            if cursor == self._written:
                return
            temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
            content = {**attrs.asdict(cursor), "reporter": self._identity, "time_ms": now_ms()}
            try:
                temporary.write_bytes(dump(content))
                temporary.replace(self.path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            self._written = cursor


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _misfit(cursor: Cursor, log: LogView) -> str | None:
    """Return the reason for which a cursor is not one of this log; None if it is."""
    if cursor.offset > log.size:
        return f"it points behind the end of {log.path.name}"
    if cursor.offset and not log.ends_line(cursor.offset):
        return f"it points into a line of {log.path.name}"
    if log.seq_before(cursor.offset) != cursor.seq:
        return f"it does not fit {log.path.name}"
    return None


def _event_of(line: bytes) -> Event | None:
    try:
        return decode_event(line)
    except CorruptLog:
        return None


def _seq_of(line: bytes) -> int:
    try:
        return int(orjson.loads(line)["seq"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return 0
