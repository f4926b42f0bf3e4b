"""attrs classes back into plain JSON: the inverse of structuring."""

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import attrs


def to_plain(value: Any) -> Any:
    """A value as JSON that structures back into an equal one.

    Keys that are None by default and None now are left out; a shorthand is used where it says everything.

    :raises TypeError: For a value that JSON has no place for.
    """
    if value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, Enum)):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(item) for item in value]
    if attrs.has(type(value)):
        return _object(value)
    raise TypeError(f"{type(value).__name__} cannot be written in JSON")


def _object(value: attrs.AttrsInstance) -> Any:
    plain: dict[str, Any] = {}
    rest: Mapping[str, Any] = {}
    shorthand, says_everything = None, True
    for attribute in attrs.fields(type(value)):
        item = getattr(value, attribute.name)
        argument = attribute.alias or attribute.name
        if attribute.metadata.get("rest"):
            rest = item
        elif not attribute.init or attribute.metadata.get("key") is False or (item is attribute.default is None):
            continue
        else:
            plain[argument] = to_plain(item)
            if attribute.metadata.get("shorthand"):
                shorthand = argument
            elif item != attribute.default:
                says_everything = False
    if shorthand is not None and says_everything and not rest:
        return plain[shorthand]
    return {**plain, **to_plain(rest)}
