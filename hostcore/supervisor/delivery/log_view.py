"""``events.jsonl`` as its readers see it: each at a place of its own, and what is new decoded once for all of them."""

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final

import attrs
import orjson

from hostcore.events.codec import CorruptLog, decode_event
from hostcore_hookspecs.events import Event

#: How much is read at once. A longer line is read as a whole all the same.
_CHUNK_BYTES: Final = 64 * 1024
#: How many decoded events are kept for readers that are a little behind.
_KEPT_EVENTS: Final = 1024


@attrs.frozen
class Line:
    """One line of the log."""

    #: None if the line is no event.
    event: Event | None
    #: The offset behind it.
    end: int


class LogView:
    """Reads the log for several threads. The writer does not know of it, and holds none of its locks.

    :param path: The log; it may not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._recent: OrderedDict[int, Line] = OrderedDict()

    @property
    def size(self) -> int:
        """How many bytes there are now."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def after(self, offset: int) -> list[Line]:
        """Some of the lines that begin at an offset; none if there is no whole one yet.

        :raises OSError: When the log cannot be read.
        """
        with self._lock:
            if offset not in self._recent:
                self._read(offset)
            found: list[Line] = []
            while (line := self._recent.get(offset)) is not None:
                found.append(line)
                offset = line.end
            return found

    def last_seq(self) -> int:
        """The number of the newest event; 0 if there is none."""
        return self.seq_before(self.size)

    def seq_before(self, offset: int) -> int:
        """The number of the last event whose line ends at or before an offset; 0 if there is none."""
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
        """Whether a line ends just before an offset."""
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
            self._recent[offset] = Line(_event_of(line), end)
            offset = end
        while len(self._recent) > _KEPT_EVENTS:
            self._recent.popitem(last=False)


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
