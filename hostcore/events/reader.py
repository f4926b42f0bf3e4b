"""Reading the logs of events back, and while they grow.

Everything that reads ``events.jsonl`` or the log of a rank reads it by :class:`GrowingLog`.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from hostcore.events.bounds import TextCutter
from hostcore.events.codec import CorruptLog, decode_event
from hostcore.events.regular_file import open_regular
from hostcore_hookspecs.events import Event

_NAME = b'"event":"'
#: Of a record, in bytes. Those of this version are shorter; an older one may have written longer ones.
LONGEST_RECORD: Final = 16 << 20
_SEQ: Final = re.compile(rb'\{"schema":"[^"]*","seq":(\d+),')


def name_of(line: bytes) -> str:
    """Return the name of the event in a line without decoding it, to find the few lines that matter.

    Empty for a line that has none.
    """
    return line.partition(_NAME)[2].partition(b'"')[0].decode(errors="replace")


def seq_of(line: bytes) -> int | None:
    """The number of the event in a line, without decoding it; None for a line that has none."""
    found = _SEQ.match(line)
    return int(found[1]) if found else None


#: Errors of opening a log where there is none.
_NO_LOG: Final = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


class GrowingLog:
    """Reads the lines that a log has gained since the last time. What is no regular file is no log.

    :param path: The log; it may not exist yet.
    :param offset: Where to begin: the beginning of a line, in bytes.
    :param follow_links: Whether a link in its place is followed: for those who trust its writer.
    """

    def __init__(self, path: Path, *, offset: int = 0, follow_links: bool = False) -> None:
        self.path = path
        self._offset = offset
        self._follow_links = follow_links
        #: Of a line that is too long, while it is read.
        self._cutter: TextCutter | None = None

    @property
    def offset(self) -> int:
        """Behind what was read, in bytes."""
        return self._offset

    def _open(self) -> BinaryIO:
        return open_regular(self.path, follow_links=self._follow_links)

    def read(self, *, longest: int = -1) -> Iterator[bytes]:
        """The whole lines since the last time, with their ends. One that is still being written waits.

        :param longest: A line of more bytes comes in pieces, none of which waits; -1: it comes as a whole.
        """
        try:
            with self._open() as log:
                log.seek(self._offset)
                while line := log.readline(longest):
                    if not line.endswith(b"\n"):
                        if len(line) != longest:
                            return
                        line = _whole_characters(line)
                        log.seek(self._offset + len(line))
                    self._offset += len(line)
                    yield line
        except _NO_LOG:
            return

    def records(self, *, longest: int) -> Iterator[bytes]:
        """The whole lines since the last time, of a log of JSON records.

        The texts of a record that is longer are cut, and what is too long even so is left out. In place of each piece
        of such a line comes an empty one, so that a caller can go on later.

        :param longest: In bytes.
        """
        for piece in self.read(longest=longest):
            if self._cutter is None and piece.endswith(b"\n"):
                yield piece
                continue
            self._cutter = self._cutter or TextCutter(longest)
            self._cutter.feed(piece)
            line = b""
            if piece.endswith(b"\n"):
                line, self._cutter = self._cutter.record or b"", None
            yield line

    def rest(self) -> bytes:
        """Return the text behind the last whole line, which does not count as read; empty if there is none."""
        try:
            with self._open() as log:
                log.seek(self._offset)
                return log.read()
        except _NO_LOG:
            return b""

    def begin_behind(self, seq: int) -> None:
        """Of a log of events: read on behind the event of a number. Looks at a few lines, however long the log is.

        Where a line is damaged, it may begin earlier.
        """
        try:
            with self._open() as log:
                low, high = 0, log.seek(0, os.SEEK_END)
                while low < high:  # what begins before `low` has a number up to seq; what begins from `high` on has not
                    middle = (low + high) // 2
                    log.seek(max(middle - 1, 0))
                    if middle:
                        log.readline()
                    begin = log.tell()
                    line = log.readline() if begin < high else b""
                    number = seq_of(line) if line.endswith(b"\n") else None
                    if number is not None and number <= seq:
                        low = begin + len(line)
                    else:
                        high = middle
                self._offset = low
        except _NO_LOG:
            return


def read_events(path: Path) -> Iterator[tuple[Event, int]]:
    """All events of a log, each with the offset behind its line.

    A torn last line, left by a writer that died, is passed over. A log that does not exist has no events.

    :raises CorruptLog: When a whole line is no event.
    """
    log = GrowingLog(path, follow_links=True)
    try:
        for line in log.read():
            yield decode_event(line), log.offset
    except CorruptLog as error:
        error.file = str(path)
        raise


def newest_lines(path: Path, *, most: int) -> list[bytes]:
    """The lines at the end of a log, oldest first. The first may lack its beginning, and the last its end.

    :param most: How many bytes to look at.
    """
    try:
        with open_regular(path) as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - most))
            return log.read().splitlines()
    except _NO_LOG:
        return []


def _whole_characters(piece: bytes) -> bytes:
    """A piece of UTF-8 text without its last character, which may go on behind it."""
    end = len(piece) - 1
    while end > 0 and piece[end] & 0xC0 == 0x80:  # the second and later bytes of a character
        end -= 1
    return piece[:end] or piece
