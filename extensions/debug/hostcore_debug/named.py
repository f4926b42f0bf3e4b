"""Parameters, buffers and modules in the state of a trainer, by name."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

#: Attributes of a state whose own attributes are searched for modules.
_LEVELS: Final = 3


def named_parameters(state: Any, *, trained: bool = True) -> Iterator[tuple[str, Any]]:
    """Yield the parameters of all modules in a trainer's state, each once.

    :param trained: Only those that get gradients.
    """
    return ((name, one) for name, one in _of_modules(state, "named_parameters") if one.requires_grad or not trained)


def named_buffers(state: Any) -> Iterator[tuple[str, Any]]:
    """Yield the buffers of all modules in a trainer's state, each once."""
    return _of_modules(state, "named_buffers")


def named_modules(state: Any) -> Iterator[tuple[str, Any]]:
    """Yield all modules in a trainer's state, each once; those that have others come first."""
    return _of_modules(state, "named_modules")


def _of_modules(state: Any, method: str) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for name, module in _roots(state, "", _LEVELS):
        for below, one in getattr(module, method)():
            if id(one) not in seen:
                seen.add(id(one))
                yield ".".join(filter(None, [name, below])), one


def _roots(value: Any, name: str, levels: int) -> Iterator[tuple[str, Any]]:
    from torch import nn

    if isinstance(value, nn.Module):
        yield name, value
        return
    if not levels:
        return
    items: Sequence[tuple[str, Any]] = ()
    if isinstance(value, Mapping):
        items = [(str(key), one) for key, one in value.items()]
    elif isinstance(value, list | tuple):
        items = [(str(key), one) for key, one in enumerate(value)]
    elif attrs.has(type(value)):
        items = [(one.name, getattr(value, one.name, None)) for one in attrs.fields(type(value))]
    elif hasattr(value, "__dict__"):
        items = list(vars(value).items())
    for key, one in items:
        yield from _roots(one, f"{name}.{key}" if name else key, levels - 1)
