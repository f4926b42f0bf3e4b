"""The default ``state_dict`` and ``load_state_dict`` of trainers: a state in named parts.

A part with methods of these names is stored by them; any other as it is, if a checkpoint can hold it.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import attrs

from hostcore_hookspecs.context import StepContext
from hostcore_hookspecs.errors import HostcoreError

#: The error of a checkpoint that another trainer seems to have written, and what to do about it.
_DIFFERS: Final = "trainer.state_differs"
_HINT: Final = "resume with the trainer and the hyperparams that wrote it, or implement state_dict and load_state_dict"


def stored(state: Any) -> Any:
    """Return what a checkpoint stores of a state: a dictionary, if it is one, or a dataclass or an attrs class.

    :param state: What a trainer's ``configure`` returned.
    """
    parts = _parts(state)
    return {name: _stored(one) for name, one in parts.items()} if isinstance(parts, dict) else _stored(parts)


def load(state: Any, payload: Mapping[str, Any], ctx: StepContext) -> None:
    """Fill a state with what a checkpoint stored.

    :raises HostcoreError: ``trainer.state_differs``: the names are others, or a parameter's shape or type is.
    """
    parts = _parts(state)
    if _keeps_state(parts):
        parts.load_state_dict(payload)
        return
    _check_names(parts, payload, "the state")
    for name, now in parts.items():
        loaded = _loaded(now, payload[name], f"the state[{name!r}]", ctx)
        if parts is state:
            state[name] = loaded
        else:
            object.__setattr__(state, name, loaded)  # also of a frozen class


def _parts(state: Any) -> Any:
    """Return the fields of a dataclass or an attrs class as a dictionary, and anything else as it is."""
    if _keeps_state(state) or not (attrs.has(type(state)) or dataclasses.is_dataclass(type(state))):
        return state
    fields = attrs.fields(type(state)) if attrs.has(type(state)) else dataclasses.fields(state)
    return {field.name: getattr(state, field.name) for field in fields}


def _keeps_state(value: object) -> bool:
    return all(callable(getattr(value, name, None)) for name in ("state_dict", "load_state_dict"))


def _is_nested(value: object) -> bool:
    """Return whether a dictionary holds, at any depth, something that keeps a state."""
    return isinstance(value, dict) and any(_keeps_state(one) or _is_nested(one) for one in value.values())


def _stored(value: Any) -> Any:
    if _keeps_state(value):
        return value.state_dict()
    return {name: _stored(one) for name, one in value.items()} if _is_nested(value) else value


def _loaded(now: Any, stored: Any, place: str, ctx: StepContext) -> Any:
    """Return a value with the state that was stored: the present object, if others work on it.

    What nothing else has to work on is replaced: it may share its memory with the model, and no longer have done so
    when the checkpoint was written.

    :param place: The value in words, for errors.
    """
    if _keeps_state(now):
        now.load_state_dict(stored)
        return now
    if _is_tensor(stored):
        if _is_tensor(now) and now.requires_grad:  # an optimizer updates it
            return _filled(now, stored, place)
        return stored.to(now.device if _is_tensor(now) else ctx.device)
    if isinstance(stored, dict):
        if _is_nested(now):
            _check_names(now, stored, place)
        known = now if isinstance(now, dict) else {}
        loaded = {name: _loaded(known.get(name), one, f"{place}[{name!r}]", ctx) for name, one in stored.items()}
        return type(stored)(loaded)
    if type(stored) in (list, tuple):
        alike = type(now) is type(stored) and len(now) == len(stored)
        pairs = zip(now if alike else [None] * len(stored), stored, strict=True)
        return type(stored)(_loaded(one, other, f"{place}[{i}]", ctx) for i, (one, other) in enumerate(pairs))
    return stored


def _filled(now: Any, stored: Any, place: str) -> Any:
    if (now.shape, now.dtype) != (stored.shape, stored.dtype):
        found = f"{stored.dtype} of shape {tuple(stored.shape)}, not {now.dtype} of shape {tuple(now.shape)}"
        raise HostcoreError(f"{place} of the checkpoint is {found}", code=_DIFFERS, hint=_HINT)
    now.detach().copy_(stored)
    return now


def _is_tensor(value: object) -> bool:
    return hasattr(value, "copy_") and hasattr(value, "detach")


def _check_names(now: Mapping[Any, Any], stored: Mapping[Any, Any], place: str) -> None:
    if now.keys() != stored.keys():
        lacks, more = sorted(map(repr, now.keys() - stored.keys())), sorted(map(repr, stored.keys() - now.keys()))
        found = [f"lacks {', '.join(lacks)}"] if lacks else []
        found += [f"has {', '.join(more)}, which configure does not make"] if more else []
        raise HostcoreError(f"{place} of the checkpoint {', and '.join(found)}", code=_DIFFERS, hint=_HINT)
