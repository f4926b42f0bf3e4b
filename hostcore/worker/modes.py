"""Modes of a validation, a test or a sample: as if it had not happened to the training."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import attrs
import torch
from torch import nn

from hostcore.worker import randomness
from hostcore_toolkit import seed_everything

T = TypeVar("T")


@contextmanager
def evaluating(state: Any, *, seed: int, step: int, rank: int, number: int = 0) -> Iterator[None]:
    """Models in evaluation mode, no gradients, and random generators of their own; all as before afterwards.

    :param state: The trainer's; see :func:`modules_in` for what is found in it.
    :param seed: The job's. With the step, the rank and the number it seeds the generators.
    :param number: Of the evaluation among those of its step.
    """
    modules = [module for root in modules_in(state) for module in root.modules()]
    modes = [module.training for module in modules]
    with randomness.kept(), torch.no_grad():
        place = f"{seed}/{step}/{rank}" + (f"/{number}" if number else "")
        seed_everything(int.from_bytes(hashlib.sha256(f"evaluate/{place}".encode()).digest()[:4], "big"))
        try:
            for module in modules:
                module.training = False
            yield
        finally:
            for module, mode in zip(modules, modes, strict=True):
                module.training = mode


def modules_in(state: Any) -> list[nn.Module]:
    """The models of a trainer's state; see :func:`members_in`."""
    return members_in(state, nn.Module)


def members_in(state: Any, kind: type[T]) -> list[T]:
    """All of a kind in a trainer's state: itself, its attributes, its items, and the items of these."""
    found: dict[int, T] = {}
    for value in (state, *_members(state)):
        for one in (value, *(_members(value) if isinstance(value, Mapping | Sequence) else ())):
            if isinstance(one, kind):
                found.setdefault(id(one), one)
    return list(found.values())


def _members(value: Any) -> Sequence[Any]:
    if isinstance(value, nn.Module | str | bytes):
        return ()
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple):
        return value
    members = dict(getattr(value, "__dict__", {}))
    if attrs.has(type(value)):  # with slots there is no __dict__
        members |= {field.name: getattr(value, field.name, None) for field in attrs.fields(type(value))}
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        members |= {name: getattr(value, name, None) for name in ([slots] if isinstance(slots, str) else slots)}
    return list(members.values())
