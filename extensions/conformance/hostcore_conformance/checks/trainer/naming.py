"""Where in a trainer's state its models are, and which code is the trainer's: as its author would say it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

#: A trainer may inherit from these, but its author did not write them.
_NOT_AUTHORS: Final = frozenset({"builtins", "abc", "typing", "hostcore", "hostcore_hookspecs", "torch"})


def paths_of(state: Any, models: Sequence[Any]) -> Mapping[int, str]:
    """How the models of a trainer's state are reached: ``state.model``, ``state['nets'][0]``, by their ids.

    :param models: As :func:`hostcore.worker.modes.modules_in` finds them.
    """
    wanted = {id(one) for one in models}
    found: dict[int, str] = {}
    for path, value in _reached(state):
        if id(value) in wanted:
            found.setdefault(id(value), path)
    return {id(one): found.get(id(one), f"model {number}") for number, one in enumerate(models)}


def _reached(state: Any) -> Iterator[tuple[str, Any]]:
    yield "state", state
    for path, value in _members("state", state):
        yield path, value
        if isinstance(value, Mapping | list | tuple):
            yield from _members(path, value)


def _members(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f"{path}[{key!r}]", one) for key, one in value.items())
        return
    if isinstance(value, list | tuple):
        yield from ((f"{path}[{number}]", one) for number, one in enumerate(value))
        return
    names = dict.fromkeys(getattr(value, "__dict__", {}))
    if attrs.has(type(value)):
        names |= dict.fromkeys(field.name for field in attrs.fields(type(value)))
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        names |= dict.fromkeys([slots] if isinstance(slots, str) else slots)
    yield from ((f"{path}.{name}", getattr(value, name, None)) for name in names)


def packages_of(owner: type) -> frozenset[str]:
    """The top-level packages of a trainer's class and of those that it inherits from."""
    own = owner.__module__.partition(".")[0]
    return frozenset({own, *(cls.__module__.partition(".")[0] for cls in owner.__mro__)} - (_NOT_AUTHORS - {own}))
