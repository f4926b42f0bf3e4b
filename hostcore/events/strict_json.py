"""JSON that every reader agrees on, and that shows no secret."""

import json
from typing import Any

import orjson

from hostcore.secrets.scrub import is_in, scrubbed


def dump(value: Any, *, indent: bool = False) -> bytes:
    """A value as a line of strict JSON: UTF-8, no NaN, no secret.

    A message may name a file whose name is not UTF-8. Python holds such a name with surrogates, which JSON cannot
    carry: they become question marks.
    """
    line = _encoded(value, indent=indent)
    # String by string, and not in the line: what a number or a quote looks like must not break the JSON.
    return _encoded(scrubbed(value), indent=indent) if is_in(line) else line


def _encoded(value: Any, *, indent: bool) -> bytes:
    option = orjson.OPT_APPEND_NEWLINE | (orjson.OPT_INDENT_2 if indent else 0)
    try:
        return orjson.dumps(value, option=option)
    except orjson.JSONEncodeError:
        text = json.dumps(value, ensure_ascii=False).encode(errors="replace")
        return orjson.dumps(json.loads(text), option=option)
