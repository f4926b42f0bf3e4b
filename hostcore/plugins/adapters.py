"""Small compiled functions between how the host calls a method and how the method is written.

The host passes all documented arguments by position; a method may take a subset, in another order, or by keyword only.
They are compiled from source, as ``collections.namedtuple`` and attrs do it, since some are called every step, and a
generic ``def call(*values)`` costs several times as much. The names come from the hook specifications alone.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any


def by_keyword(
    target: Callable[..., Any],
    takes: Sequence[str],
    passes: Sequence[str],
    defaults: Mapping[str, Any] = MappingProxyType({}),
) -> Callable[..., Any]:
    """A function of the arguments ``takes`` that calls the target with those of ``passes``, as keywords.

    :param defaults: Of those of ``takes`` that need not be given; they are the last.
    """
    parameters = ", ".join(f"{name}=_defaults[{name!r}]" if name in defaults else name for name in takes)
    return _compiled(f"lambda {parameters}: _target({_keywords(passes)})", target, defaults)


def generator_by_keyword(target: Callable[..., Any], takes: Sequence[str], passes: Sequence[str]) -> Callable[..., Any]:
    """The same for a target that returns a generator; the result is a generator function, as pluggy demands."""
    return _compiled(f"lambda {', '.join(takes)}: (yield from _target({_keywords(passes)}))", target)


def _keywords(names: Sequence[str]) -> str:
    return ", ".join(f"{name}={name}" for name in names)


def _compiled(
    source: str, target: Callable[..., Any], defaults: Mapping[str, Any] = MappingProxyType({})
) -> Callable[..., Any]:
    code = compile(source, "<hostcore hook adapter>", "eval")
    function: Callable[..., Any] = eval(code, {"_target": target, "_defaults": defaults})  # noqa: S307 - our own names
    return function
