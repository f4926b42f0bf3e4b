"""Kinds of events, for readers that treat the events of a kind alike.

An event is declared in three places: its class and its name in ``hostcore_hookspecs.events``, its text for people in
``hostcore_builtin_plugins.messages``, and its kind here.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

import attrs

from hostcore_hookspecs.events import ENDS, PAYLOADS


class Kind(Enum):
    """The meaning of an event to the reader of a log."""

    #: An attempt begins.
    BEGIN = "begin"
    #: The run moves on; nothing that people have to read.
    PROGRESS = "progress"
    #: An evaluation is over.
    EVALUATION = "evaluation"
    #: A file was written, or copied.
    FILE = "file"
    #: Something went wrong without stopping the run.
    WARNING = "warning"
    #: The run was asked to stop.
    STOP = "stop"
    #: The attempt has ended.
    END = "end"


#: The kind of each event, by name. A newer hostcore may have written others.
KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "run_submitted": Kind.BEGIN,
        "run_started": Kind.BEGIN,
        "run_resumed": Kind.BEGIN,
        "epoch_started": Kind.PROGRESS,
        "metrics": Kind.PROGRESS,
        "progress": Kind.PROGRESS,
        "batch_split": Kind.WARNING,
        "validation": Kind.EVALUATION,
        "test": Kind.EVALUATION,
        "checkpoint_saved": Kind.FILE,
        "checkpoint_skipped": Kind.WARNING,
        "sample_saved": Kind.FILE,
        "artifact_uploaded": Kind.FILE,
        "upload_failed": Kind.WARNING,
        "reporter_failed": Kind.WARNING,
        "warning": Kind.WARNING,
        "trainer_restored": Kind.EVALUATION,
        "stop_requested": Kind.STOP,
        **dict.fromkeys(ENDS, Kind.END),
    }
)


def _having(field: str) -> frozenset[str]:
    return frozenset(name for name, payload in PAYLOADS.items() if field in attrs.fields_dict(payload))


#: The events that have metrics.
MEASURED: Final = _having("metrics")
#: The events with the pace of the run.
PACED: Final = _having("samples_per_second")
