"""Everything that a step of a module may change before its update, to be put back when the step is made again."""

from collections import OrderedDict, UserDict, deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch.utils.data import Dataset

from hostcore_lightning.unsaved import LIBRARIES
from hostcore_toolkit.draws import KINDS as GENERATORS
from hostcore_toolkit.draws import set_state_of, state_of

_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), type)
#: Elements of a container beyond which only the container itself is kept: rows.
_MOST_ELEMENTS: Final = 100_000
PutBack = Callable[[], None]


class KeptStep:
    """The attributes of objects and of those that they hold, the elements of containers, the memory of tensors.

    Objects are kept as they are and changed in place, so that whoever shares them sees the same. Instances of classes
    of libraries are followed only if they are modules.

    :param apart: Objects that are not followed.
    :param tensors: Tensors whose memory somebody else puts back.
    """

    def __init__(self, roots: Iterable[Any], *, apart: Iterable[Any], tensors: Iterable[torch.Tensor]) -> None:
        self._seen: dict[int, Any] = {id(one): one for one in apart}
        self._memory = {storage.data_ptr() for one in tensors if (storage := _storage(one)) is not None}
        self._back: list[PutBack] = []
        stack = [*roots]
        while stack:
            value = stack.pop()
            if not isinstance(value, _PLAIN) and id(value) not in self._seen:
                self._seen[id(value)] = value
                stack.extend(self._keep(value))

    def add_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Keep the gradients of parameters, too."""
        for one in parameters:
            if one.grad is not None:
                self._back.append(partial(setattr, one, "grad", one.grad))
                self._keep_memory(one.grad)

    def put_back(self) -> None:
        """Bring everything back as it was."""
        for one in self._back:
            one()

    def _keep(self, value: Any) -> Iterable[Any]:
        """Keep a value, and return what it holds."""
        below: Iterable[Any] = ()
        if isinstance(value, torch.Tensor):
            self._keep_memory(value)
        elif isinstance(value, np.ndarray):
            if value.flags.writeable and not value.dtype.hasobject:
                self._back.append(partial(np.copyto, value, value.copy()))
        elif isinstance(value, GENERATORS):
            self._back.append(partial(set_state_of, value, state_of(value)))
        elif isinstance(value, dict):
            self._back.append(partial(_refill_mapping, value, dict(value)))
            below = value.values() if len(value) <= _MOST_ELEMENTS else ()
        elif isinstance(value, (list, set, deque, bytearray)):
            self._back.append(partial(_refill, value, list(value)))
            below = value if len(value) <= _MOST_ELEMENTS else ()
        elif isinstance(value, (tuple, frozenset)):
            below = value
        own = [vars(value)] if _has_attributes(value) else []
        return [*below, *own]

    def _keep_memory(self, tensor: torch.Tensor) -> None:
        storage: Any = _storage(tensor)  # untyped in some versions of torch
        if storage is not None and storage.data_ptr() not in self._memory:
            self._memory.add(storage.data_ptr())
            self._back.append(partial(storage.copy_, storage.clone()))


def _has_attributes(value: Any) -> bool:
    """Return whether an object's attributes are kept."""
    package = type(value).__module__.partition(".")[0]
    of_the_user = package not in LIBRARIES and not package.startswith("hostcore")
    return (
        hasattr(value, "__dict__")
        and not isinstance(value, (torch.Tensor, Dataset))
        and (of_the_user or isinstance(value, (torch.nn.Module, UserDict)))
    )


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return the memory of a tensor; None for an empty one, and one without memory of its own."""
    try:
        storage = tensor.untyped_storage()
        return storage if storage.data_ptr() else None
    except (RuntimeError, NotImplementedError):  # sparse, or spread over ranks
        return None


def _refill_mapping(mapping: dict[Any, Any], content: dict[Any, Any]) -> None:
    if len(mapping) != len(content) or any(mapping.get(key, content) is not one for key, one in content.items()):
        kind = OrderedDict if isinstance(mapping, OrderedDict) else dict  # some subclasses refuse to be changed
        kind.clear(mapping)
        for key, one in content.items():
            kind.__setitem__(mapping, key, one)


def _refill(container: Any, content: list[Any]) -> None:
    container.clear()
    container.update(content) if isinstance(container, set) else container.extend(content)
