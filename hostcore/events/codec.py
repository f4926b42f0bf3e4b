"""Events as lines of JSON, and back."""

import math
from collections.abc import Mapping
from typing import Any

import attrs
import cattrs
import orjson

from hostcore.events.strict_json import dump
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.events import NAMES, PAYLOADS, SCHEMA, Event, Payload

_converter = cattrs.Converter()


class CorruptLog(HostcoreError):
    """A log holds something that is not an event."""

    code = "events.corrupt"


def encode_payload(payload: Payload, *, time_ms: int, step: int | None, epoch: int | None) -> bytes:
    """A line of a rank log: an event without the envelope that the supervisor adds."""
    line = {"time_ms": time_ms, "event": NAMES[type(payload)], "step": step, "epoch": epoch, **attrs.asdict(payload)}
    return dump(line)


def encode_event(event: Event) -> bytes:
    """A line of ``events.jsonl``."""
    return dump(event.as_dict())


def decode_payload(line: Mapping[str, Any]) -> Payload:
    """The payload of a decoded line, of either log.

    Fields that this version does not know are passed over: a newer hostcore may have written them.

    :raises CorruptLog: When the line is no event.
    """
    try:
        return _converter.structure(line, PAYLOADS[line["event"]])
    except Exception as error:
        raise CorruptLog(f"not an event: {line!r:.200}") from error


def decode_event(line: bytes) -> Event:
    """An event from a line of ``events.jsonl``.

    :raises CorruptLog: When the line is no event.
    """
    try:
        found = orjson.loads(line)
        if found["schema"] != SCHEMA:
            raise CorruptLog(f"unknown event schema {found['schema']!r}; this hostcore reads {SCHEMA!r}")
        return Event(
            seq=found["seq"],
            time_ms=found["time_ms"],
            run_id=found["run_id"],
            attempt=found["attempt"],
            src=tuple(found["src"]) if found["src"] else None,
            step=found["step"],
            epoch=found["epoch"],
            payload=decode_payload(found),
        )
    except (KeyError, TypeError, orjson.JSONDecodeError) as error:
        raise CorruptLog(f"not an event: {line!r:.200}") from error


def finite(metrics: Mapping[str, float]) -> tuple[dict[str, float | None], tuple[str, ...]]:
    """Metrics as strict JSON: null for what is not finite, and the names of these."""
    nonfinite = tuple(name for name, value in metrics.items() if not math.isfinite(value))
    return {name: None if name in nonfinite else value for name, value in metrics.items()}, nonfinite
