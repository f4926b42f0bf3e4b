"""Time of a run's submission: with its id, it identifies a run among earlier ones of the same name."""

from pathlib import Path
from typing import Any

import orjson

from hostcore_hookspecs import Event


def submitted_ms(run_dir: str, event: Event) -> int:
    """The time of the first event of a run, in milliseconds since 1970; the same in every attempt and in a replay.

    :param run_dir: The run directory, whose ``logs/events.jsonl`` begins with that event.
    :param event: Any event of the run: its own time is taken if it is the first, or if there is no log to read.
    """
    if event.seq == 1:
        return event.time_ms
    try:
        with Path(run_dir, "logs", "events.jsonl").open("rb") as log:
            first: Any = orjson.loads(log.readline())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return event.time_ms
    return int(first["time_ms"])
