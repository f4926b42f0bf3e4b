"""Declaration of a key: an attribute of an attrs class with its meaning, for the reference and the JSON Schema."""

from collections.abc import Callable
from typing import Any, TypeVar, overload

import attrs

T = TypeVar("T")


@overload
def key(meaning: str, *, default: T, shown: str | None = None) -> T: ...


@overload
def key(meaning: str, *, factory: Callable[[], T], shown: str | None = None) -> T: ...


def key(meaning: str, *, shown: str | None = None, **default: Any) -> Any:
    """Declare a key that may be left out.

    :param meaning: A sentence.
    :param default: See :func:`attrs.field`; or ``factory``.
    :param shown: The default in words, if its value is not meaningful.
    """
    return attrs.field(metadata={"help": meaning} if shown is None else {"help": meaning, "default": shown}, **default)
