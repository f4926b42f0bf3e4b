"""The JSON Schema of the lines of ``events.jsonl``."""

from typing import Any

from hostcore.job.forms import json_schema
from hostcore_hookspecs.events import PAYLOADS, SCHEMA

_ENVELOPE: dict[str, Any] = {
    "schema": {"const": SCHEMA},
    "seq": {"type": "integer", "minimum": 1, "description": "Counts from 1 over all attempts, without a gap."},
    "time_ms": {"type": "integer", "description": "Milliseconds since 1970, UTC."},
    "run_id": {"type": "string"},
    "attempt": {"type": "integer", "minimum": 1},
    "src": {
        "description": "Rank, attempt and offset in that rank's log; null for the supervisor's own events.",
        "anyOf": [
            {"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 3},
            {"type": "null"},
        ],
    },
    "step": {"type": ["integer", "null"], "minimum": 0, "description": "Finished steps when it happened."},
    "epoch": {"type": ["integer", "null"], "minimum": 0},
}


def event_schema() -> dict[str, Any]:
    """One schema for all events: ``event`` decides which of the payloads it is."""
    definitions: dict[str, Any] = {}
    arms = []
    for name, payload in PAYLOADS.items():
        schema = json_schema(payload)
        definitions |= schema.get("$defs", {})
        arms.append(
            {
                "title": name,
                "description": schema.get("description", ""),
                "type": "object",
                "properties": {**_ENVELOPE, "event": {"const": name}, **schema["properties"]},
                "required": [*_ENVELOPE, "event", *schema["properties"]],
            }
        )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "hostcore event",
        "oneOf": arms,
        "$defs": definitions,
    }
