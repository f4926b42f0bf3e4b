"""Random draws of a batch that follow from one seed, in whatever process and attempt it is read.

The generators are Python's, NumPy's and torch's global ones, and those that datasets, transforms and ``collate_fn``
keep in attributes: ``numpy.random.default_rng`` in a Dataset, or those in the transforms of albumentations and MONAI.
"""

import functools
import random
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import numpy as np
import torch

KINDS: Final = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)
#: Objects that a search visits at most, and elements of a container that it visits.
_MOST_OBJECTS: Final = 10_000
_MOST_ELEMENTS: Final = 1_000
#: Values without attributes that could hold a generator.
_LEAVES: Final = (
    *(bool, int, float, complex, str, bytes, bytearray, range, slice, type(None), type, types.ModuleType),
    *(np.ndarray, np.generic, torch.Tensor, torch.dtype, torch.device, types.BuiltinFunctionType),
)


def generators_in(*roots: object) -> list[Any]:
    """Return the generators that objects hold, in an order that depends on the objects' structure alone.

    Attributes, elements of containers, closures, bound methods and partial calls are followed.
    """
    found, seen, stack = [], set[int](), [*reversed(roots)]
    while stack and len(seen) < _MOST_OBJECTS:
        one = stack.pop()
        if isinstance(one, _LEAVES) or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, KINDS):
            found.append(one)
        else:
            stack.extend(reversed([*_held_by(one)]))
    return found


def seed_each(generators: Iterable[Any], seed: int) -> None:
    """Seed generators, each differently."""
    for index, one in enumerate(generators):
        sequence = np.random.SeedSequence([seed, index])
        if isinstance(one, np.random.Generator):
            one.bit_generator.state = type(one.bit_generator)(sequence).state
            continue
        own = int(sequence.generate_state(1)[0])
        if isinstance(one, torch.Generator):
            one.manual_seed(own)
        else:
            one.seed(own)


def state_of(generator: Any) -> Any:
    """Return the kind of a generator, and its state."""
    if isinstance(generator, random.Random):
        return ["python", generator.getstate()]
    if isinstance(generator, np.random.Generator):
        return ["numpy", generator.bit_generator.state]
    if isinstance(generator, np.random.RandomState):
        return ["legacy", generator.get_state(legacy=False)]
    return ["torch", generator.get_state().numpy()]


def set_state_of(generator: Any, state: Any) -> None:
    """Give a generator what :func:`state_of` returned."""
    _, value = state
    if isinstance(generator, random.Random):
        generator.setstate(value)
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = value
    elif isinstance(generator, torch.Generator):
        generator.set_state(torch.from_numpy(value))
    else:
        generator.set_state(value)


def _held_by(one: object) -> Iterator[object]:
    if isinstance(one, dict):
        yield from _first(one.values(), len(one))
    elif isinstance(one, (list, tuple, set, frozenset)):
        yield from _first(one, len(one))
    elif isinstance(one, functools.partial):
        yield from (one.func, *one.args, *one.keywords.values())
    elif isinstance(one, types.MethodType):
        yield from (one.__self__, one.__func__)
    elif isinstance(one, types.FunctionType):
        for cell in one.__closure__ or ():
            with suppress(ValueError):  # it is empty
                yield cell.cell_contents
        yield from one.__defaults__ or ()
    yield from getattr(one, "__dict__", {}).values()
    for cls in type(one).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(one, name):
                yield getattr(one, name)


def _first(values: Iterable[object], count: int) -> Iterable[object]:
    """Return the values of a container, of a large one none: rows, which hold no generators."""
    return values if count <= _MOST_ELEMENTS else ()


def random_states() -> tuple[Any, ...]:
    """Return the states of the global generators of Python, NumPy and torch's CPU."""
    return random.getstate(), np.random.get_state(), torch.get_rng_state()


def set_random_states(states: tuple[Any, ...]) -> None:
    """Give the global generators states that :func:`random_states` returned."""
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


@contextmanager
def random_states_kept() -> Iterator[None]:
    """Behind it, the global generators are as they were before."""
    states = random_states()
    try:
        yield
    finally:
        set_random_states(states)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """While entered, the global generators begin from a seed; behind it, they are as before."""
    with random_states_kept():
        random.seed(seed)
        np.random.seed(seed)
        torch.default_generator.manual_seed(seed)
        yield
