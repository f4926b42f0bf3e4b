"""JSON that every reader agrees on."""

import json
from typing import Any

import orjson


def dump(value: Any, *, indent: bool = False) -> bytes:
    """A value as a line of strict JSON: UTF-8, no NaN.

    A message may name a file whose name is not UTF-8. Python holds such a name with surrogates, which JSON cannot
    carry: they become question marks.
    """
    option = orjson.OPT_APPEND_NEWLINE | (orjson.OPT_INDENT_2 if indent else 0)
    try:
        return orjson.dumps(value, option=option)
    except orjson.JSONEncodeError:
        text = json.dumps(value, ensure_ascii=False).encode(errors="replace")
        return orjson.dumps(json.loads(text), option=option)
