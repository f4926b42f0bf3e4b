"""Differences of two values, to the bit: states, settings, batches, and whatever else plugins work with."""

import struct
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import attrs

#: Objects with attributes are not looked into further than this: they may refer to each other.
_DEPTH: Final = 8


class _NoValue:
    def __repr__(self) -> str:
        return "nothing"


_MISSING: Final = _NoValue()


@attrs.frozen(kw_only=True)
class ValueDifference:
    """A place at which two values differ."""

    #: The keys, positions and attributes that lead there.
    keys: tuple[str, ...]
    one: Any
    other: Any

    @property
    def path(self) -> str:
        """``optimizer.state.0.exp_avg``; empty if the values themselves differ."""
        return ".".join(self.keys)

    @property
    def expected(self) -> str:
        """The part of the first value, in words."""
        where = self._first_number()
        return shown(self.one) if where is None else f"{self.one[where].item()!r} at {list(where)}"

    @property
    def got(self) -> str:
        """The part of the other value, in words."""
        where = self._first_number()
        if where is not None:
            count = int((self.one != self.other).sum())
            return f"{self.other[where].item()!r}, and {count} of its {_size(self.one)} numbers differ"
        sign = " with a zero of another sign" if self._are_alike and not (self.one != self.other).any() else ""
        return f"{shown(self.other)}{sign}"

    @property
    def then(self) -> str:
        """A difference from what was: ``image is 0.5, then 0.7``, ``column 'x', row 3 is 1, then 2``."""
        is_row = any(key.startswith("row ") for key in self.keys)
        return f"{', '.join(self.keys) if is_row else self.path or 'it'} is {self.expected}, then {self.got}"

    def beside(self, at: str = "") -> str:
        """The difference of two values beside each other: ``/model/weight is 1 and 2``.

        :param at: Where the values are: ``state``.
        """
        path = "/".join([at, *self.keys])
        if self.other is _MISSING:
            return f"{path} is there and is not"
        if self.one is _MISSING:
            return f"{path} is not there and is"
        where = path or "the value"
        if self._are_alike:
            unequal = int((self.one != self.other).sum())
            return f"{where} differs in {unequal or 'the bits of some'} of its {_size(self.one)} numbers"
        one, other = (f"{it.dtype}{list(it.shape)}" if _is_array(it) else shown(it) for it in (self.one, self.other))
        return f"{where} is {one} and {other}"

    @property
    def _are_alike(self) -> bool:
        """True if these are two arrays of one form."""
        return _is_array(self.one) and _is_array(self.other) and _form(self.one) == _form(self.other)

    def _first_number(self) -> tuple[int, ...] | None:
        """Return the place of the first number that differs between two arrays; None without one."""
        if not self._are_alike or not tuple(self.one.shape):
            return None
        places = (self.one != self.other).nonzero()
        first = places[0] if hasattr(self.one, "detach") and len(places) else [one[0] for one in places if len(one)]
        return tuple(int(index) for index in first) if len(first) else None


def differences(one: Any, other: Any) -> Iterator[ValueDifference]:
    """The places at which two values differ.

    Looks into mappings, lists, tuples, record batches and objects with attributes. Numbers, arrays and tensors are
    compared bit by bit: NaN equals NaN, and 0.0 does not equal -0.0. Objects that cannot be compared count as equal.
    """
    yield from _differences(one, other, (), _DEPTH)


def first_difference(one: Any, other: Any, *, but: Collection[str] = ()) -> ValueDifference | None:
    """The first place at which two values differ; None if there is none.

    :param but: Paths that are not compared.
    """
    return next((found for found in differences(one, other) if found.path not in but), None)


def in_words(one: Any, other: Any, at: str = "") -> str | None:
    """The first difference of two values beside each other; None if there is none.

    :param at: Where the values are: ``state``.
    """
    found = first_difference(one, other)
    return found.beside(at) if found else None


def _differences(one: Any, other: Any, keys: tuple[str, ...], depth: int) -> Iterator[ValueDifference]:
    if one is other:
        return
    mine, its = parts(one), parts(other)
    if not _are_of_one_kind(one, other) or not (mine or its):
        if not _same(one, other):
            yield ValueDifference(keys=keys, one=one, other=other)
        return
    depth -= not isinstance(one, Mapping | list | tuple)
    for key in {**mine, **its} if depth else ():
        here = (*keys, str(key))
        if key in mine and key in its:
            yield from _differences(mine[key], its[key], here, depth)
        else:
            yield ValueDifference(keys=here, one=mine.get(key, _MISSING), other=its.get(key, _MISSING))


def parts(value: Any) -> Mapping[Any, Any]:
    """Return the parts of a value, by key, position or attribute; empty for a leaf."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    if _is_array(value) or isinstance(value, type):
        return {}
    if type(value).__module__.partition(".")[0] == "pyarrow":
        if hasattr(value, "num_columns"):
            return {f"column {name!r}": value.column(name) for name in value.schema.names}
        listed = value.to_pylist() if hasattr(value, "to_pylist") else []
        rows = {f"row {number}": row for number, row in enumerate(listed)}
        return {**rows, "bytes": _bits(value)} if hasattr(value, "buffers") else rows  # also those without a value
    if attrs.has(type(value)):
        # Without what its author leaves out of comparisons, such as a number by which another process knows it.
        return {field.name: getattr(value, field.name, None) for field in attrs.fields(type(value)) if field.eq}
    return dict(getattr(value, "__dict__", {}))


def _are_of_one_kind(one: Any, other: Any) -> bool:
    pairs = ((one, kind) for kind in (Mapping, list | tuple))
    return type(one) is type(other) or any(isinstance(it, kind) and isinstance(other, kind) for it, kind in pairs)


def _same(one: Any, other: Any) -> bool:
    """Return whether two leaves are equal, bit by bit."""
    if _is_array(one) and _is_array(other):
        if str(one.dtype) == "object":
            return bool(one.tolist() == other.tolist())
        return _form(one) == _form(other) and _bits(one) == _bits(other)
    if isinstance(one, float) and isinstance(other, float):
        return struct.pack("d", one) == struct.pack("d", other)
    if not _are_of_one_kind(one, other):
        return False
    compare: Any = type(one).__eq__
    return compare is object.__eq__ or bool(one == other)


def _is_array(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape")


def _form(array: Any) -> tuple[Any, ...]:
    return tuple(array.shape), str(array.dtype)


def _size(array: Any) -> int:
    return int(array.numel() if hasattr(array, "numel") else array.size)


def _bits(array: Any) -> bytes:
    if hasattr(array, "detach"):
        import torch

        array = array.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    elif hasattr(array, "buffers"):
        import pyarrow as pa

        return bytes(pa.RecordBatch.from_arrays([array], ["column"]).serialize())
    return bytes(array.tobytes())


def shown(value: Any) -> str:
    """A value in a few words."""
    if _is_array(value):
        if not tuple(value.shape):
            return repr(value.item())
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
