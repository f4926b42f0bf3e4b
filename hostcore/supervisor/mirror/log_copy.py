"""A copy of an event log that follows its original in a store: it only ever grows, by whole lines."""

import logging
import os
from pathlib import Path
from typing import Final

from hostcore.events.reader import seq_of
from hostcore.supervisor.remote.store import Place
from hostcore_builtin_plugins.control_characters import visible

LOG: Final = logging.getLogger("hostcore.mirror")

#: Read at once, and added in one call at the most; in bytes.
_PIECE: Final = 8 << 20
_MOST: Final = 64 << 20
#: Of a line, in bytes: so long only where an older version wrote what a plugin had said as a whole.
_LONGEST: Final = 128 << 20
#: Of a copy: whoever runs the run must not fill this machine's disk.
_LARGEST: Final = 4 << 30
_BLOCK: Final = 1 << 16


def add_events(log: Place, size: int, copy: Path) -> bool:
    """Add to a copy what the log has beyond it. Called by one process at a time.

    An original that is not what was copied before (an attempt elsewhere went on from an earlier copy) adds its events
    of higher numbers alone: nobody is told the same number twice.

    :param log: The original.
    :param size: Of the original, in bytes.
    :param copy: Need not exist.
    :return: Whether the copy has it all now; more is left for the next call otherwise.
    :raises StoreError: When it cannot be read.
    """
    copy.parent.mkdir(parents=True, exist_ok=True)
    with copy.open("a+b", buffering=0) as target:
        end, last = _end(target.fileno())
        if end >= _LARGEST:
            LOG.warning(
                "%s has more than %s bytes, which is all that is copied here", visible(log.uri), f"{_LARGEST:,}"
            )
            return False
        newest = seq_of(last) or 0
        target.truncate(end)
        follows = last == (log.read(end - len(last), end) if last and end <= size else b"")
        at, added, length = end if follows else 0, 0, _PIECE
        while at < size:
            piece = log.read(at, min(at + length, size)) or b""
            whole = piece[: piece.rfind(b"\n") + 1]
            if not whole:
                if len(piece) < length or length >= _LONGEST:
                    return len(piece) < length  # the last line is torn; or it is none of ours
                length *= 2
                continue
            length = _PIECE
            new = whole if follows else b"".join(_newer(whole, newest))
            target.write(new)
            at += len(whole)
            added += len(new)
            if added >= _MOST:
                return at >= size
    return True


def _newer(lines: bytes, newest: int) -> list[bytes]:
    return [line for line in lines.splitlines(keepends=True) if (seq_of(line) or 0) > newest]


def _end(descriptor: int) -> tuple[int, bytes]:
    """Where the last whole line of a file ends, and that line; 0 and nothing if there is none."""
    size = os.fstat(descriptor).st_size
    begin, tail = size, b""
    while begin > 0:
        begin = max(0, begin - _BLOCK)
        tail = os.pread(descriptor, size - begin, begin)
        end = tail.rfind(b"\n") + 1
        if end and ((previous := tail.rfind(b"\n", 0, end - 1)) >= 0 or begin == 0):
            return begin + end, tail[previous + 1 : end]
    return 0, b""
