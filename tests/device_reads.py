"""A device that is pretended on the CPU: some tensors count as a GPU's, and reading them too early is an error.

Reading a tensor of a GPU makes the process wait until the GPU has done all that was asked of it. ``DeviceReads`` finds
such reads without a GPU. Tensors that are put on the pretended device, and all that is computed of them, gradients and
optimizer states too, count as the device's. While ``forbidden`` is set, ``.item()``, ``bool()``, ``float()``,
``.tolist()``, ``.numpy()``, ``.cpu()``, and operations whose result has a shape that depends on the content, raise
``WaitedFor``. The tensors themselves stay plain ones, so the code under test takes the same branches as for the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_Value = TypeVar("_Value")
_ATEN = torch.ops.aten
#: What has to know the content of a tensor: at once, or for the shape of its result.
_READING = {
    _ATEN._local_scalar_dense,
    _ATEN.equal,
    _ATEN.nonzero,
    _ATEN.masked_select,
    _ATEN._unique2,
    _ATEN.unique_dim,
    _ATEN.unique_consecutive,
}
#: What Python reads past the dispatcher, where a tensor is the CPU's.
_PAST_IT = {
    torch.Tensor.tolist,
    torch.Tensor.numpy,
    torch.Tensor.__array__,
    torch.Tensor.cpu,
}


class WaitedFor(AssertionError):
    """The device was waited for where it must not be."""


class DeviceReads:
    """The pretended device. It is in force in the thread that calls ``start``, to the end of the thread or ``stop``."""

    def __init__(self) -> None:
        self.forbidden = False
        #: Reads that were allowed.
        self.allowed = 0
        #: By address. A weak reference keeps the address from being used again.
        self._storages: dict[int, StorageWeakRef] = {}
        self._modes = ExitStack()

    def start(self) -> None:
        self._modes.enter_context(_Functions(self))
        self._modes.enter_context(_Operations(self))

    def stop(self) -> None:
        self._modes.close()

    def put(self, values: _Value) -> _Value:
        """Put all tensors of a tree, or of a module, on the device, where they lie."""
        leaves = [*values.parameters(), *values.buffers()] if isinstance(values, torch.nn.Module) else values
        for one in tree_leaves(leaves):
            if isinstance(one, torch.Tensor) and one.layout is torch.strided:
                storage = StorageWeakRef(one.untyped_storage())
                self._storages[storage.cdata] = storage
        return values

    def has(self, value: Any) -> bool:
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return False
        return StorageWeakRef(value.untyped_storage()).cdata in self._storages

    def read(self, what: str) -> None:
        if self.forbidden:
            raise WaitedFor(f"{what} reads a tensor of the device between two cadence steps")
        self.allowed += 1


class _Operations(TorchDispatchMode):
    """All operations, those of a backward pass and inside of other operations too."""

    def __init__(self, device: DeviceReads) -> None:
        super().__init__()
        self._device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        given = [*tree_leaves(args), *tree_leaves(kwargs or {})]
        on_device = any(map(self._device.has, given))
        if on_device and (func.overloadpacket in _READING or _selects_by_content(func, args)):
            self._device.read(str(func))
            return func(*args, **(kwargs or {}))
        result = func(*args, **(kwargs or {}))
        if on_device:
            self._device.put(result)
        return result


class _Functions(TorchFunctionMode):
    """The methods of tensors that read a tensor of the CPU without an operation."""

    def __init__(self, device: DeviceReads) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        if args and self._device.has(args[0]) and (func in _PAST_IT or _moves_to_cpu(func, args, kwargs or {})):
            self._device.read(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


def _selects_by_content(func: Any, args: Sequence[Any]) -> bool:
    """Return whether an index is a mask, whose elements a GPU has to count first."""
    if func.overloadpacket not in (_ATEN.index, _ATEN.index_put, _ATEN.index_put_):
        return False
    masks = [one for one in tree_leaves(args[1]) if isinstance(one, torch.Tensor)]
    return any(one.dtype in (torch.bool, torch.uint8) for one in masks)


def _moves_to_cpu(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Return whether ``to`` names the CPU as such, not the device of the job, and waits for the copy."""
    return func is torch.Tensor.to and "cpu" in (*args[1:], kwargs.get("device")) and not kwargs.get("non_blocking")
