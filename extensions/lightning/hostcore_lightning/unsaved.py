"""State that no ``state_dict`` holds: attributes of the user's objects that the training changes.

A module that counts its steps, a memory bank in a list, a hidden state that the next step begins with: Lightning's
checkpoints leave them out, and a run that goes on without them differs in silence. :class:`Unsaved` finds them by
comparison with the start of the attempt, and stores and restores their values.
"""

import random
import sys
import weakref
import zlib
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from types import MethodType
from typing import Any, Final

import attrs
import numpy as np
import torch
from lightning.pytorch import Callback, LightningDataModule, LightningModule
from torchmetrics import Metric

from hostcore_toolkit.draws import KINDS as GENERATORS
from hostcore_toolkit.draws import set_state_of, state_of

#: Attributes that the base classes manage themselves.
_MANAGED: Final[Mapping[type, frozenset[str]]] = {
    LightningModule: frozenset(
        [*vars(LightningModule()), "_hparams", "_hparams_initial", "_hparams_name", "_param_requires_grad_state"]
    ),
    LightningDataModule: frozenset([*vars(LightningDataModule()), "_hparams", "_hparams_initial", "_hparams_name"]),
    torch.nn.Module: frozenset(vars(torch.nn.Module())),
    object: frozenset(),
}
#: Packages whose objects keep no state of the user's, or store it otherwise.
LIBRARIES: Final = sys.stdlib_module_names | {
    *("datasets", "hostcore", "lightning", "matplotlib", "numpy", "omegaconf", "pandas", "PIL", "polars", "pyarrow"),
    *("pytorch_lightning", "tokenizers", "torch", "torchmetrics", "transformers"),
}
_PLAIN: Final = (bool, int, float, str, bytes, type(None))
_SETS: Final = {"set": set, "frozenset": frozenset, "deque": deque}
#: What makes the values of a ``defaultdict``. The place of each is in checkpoints: add at the end.
_FACTORIES: Final = (None, list, dict, set, int, float, str, deque)
#: Elements of a container that are compared, and bytes of an array.
_MOST_ELEMENTS: Final = 10_000
_MOST_BYTES: Final = 64 << 20
#: Elements of a container that is stored: text, which the training waits for, unlike tensors.
_MOST_STORED: Final = 100_000
#: The size of a value in a data module that is stored; a larger one is taken for a cache of rows.
_MOST_DATA_BYTES: Final = 1 << 20
#: Objects whose attributes are compared.
_MOST_OBJECTS: Final = 10_000


class CannotStore(Exception):
    """A checkpoint cannot hold a value."""


class Unsaved:
    """The attributes of a module, its submodules, a data module, callbacks, and the plain objects in them.

    :param device: The compute device.
    :param warn: Called with one line for an attribute that changed and cannot be stored.
    :param stores: False: changed attributes are reported and not stored.
    """

    def __init__(
        self,
        module: LightningModule,
        datamodule: LightningDataModule | None,
        callbacks: list[Callback],
        *,
        device: torch.device,
        warn: Callable[[str], None],
        stores: bool = True,
    ) -> None:
        self._module, self._datamodule, self._callbacks = module, datamodule, callbacks
        self._device, self._warn, self._stores = device, warn, stores
        saved = self._saved_memory()
        self._before = {name: _mark_of(value, saved) for name, value in self._attributes()}
        #: Attributes that have changed once.
        self._changing: set[str] = set()
        self._reported: set[str] = set()

    def captured(self) -> dict[str, Any]:
        """Return the attributes that have changed since the start, by name (``module.head.steps``), encoded."""
        saved = self._saved_memory()
        found = {}
        for name, value in self._attributes():
            if name not in self._changing and name in self._before and self._before[name] == _mark_of(value, saved):
                continue
            self._changing.add(name)
            is_data = name.startswith("datamodule.")
            try:
                if is_data and _size(value) > _MOST_DATA_BYTES:
                    continue  # a cache of rows
                if not self._stores:
                    raise CannotStore('"capture": "off"')
                if (count := _count(value)) > _MOST_STORED:
                    raise CannotStore(f"it has {count:,} elements")
                found[name] = _encoded(value, saved)
            except RecursionError:
                self._report(name, "it contains itself")
            except CannotStore as error:
                if not is_data:  # it makes loaders and datasets when they are needed
                    self._report(name, str(error))
        return found

    def restore(self, captured: Mapping[str, Any]) -> None:
        """Give the attributes the values that :meth:`captured` returned."""
        owners = dict(self._owners())
        for name, value in captured.items():
            place, _, attribute = name.rpartition(".")
            if place in owners:
                self._changing.add(name)
                owner = vars(owners[place])
                owner[attribute] = _restored(value, owner.get(attribute), self._device)

    def _report(self, name: str, why: str) -> None:
        if name in self._reported:
            return
        self._reported.add(name)
        self._warn(
            f"{name} changes in training and is in no checkpoint ({why}), so a resumed run may train differently: "
            "add it to on_save_checkpoint and restore it in on_load_checkpoint"
        )

    def _saved_memory(self) -> frozenset[int]:
        """The addresses of tensors that ``state_dict`` has, or that are of a metric."""
        return frozenset(filter(None, map(_address, [*self._module.parameters(), *self._module.buffers()])))

    def _owners(self) -> Iterator[tuple[str, Any]]:
        """The objects whose attributes are compared, each once, by name."""
        seen: set[int] = set()
        stack: list[tuple[str, Any]] = []
        for index, callback in enumerate(self._callbacks):
            cls = type(callback)
            if cls.state_dict is Callback.state_dict and cls.__module__.partition(".")[0] not in LIBRARIES:
                stack.append((f"callbacks.{index}", callback))
        if self._datamodule is not None:
            stack.append(("datamodule", self._datamodule))
        stack.append(("module", self._module))
        while stack and len(seen) < _MOST_OBJECTS:
            name, one = stack.pop()
            if id(one) in seen or isinstance(one, Metric):  # the state of a metric is stored as such
                continue
            seen.add(id(one))
            yield name, one
            stack.extend(reversed([*self._below(name, one)]))

    def _below(self, name: str, owner: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(owner, torch.nn.Module):
            yield from ((f"{name}.{key}", one) for key, one in owner.named_children())
        for key, value in _own_attributes(owner):
            yield from ((f"{name}.{key}{path}", one) for path, one in _objects_in(value) if _is_plain_object(type(one)))

    def _attributes(self) -> Iterator[tuple[str, Any]]:
        for place, owner in self._owners():
            yield from ((f"{place}.{name}", value) for name, value in _own_attributes(owner))


def _own_attributes(owner: Any) -> list[tuple[str, Any]]:
    managed = next(names for cls, names in _MANAGED.items() if isinstance(owner, cls))
    return [
        (name, value)
        for name, value in vars(owner).items()
        if name not in managed and name != "trainer" and not _is_own_method(value, owner, name)
    ]


def _is_own_method(value: Any, owner: Any, name: str) -> bool:
    """Return whether an attribute is what the class gives anyway; Lightning leaves ``forward`` so behind DDP."""
    is_bound = isinstance(value, MethodType) and value.__self__ is owner
    return is_bound and value.__func__ is getattr(type(owner), name, None)


def _objects_in(value: Any, path: str = "", levels: int = 8) -> Iterator[tuple[str, Any]]:
    """A value, or the elements of containers in it, with their places."""
    if not levels:
        return
    if isinstance(value, (list, tuple, deque)) and len(value) <= _MOST_ELEMENTS:
        for index, one in enumerate(value):
            if not isinstance(one, _PLAIN):
                yield from _objects_in(one, f"{path}[{index}]", levels - 1)
    elif isinstance(value, dict) and len(value) <= _MOST_ELEMENTS:
        for key, one in value.items():
            if not isinstance(one, _PLAIN):
                yield from _objects_in(one, f"{path}[{key!r}]", levels - 1)
    else:
        yield path, value


def _is_plain_object(cls: type) -> bool:
    """Return whether instances have attributes that are compared: those of the user's own classes."""
    return (
        cls.__module__.partition(".")[0] not in LIBRARIES
        and bool(cls.__dictoffset__)
        and not issubclass(cls, (type, torch.Tensor, torch.nn.Module, Metric, *GENERATORS))
        and not issubclass(cls, (dict, list, tuple, set, deque))
    )


# Comparison.


@attrs.frozen(eq=False)
class _SameTensor:
    """A tensor, and how often it has been written to: found to be the same without reading it."""

    tensor: "weakref.ref[torch.Tensor]"
    version: int

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _SameTensor)
            and self.version == other.version
            and (own := self.tensor()) is not None
            and own is other.tensor()
        )

    __hash__ = None  # type: ignore[assignment]


def _mark_of(value: Any, saved: frozenset[int]) -> Any:
    """Return what is equal as long as a value is; of one that contains itself, its identity."""
    try:
        return _mark(value, saved)
    except RecursionError:
        return id(value)


def _mark(value: Any, saved: frozenset[int]) -> Any:
    """As :func:`_mark_of`.

    :raises RecursionError: The value contains itself.
    """
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, torch.Tensor):
        if _is_saved(value, saved):
            return "saved"
        return _SameTensor(weakref.ref(value), 0 if value.is_inference() else value._version)
    if isinstance(value, np.ndarray):
        small = value.nbytes <= _MOST_BYTES and not value.dtype.hasobject
        return value.shape, value.dtype.str, zlib.crc32(np.ascontiguousarray(value).tobytes()) if small else id(value)
    if isinstance(value, GENERATORS):
        return _mark(state_of(value), saved)
    if isinstance(value, torch.nn.Module):
        return [_mark(one, saved) for one in value.state_dict(keep_vars=True).values()]
    if isinstance(value, (list, tuple, deque)):
        return type(value), len(value), [_mark(one, saved) for one in value] if len(value) <= _MOST_ELEMENTS else None
    if isinstance(value, (set, frozenset)):
        return type(value), frozenset(value)
    if isinstance(value, dict):
        items = [(key, _mark(one, saved)) for key, one in value.items()] if len(value) <= _MOST_ELEMENTS else None
        return type(value), len(value), items
    return id(value)


def _size(value: Any) -> int:
    """Return the bytes of tensors, arrays and text in a value, and some for each element."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return value.nbytes
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, dict):
        return sum(64 + _size(one) for one in value.values())
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return sum(64 + _size(one) for one in value)
    return 0


def _count(value: Any) -> int:
    """Return the number of elements, also of containers within."""
    if isinstance(value, dict):
        return sum(1 + _count(one) for one in value.values())
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return sum(1 + _count(one) for one in value)
    return 0


def _is_saved(tensor: torch.Tensor, saved: frozenset[int]) -> bool:
    return _address(tensor) in saved


def _address(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's memory; 0 for an empty one, and one without memory of its own."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # sparse, or spread over ranks
        return 0


# Storage.


def _encoded(value: Any, saved: frozenset[int]) -> Any:
    """Return a value as a checkpoint can hold it.

    :raises CannotStore: It cannot.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, torch.Tensor):
        if _is_saved(value, saved):
            raise CannotStore("a part of it shares its memory with a parameter or a buffer")
        plain, learned = value.detach(), value.is_leaf and value.requires_grad
        if type(plain) is not torch.Tensor or plain.layout is not torch.strided:
            raise CannotStore(f"it holds a {_kind(value)} of layout {value.layout}")
        return {"$tensor": plain, "$on_device": value.device.type != "cpu", "$learned": learned}
    if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
        return value
    if isinstance(value, GENERATORS):
        return {"$generator": state_of(value)}
    if isinstance(value, torch.nn.Module):
        return {"$module": dict(value.state_dict())}
    for name, cls in _SETS.items():
        if type(value) is cls:
            return {f"${name}": [_encoded(one, saved) for one in value]}
    if type(value) in (list, tuple):
        return type(value)(_encoded(one, saved) for one in value)
    if type(value) in (dict, OrderedDict, Counter):
        return type(value)((key, _encoded(one, saved)) for key, one in value.items())
    if type(value) is defaultdict and value.default_factory in _FACTORIES:
        factory = _FACTORIES.index(value.default_factory)
        return {"$default": factory, "$items": {key: _encoded(one, saved) for key, one in value.items()}}
    raise CannotStore(f"it holds a {_kind(value)}")


def encoded(value: Any) -> Any:
    """Return a value as a checkpoint can hold it, for :func:`restored`.

    :raises CannotStore: It cannot.
    """
    return _encoded(value, frozenset())


def restored(value: Any) -> Any:
    """Return what :func:`encoded` was given."""
    return _restored(value, None, torch.device("cpu"))


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _restored(encoded: Any, present: Any, device: torch.device) -> Any:
    """Return a stored value; generators, modules and containers that are there are changed in place: others share them.

    :param present: The value that it replaces.
    """
    if isinstance(encoded, dict) and "$tensor" in encoded:
        at = present.device if isinstance(present, torch.Tensor) else device if encoded["$on_device"] else "cpu"
        tensor: torch.Tensor = encoded["$tensor"].to(at)
        return tensor.requires_grad_(encoded["$learned"])
    if isinstance(encoded, dict) and "$generator" in encoded:
        found = present if isinstance(present, GENERATORS) else _generator(encoded["$generator"])
        set_state_of(found, encoded["$generator"])
        return found
    if isinstance(encoded, dict) and "$module" in encoded:
        if isinstance(present, torch.nn.Module):
            present.load_state_dict(encoded["$module"])
        return present
    value = _container(encoded, present, device)
    if type(present) is type(value) and isinstance(value, (list, deque)):
        present.clear()
        present.extend(value)
    elif type(present) is type(value) and isinstance(value, (dict, set)):
        present.clear()
        present.update(value)
    else:
        return value
    return present


def _container(encoded: Any, present: Any, device: torch.device) -> Any:
    if isinstance(encoded, dict):
        for name, cls in _SETS.items():
            if f"${name}" in encoded:
                elements = _elements(encoded[f"${name}"], present, device)
                return deque(elements, present.maxlen) if isinstance(present, deque) else cls(elements)
        before = present if isinstance(present, dict) else {}
        if "$default" in encoded:
            items = {key: _restored(one, before.get(key), device) for key, one in encoded["$items"].items()}
            return defaultdict(_FACTORIES[encoded["$default"]], items)
        return type(encoded)((key, _restored(one, before.get(key), device)) for key, one in encoded.items())
    if isinstance(encoded, (list, tuple)):
        return type(encoded)(_elements(encoded, present, device))
    return encoded


def _elements(encoded: Sequence[Any], present: Any, device: torch.device) -> list[Any]:
    before = list(present) if isinstance(present, (list, tuple)) and len(present) == len(encoded) else repeat(None)
    return [_restored(one, other, device) for one, other in zip(encoded, before, strict=False)]


def _generator(state: Any) -> Any:
    """Return a new generator of the kind that a state is of."""
    kind, value = state
    if kind == "numpy":
        return np.random.Generator(getattr(np.random, value["bit_generator"])())
    return {"python": random.Random, "legacy": np.random.RandomState, "torch": torch.Generator}[kind]()
