"""wandb's files of a run, read for the rows of its history.

wandb appends all that it is told to ``run-<id>.wandb``, and reads that file itself when it uploads it (``wandb sync``).
Seven bytes of its own come first, then the log format of LevelDB: blocks of 32 KiB, of records with a header of 7 bytes
(CRC-32, length, type) that may go on in the next block. A record's data is a ``wandb_internal.Record`` of protocol
buffers. https://github.com/google/leveldb/blob/main/doc/log_format.md
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]

_BLOCK_BYTES: Final = 32 * 1024
_HEADER: Final = struct.Struct("<IHB")
_FILE_HEADER_BYTES: Final = 7
_FULL, _FIRST, _LAST = 1, 2, 4


class RunFile:
    """A file that may be growing.

    :param path: Of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        #: Where the next whole record begins.
        self._at = _FILE_HEADER_BYTES

    def new_records(self) -> Iterator[Record]:
        """The records that are whole now, and that were not read before.

        :raises OSError: The file cannot be read.
        """
        with self._path.open("rb") as opened:
            opened.seek(begin := self._at)
            content = opened.read()
        at, data = begin, b""
        while True:
            at += left if (left := _BLOCK_BYTES - at % _BLOCK_BYTES) < _HEADER.size else 0
            header = content[at - begin : at - begin + _HEADER.size]
            if len(header) < _HEADER.size:
                return
            _, length, kind = _HEADER.unpack(header)
            at += _HEADER.size
            part = content[at - begin : at - begin + length]
            if not kind or len(part) < length:  # zeros at its end, after a power cut, or a record that is being written
                return
            at += length
            data = part if kind in (_FULL, _FIRST) else data + part
            if kind in (_FULL, _LAST):
                self._at = at
                yield Record.FromString(data)


@attrs.frozen(kw_only=True)
class HistoryRow:
    """A row of a run's history."""

    #: wandb's own step.
    number: int
    values: dict[str, Any]


def rows_of(records: Iterator[Record]) -> Iterator[HistoryRow]:
    """The rows of the history among some records."""
    for record in records:
        if record.HasField("history"):
            yield HistoryRow(
                number=record.history.step.num,
                values={
                    ".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item
                },
            )


def run_files(folder: Path, *, project: str, run_id: str) -> Iterator[RunFile]:
    """The files of a run, in the order in which they were begun.

    :param folder: The one that wandb was given; its files are in ``wandb`` in it.
    """
    found = (folder / "wandb").glob(f"*run-*/run-{run_id}.wandb")
    for path in sorted(found, key=lambda path: path.parent.name.removeprefix("offline-")):
        if any(record.run.project == project for record in RunFile(path).new_records() if record.HasField("run")):
            yield RunFile(path)
