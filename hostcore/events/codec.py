"""Events as lines of JSON, and back."""

import math
from collections.abc import Mapping
from typing import Any, Final

import attrs
import cattrs
import orjson

from hostcore.events.bounds import MOST_NAME, MOST_TEXT, bounded_record
from hostcore.events.strict_json import dump
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.events import NAMES, PAYLOADS, SCHEMA, Event, Payload, fields_of

_converter = cattrs.Converter()
_converter.register_structure_hook(float | None, lambda value, _: None if value is None else float(value))
#: Keys of every line, whatever its payload.
_ENVELOPE: Final = frozenset({"schema", "event", *(field.name for field in attrs.fields(Event))}) - {"payload"}


class CorruptLog(HostcoreError):
    """A log holds something that is not an event."""

    code = "events.corrupt"


def encode_payload(payload: Payload, *, time_ms: int, step: int | None, epoch: int | None) -> bytes:
    """A line of a rank log: an event without the envelope that the supervisor adds."""
    return _line(
        {"time_ms": time_ms, "event": NAMES[type(payload)], "step": step, "epoch": epoch, **fields_of(payload)}
    )


def encode_event(event: Event) -> bytes:
    """A line of ``events.jsonl``."""
    return _line(event.as_dict())


def _line(record: Mapping[str, Any]) -> bytes:
    """A record as a line, its texts bounded."""
    line = dump(record)
    return line if _is_short(line, record) else dump(bounded_record(record))


def _is_short(line: bytes, record: Any) -> bool:
    """Return whether no text of a record can be too long. Most are short, and bounding takes as long as decoding.

    :param record: The decoded line, which may be anything where another program has written it.
    """
    if len(line) <= MOST_NAME or not isinstance(record, dict):
        return len(line) <= MOST_TEXT
    longest = MOST_NAME // 4  # in characters
    names = (name for value in record.values() if isinstance(value, dict) for name in value)
    return len(line) <= MOST_TEXT and all(len(name) <= longest for name in names)


def parse_line(line: bytes) -> dict[str, Any]:
    """The JSON of a line of either log; its texts are bounded, also where an older version has not bounded them.

    :raises orjson.JSONDecodeError: When it is none.
    """
    found: dict[str, Any] = orjson.loads(line)
    return found if _is_short(line, found) else bounded_record(found)


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
        found = parse_line(line)
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


def unknown_text(line: Mapping[str, Any]) -> str:
    """Return a decoded line without its envelope, as JSON: the text of an event that a newer hostcore has written."""
    return orjson.dumps({key: value for key, value in line.items() if key not in _ENVELOPE}).decode()


def finite(metrics: Mapping[str, float]) -> tuple[dict[str, float | None], tuple[str, ...]]:
    """Metrics as strict JSON: null for what is not finite, and the names of these."""
    if all(map(math.isfinite, metrics.values())):
        return dict(metrics), ()
    nonfinite = tuple(name for name, value in metrics.items() if not math.isfinite(value))
    return {name: None if name in nonfinite else value for name, value in metrics.items()}, nonfinite
