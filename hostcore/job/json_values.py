"""Plain JSON: what may stand in a job, so that every reader of a run's files can read it; and attrs classes as JSON."""

import math
import os
from collections.abc import Iterable, Mapping
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

import attrs

from hostcore.job.pointers import Problems
from hostcore.job.wording import found
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.setting_types import ImportPath

#: Objects and lists inside each other.
MAX_DEPTH = 64


class Pairs(dict[str, Any]):
    """An object fresh from a parser, which remembers the keys that were given more than once."""

    def __init__(self, pairs: Iterable[tuple[str, Any]]) -> None:
        super().__init__()
        self.duplicates: list[str] = []
        for key, value in pairs:
            if key in self:
                self.duplicates.append(key)
            self[key] = value


def checked(value: Any, *, max_depth: int = MAX_DEPTH) -> Any:
    """A copy in plain dictionaries, lists and scalars; paths become strings.

    :param max_depth: How many objects and lists may be inside each other.
    :raises Errors: ``job.value``, ``job.duplicate_key``, ``job.too_deep``: everything that is not JSON, with pointers.
    """
    return _checked(value, max_depth)


def _checked(value: Any, levels: int) -> Any:
    if levels < 0:
        raise HostcoreError("nested too deep", code="job.too_deep", pointer="")
    if isinstance(value, Mapping):
        return _checked_object(value, levels)
    if isinstance(value, list | tuple):
        problems = Problems()
        items = [problems.gather(str(index), _checked, item, levels - 1) for index, item in enumerate(value)]
        problems.check()
        return items
    return _checked_scalar(os.fspath(value) if isinstance(value, os.PathLike) else value)


def _checked_object(value: Mapping[Any, Any], levels: int) -> dict[str, Any]:
    problems = Problems()
    plain: dict[str, Any] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            problems.add(_not_json(f"a key must be a string, found {found(key)}", "put it in quotes"), str(key))
            continue
        problems.gather(key, _checked_scalar, key)
        plain[key] = problems.gather(key, _checked, item, levels - 1)
    for key in value.duplicates if isinstance(value, Pairs) else ():
        error = HostcoreError(
            f"{found(key)} is given more than once", code="job.duplicate_key", hint="keep one of them"
        )
        problems.add(error, key)
    problems.check()
    return plain


def _checked_scalar(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise _not_json(f"{found(value)} is not a JSON number", "leave the key out, or use null where it is allowed")
    if isinstance(value, str):
        if "\0" in value:
            raise _not_json("a string contains the character U+0000", None)
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise _not_json("a string contains half of a surrogate pair, which is not text", None)
        return value
    if type(value) is int and not -(2**63) <= value < 2**63:  # most readers of JSON would not give it back as it is
        raise _not_json(f"{found(value)} has more than 64 bits", "write it as a string")
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, date):  # YAML's timestamps
        raise _not_json(f"{value} is a date, which JSON does not have", "put it in quotes")
    raise _not_json(f"{found(value)} is not JSON", "use numbers, strings, booleans, null, lists and objects")


def _not_json(message: str, hint: str | None) -> HostcoreError:
    return HostcoreError(message, code="job.value", pointer="", hint=hint)


def to_plain(value: Any) -> Any:
    """A value as JSON that structures back into an equal one.

    Keys that are None by default and None now are left out; a shorthand is used where it is complete.

    :raises TypeError: For a value that JSON has no place for.
    """
    if value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, Enum)):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path | ImportPath):
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
