"""Events as JSON, for those who send them elsewhere."""

from collections.abc import Mapping
from typing import Any

import orjson

from hostcore_hookspecs import Event


def dump(value: object, *, option: int = 0) -> bytes:
    """Compact, strict JSON: null where a float is not finite.

    :param option: Options of orjson.
    """
    return orjson.dumps(value, default=_plain, option=option)


def event_json(event: Event) -> bytes:
    """An event as it is in ``events.jsonl``, without the end of the line."""
    return dump(event.as_dict())


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):  # read-only ones, which orjson does not know
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
