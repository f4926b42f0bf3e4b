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


class EventKind(Enum):
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
EVENT_KINDS: Final[Mapping[str, EventKind]] = MappingProxyType(
    {
        "run_submitted": EventKind.BEGIN,
        "run_started": EventKind.BEGIN,
        "run_resumed": EventKind.BEGIN,
        "epoch_started": EventKind.PROGRESS,
        "metrics": EventKind.PROGRESS,
        "progress": EventKind.PROGRESS,
        "resume_probe": EventKind.PROGRESS,
        "batch_split": EventKind.WARNING,
        "validation": EventKind.EVALUATION,
        "test": EventKind.EVALUATION,
        "checkpoint_saved": EventKind.FILE,
        "checkpoint_skipped": EventKind.WARNING,
        "sample_saved": EventKind.FILE,
        "artifact_uploaded": EventKind.FILE,
        "upload_failed": EventKind.WARNING,
        "reporter_failed": EventKind.WARNING,
        "warning": EventKind.WARNING,
        "trainer_restored": EventKind.EVALUATION,
        "stop_requested": EventKind.STOP,
        **dict.fromkeys(ENDS, EventKind.END),
    }
)


def _having(field: str) -> frozenset[str]:
    return frozenset(name for name, payload in PAYLOADS.items() if field in attrs.fields_dict(payload))


#: The events that have metrics.
MEASURED: Final = _having("metrics")
#: The events with the pace of the run.
PACED: Final = _having("samples_per_second")
