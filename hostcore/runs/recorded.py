"""The metrics that a run has recorded, step by step."""

from collections.abc import Mapping
from pathlib import Path

import attrs
import orjson

from hostcore.events.reader import LONGEST_RECORD, GrowingLog, name_of


@attrs.frozen(kw_only=True)
class RecordedStep:
    """The metrics of a step, by the attempt that recorded it last."""

    attempt: int
    #: None: not finite.
    metrics: Mapping[str, float | None]


def recorded_steps(events: Path) -> dict[int, RecordedStep]:
    """Return the recorded steps of a run by number; empty without a log.

    :param events: The run's event log.
    """
    found = {}
    for line in GrowingLog(events).records(longest=LONGEST_RECORD):
        if name_of(line) == "metrics":
            event = orjson.loads(line)
            found[event["step"]] = RecordedStep(attempt=event["attempt"], metrics=event["metrics"])
    return found
