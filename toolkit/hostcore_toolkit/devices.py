"""Moving batches to the device, and seeding the generators of all devices."""

import copy
import dataclasses
import operator
import random
from collections import UserDict
from typing import Any, TypeVar

import attrs
import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from hostcore_hookspecs.context import StepContext

Batch = TypeVar("Batch")


def to_device(batch: Batch, ctx_or_device: StepContext | torch.device | str) -> Batch:
    """Move the tensors of a batch to a device, however they are nested.

    Looks into tuples and named tuples, lists, dictionaries, dataclasses and attrs classes, in any depth. Those that
    change are copied, without calling their constructors; the batch itself stays as it is. Whatever is on the device
    already comes back as the very same object, and so does a whole batch that is.

    To a CUDA device, tensors of main memory are copied into pinned memory first, and from there without blocking: the
    copy to the device runs beside the trainer, and whatever uses the result in the current stream waits for it.
    torch uses pinned memory again only when its copy is done, so the batch can be let go of at once. To other devices
    the copy is a plain one.

    Left alone, even when there are tensors inside: objects of other classes, sets, keys of dictionaries; NumPy arrays
    and Arrow data, of which :func:`~hostcore_toolkit.to_tensors` makes tensors. Modules are moved with ``module.to``.

    :param batch: Anything; also a single tensor.
    :param ctx_or_device: The context, for ``ctx.device``, or a device.
    :return: Of the same type.
    """
    asked = ctx_or_device.device if isinstance(ctx_or_device, StepContext) else ctx_or_device
    moved: Batch = _Move(torch.device(asked)).value(batch)
    return moved


@attrs.frozen(eq=False)
class _Move:
    device: torch.device
    #: By the identity of the original: what is in two places of a batch still is. Holds the originals, too.
    _done: dict[int, tuple[torch.Tensor, torch.Tensor]] = attrs.field(factory=dict)

    def value(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, PackedSequence):  # a named tuple, one part of which stays in main memory
            return self._to(value)
        if isinstance(value, tuple):
            return self._tuple(value)
        if isinstance(value, list):
            return _changed(value, dict(enumerate(map(self.value, value))), list.__getitem__, list.__setitem__)
        if isinstance(value, (dict, UserDict)):
            items = {key: self.value(item) for key, item in value.items()}
            return _changed(value, items, type(value).__getitem__, type(value).__setitem__)
        if isinstance(value, type):
            return value
        if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
        elif attrs.has(type(value)):
            names = [field.name for field in attrs.fields(type(value))]
        else:
            return value
        fields = {name: self.value(getattr(value, name)) for name in names if hasattr(value, name)}
        return _changed(value, fields, getattr, object.__setattr__)  # object's: a frozen one changes, too

    def _tuple(self, value: tuple[Any, ...]) -> Any:
        items = [self.value(item) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        make = getattr(type(value), "_make", type(value))  # a named tuple takes its items one by one
        return make(items)

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in self._done:
            self._done[id(tensor)] = (tensor, self._to(tensor))
        return self._done[id(tensor)][1]

    def _to(self, value: Any) -> Any:
        if self.device.type != "cuda":
            return value.to(self.device)
        if isinstance(value, torch.Tensor) and (value.device.type != "cpu" or value.layout != torch.strided):
            return value.to(self.device, non_blocking=True)
        return value.pin_memory().to(self.device, non_blocking=True)


def _changed(container: Any, new: dict[Any, Any], read: Any, write: Any) -> Any:
    """The container, or a copy of it in which some items are new."""
    different = {key: item for key, item in new.items() if read(container, key) is not item}
    if not different:
        return container
    changed = copy.copy(container)
    for key, item in different.items():
        write(changed, key, item)
    return changed


def seed_everything(seed: int) -> None:
    """Seed the global generators of Python, NumPy and torch, the latter on the CPU and on all accelerators.

    Generators made by hand (``random.Random``, ``np.random.default_rng``, ``torch.Generator``) are not touched. The
    host does this itself, with the job's ``seed``, before it sets a trainer up.

    :param seed: From 0 to 2**32 - 1: NumPy takes no larger one, and torch's generator on the CPU silently uses only
        the low 32 bits.
    :raises TypeError: When the seed is not a whole number.
    :raises ValueError: When it is out of range.
    """
    if isinstance(seed, (bool, np.bool_)):
        raise TypeError(f"a seed is a whole number, not {seed!r}")
    seed = operator.index(seed)
    if not 0 <= seed < 2**32:
        raise ValueError(f"a seed is between 0 and 2**32 - 1; got {seed}")
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
