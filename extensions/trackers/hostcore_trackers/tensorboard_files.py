"""TensorBoard's event files: appended to event by event, and read for what they have.

Every record carries the number of the event that it came from, so that a reporter that is told an event again, after a
death in between, can see that it is there. Records: ``uint64 length, uint32 crc, bytes data, uint32 crc`` (TFRecord).
"""

import io
import mmap
import os
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from tensorboard.compat.proto.event_pb2 import Event as Record
from tensorboard.summary.writer.record_writer import RecordWriter

_HEADER: Final = struct.Struct("<QI")
_FOOTER_BYTES: Final = 4
_MARK: Final = "hostcore-event:"
#: TensorBoard reads every file with this in its name, in the order of the names.
_PREFIX: Final = "events.out.tfevents."


class EventFile:
    """A new file, which comes after those that its folder has.

    TensorBoard's ``EventFileWriter`` writes from a thread, names files after the second and its process, and leaves a
    torn record where a write fails; here a write is done, or undone, when the call returns.

    :param folder: Made if it is not there.
    :raises OSError: It cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        newest = max((_made_at(file) for file in folder.glob(f"{_PREFIX}*")), default=0)
        # Also after one from a machine whose clock is ahead.
        made_at = max(int(time.time()), newest + 1)
        path = folder / f"{_PREFIX}{made_at:010}.hostcore.{os.getpid()}"
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._size = 0
        self.append([Record(wall_time=made_at, file_version="brain.Event:2")])

    def append(self, records: Sequence[Record]) -> None:
        """Write records, all of them or none.

        :raises OSError: They could not be written. The file is closed.
        """
        framed = io.BytesIO()
        for record in records:
            RecordWriter(framed).write(record.SerializeToString())
        content = framed.getbuffer()
        try:
            while content:
                content = content[os.write(self._fd, content) :]
        except OSError:
            with suppress(OSError):  # torn at its very end, a file can be read as well
                os.ftruncate(self._fd, self._size)
            self.close()
            raise
        self._size += framed.tell()

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def _made_at(file: Path) -> int:
    """The time in the name of an event file, in seconds since 1970; 0 if it has none."""
    number = file.name.removeprefix(_PREFIX).partition(".")[0]
    return int(number) if number.isdecimal() else 0


def mark_of(seq: int) -> str:
    """What a record carries as the (otherwise unused) ``node_name`` of its first value."""
    return f"{_MARK}{seq}"


def last_seq(folder: Path) -> int:
    """The number of the last event that the event files of a folder have; 0 if none."""
    for file in sorted(folder.glob(f"{_PREFIX}*"), reverse=True):
        if found := _last_seq_of(file):
            return found
    return 0


def _last_seq_of(file: Path) -> int:
    if not file.stat().st_size:
        return 0
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for begin, length in reversed(_records(content)):
            seq = _seq_of(content[begin : begin + length])
            if seq:
                return seq
    return 0


def _records(content: mmap.mmap) -> list[tuple[int, int]]:
    """Where the data of each record is; one that was torn at the end is left out."""
    records, at = [], 0
    while at + _HEADER.size <= len(content):
        length, _ = _HEADER.unpack_from(content, at)
        begin = at + _HEADER.size
        at = begin + length + _FOOTER_BYTES
        if at > len(content):
            break
        records.append((begin, length))
    return records


def _seq_of(data: bytes) -> int:
    values = Record.FromString(data).summary.value
    mark = values[0].node_name if values else ""
    return int(mark.removeprefix(_MARK)) if mark.startswith(_MARK) else 0
