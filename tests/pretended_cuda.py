"""Copies to a CUDA device where there is none: they stay on the CPU, and those that would wait for the GPU are errors.

``with CopiesToCuda():`` tensors are "moved" by ``.to()``, which has to be non-blocking and from pinned memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode


class BlockingCopy(AssertionError):
    """A copy to the device that waits until the device has done all that was asked of it."""


class CopiesToCuda(TorchFunctionMode):
    """In force in the thread that enters it."""

    def __init__(self) -> None:
        super().__init__()
        self.copies = 0
        #: Blocking copies are allowed: before the first step nobody minds.
        self.is_lenient = False
        self._pinned: dict[int, StorageWeakRef] = {}

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.pin_memory:
            pinned = args[0].clone()
            storage = StorageWeakRef(pinned.untyped_storage())
            self._pinned[storage.cdata] = storage
            return pinned
        if func is not torch.Tensor.to or not _is_cuda([*args[1:], kwargs.get("device")]):
            return func(*args, **kwargs)
        non_blocking = kwargs.get("non_blocking") or True in args[1:]
        if not self.is_lenient and not (
            non_blocking and StorageWeakRef(args[0].untyped_storage()).cdata in self._pinned
        ):
            where = "from pageable memory" if non_blocking else "not non_blocking"
            raise BlockingCopy(f"a copy of {tuple(args[0].shape)} to the device is {where}")
        self.copies += 1
        return args[0].clone()


def _is_cuda(given: Sequence[Any]) -> bool:
    return any(isinstance(one, str | torch.device) and torch.device(one).type == "cuda" for one in given)
