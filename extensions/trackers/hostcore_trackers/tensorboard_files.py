"""TensorBoard's event files: their records, made from events, appended to them, and read for what they have.

Every record carries the number of the event that it came from, as the (otherwise unused) ``node_name`` of its first
value, so that a reporter that gets an event again, after a death in between, can see that it is there. Records:
``uint64 length, uint32 crc, bytes data, uint32 crc`` (TFRecord).
"""

import io
import mmap
import os
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from tensorboard.compat.proto.event_pb2 import Event as Record
from tensorboard.compat.proto.event_pb2 import SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams import metadata as hparams
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo
from tensorboard.plugins.text import metadata as text
from tensorboard.summary.writer.record_writer import RecordWriter

from hostcore_hookspecs import Event
from hostcore_trackers.job_parameters import Parameter

_HEADER: Final = struct.Struct("<QI")
_FOOTER_BYTES: Final = 4
_MARK: Final = "hostcore-event:"
#: Beyond this, a text of TensorBoard's is too long to be read.
_TEXT_CHARACTERS: Final = 10_000
#: TensorBoard reads every file with this in its name, in the order of the names.
_PREFIX: Final = "events.out.tfevents."


def record(event: Event, values: Sequence[Summary.Value]) -> Record:
    """The values of an event, at its step and time, with its number."""
    values[0].node_name = f"{_MARK}{event.seq}"
    return Record(wall_time=event.time_ms / 1000, step=event.step or 0, summary=Summary(value=values))


def purge(event_time_ms: int, *, step: int) -> Record:
    """Makes TensorBoard forget what older files have of a step and those after it."""
    return Record(wall_time=event_time_ms / 1000, step=step, session_log=SessionLog(status=SessionLog.START))


def scalar(name: str, value: float) -> Summary.Value:
    """A point of a curve; in single precision, as all of TensorBoard's."""
    return Summary.Value(tag=name, simple_value=value)


def markdown(name: str, content: str) -> Summary.Value:
    """A text."""
    tensor = TensorProto(
        dtype=DT_STRING,
        tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
        string_val=[content[:_TEXT_CHARACTERS].encode()],
    )
    return Summary.Value(
        tag=name, metadata=text.create_summary_metadata(display_name=name, description=""), tensor=tensor
    )


def table(parameters: Mapping[str, Parameter]) -> str:
    """Parameters as a table in Markdown."""
    rows = [f"| {_cell(name)} | {_cell(value)} |" for name, value in parameters.items()]
    return "\n".join(["| parameter | value |", "|---|---|", *rows])


def session_start(parameters: Mapping[str, Parameter], *, name: str, time_ms: int) -> Summary.Value:
    """The parameters of a run, for the page that compares runs by them."""
    info = SessionStartInfo(group_name=name, start_time_secs=time_ms / 1000)
    for key, value in parameters.items():
        if isinstance(value, bool):
            info.hparams[key].bool_value = value
        elif isinstance(value, str):
            info.hparams[key].string_value = value
        else:
            info.hparams[key].number_value = value
    return _hparams(hparams.SESSION_START_INFO_TAG, HParamsPluginData(session_start_info=info))


def session_end(*, time_ms: int) -> Summary.Value:
    """The run has succeeded."""
    info = SessionEndInfo(status=api_pb2.STATUS_SUCCESS, end_time_secs=time_ms / 1000)
    return _hparams(hparams.SESSION_END_INFO_TAG, HParamsPluginData(session_end_info=info))


def _hparams(tag: str, data: HParamsPluginData) -> Summary.Value:
    metadata: SummaryMetadata = hparams.create_summary_metadata(data)
    return Summary.Value(tag=tag, metadata=metadata, tensor=hparams.NULL_TENSOR)


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


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
    """Return begin and length of the data of each record; a record that was torn at the end is left out."""
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
