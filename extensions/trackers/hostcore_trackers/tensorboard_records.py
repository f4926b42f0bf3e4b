"""What of a run becomes which records of TensorBoard."""

from collections.abc import Mapping, Sequence
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

from hostcore_hookspecs import Event
from hostcore_trackers.job_parameters import Parameter
from hostcore_trackers.tensorboard_files import mark_of

#: Beyond this, a text of TensorBoard's is of no use to anybody.
_TEXT_CHARACTERS: Final = 10_000


def record(event: Event, values: Sequence[Summary.Value]) -> Record:
    """The values of an event, at its step and time, with its number."""
    values[0].node_name = mark_of(event.seq)
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
