"""Comparing what trainers work with, whatever it is made of, and saying in words where it differs."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

_DEPTH: Final = 8
_FIRST_KEY: Final = re.compile(r"^\['([^']*)'\]")


def difference(one: Any, other: Any, at: str = "") -> str | None:
    """Where two values differ first, in words with both values; None if they are equal, bit for bit.

    Looks into tensors, arrays, record batches, mappings, sequences and objects with attributes. What it cannot look
    into counts as equal.

    :param at: Where the values are: ``["image"]``, ``.labels``.
    """
    return _difference(one, other, at, _DEPTH)


def _difference(one: Any, other: Any, at: str, depth: int) -> str | None:
    if one is other or depth == 0:
        return None
    if type(one) is not type(other):
        return f"{_named(at)} is of type {type(one).__name__}, then of type {type(other).__name__}"
    kind = type(one).__module__.partition(".")[0]
    if kind == "torch" and hasattr(one, "untyped_storage"):
        return _of_arrays(_as_array(one), _as_array(other), at)
    if kind == "numpy":
        return _of_arrays(one, other, at)
    if kind == "pyarrow":
        return _of_arrow(one, other, at)
    if isinstance(one, (str, bytes, int, float, complex, bool)):
        same = one == other or (_is_nan(one) and _is_nan(other))
        return None if same else f"{_named(at)} is {_short(one)}, then {_short(other)}"
    if isinstance(one, Mapping):
        return _of_mappings(one, other, at, depth)
    if isinstance(one, (list, tuple)):
        return _of_sequences(one, other, at, depth)
    return _of_mappings(_attributes(one), _attributes(other), at, depth, dotted=True)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _of_mappings(
    one: Mapping[Any, Any], other: Mapping[Any, Any], at: str, depth: int, *, dotted: bool = False
) -> str | None:
    if list(one) != list(other):
        return f"{_named(at)} has {', '.join(map(str, one))}, then {', '.join(map(str, other))}"
    for key, value in one.items():
        found = _difference(value, other[key], f"{at}.{key}" if dotted else f"{at}[{key!r}]", depth - 1)
        if found:
            return found
    return None


def _of_sequences(one: Sequence[Any], other: Sequence[Any], at: str, depth: int) -> str | None:
    if len(one) != len(other):
        return f"{_named(at)} has {len(one)} elements, then {len(other)}"
    for index, (value, again) in enumerate(zip(one, other, strict=True)):
        found = _difference(value, again, f"{at}[{index}]", depth - 1)
        if found:
            return found
    return None


def _as_array(tensor: Any) -> Any:
    import torch

    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor).numpy()


def _of_arrays(one: Any, other: Any, at: str) -> str | None:
    import numpy as np

    if not isinstance(one, (np.ndarray, np.generic)):
        return None
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return f"{_named(at)} is {one.dtype} of shape {one.shape}, then {other.dtype} of shape {other.shape}"
    if one.dtype == object:
        return None
    different = one != other
    if one.dtype.kind in "fc":
        different &= ~(np.isnan(one) & np.isnan(other))
    if not different.any():
        return None
    first = tuple(int(index) for index in np.argwhere(different)[0])
    where = f"{list(first)}" if first else ""
    return f"{_named(at)}{where} is {_short(one[first].item())}, then {_short(other[first].item())}"


def _of_arrow(one: Any, other: Any, at: str) -> str | None:
    import pyarrow as pa

    if not isinstance(one, pa.RecordBatch):
        return None if not hasattr(one, "equals") or one.equals(other) else f"{_named(at)} is another"
    if one.schema != other.schema or one.num_rows != other.num_rows:
        return f"{_named(at)} has other columns or another number of rows"
    for name, column, again in zip(one.schema.names, one.columns, other.columns, strict=True):
        if _bits(column) == _bits(again):
            continue
        for row, (value, then) in enumerate(zip(column.to_pylist(), again.to_pylist(), strict=True)):
            if repr(value) != repr(then):  # tells -0.0 from 0.0, and not NaN from NaN
                at = f"column {name!r}, row {row}"
                return difference(value, then, at) or f"{at} is {_short(value)}, then {_short(then)}"
        return f"column {name!r} has other bytes where its rows have no value"
    return None


def _bits(column: Any) -> bytes:
    import pyarrow as pa

    return bytes(pa.RecordBatch.from_arrays([column], ["column"]).serialize())


def _attributes(value: Any) -> Mapping[str, Any]:
    if attrs.has(type(value)):
        return {field.name: getattr(value, field.name, None) for field in attrs.fields(type(value))}
    return dict(getattr(value, "__dict__", {}))


def tensors_in(value: Any, depth: int = _DEPTH) -> list[Any]:
    """All tensors in a value."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if depth == 0 or isinstance(value, (str, bytes, int, float, torch.nn.Module, type(None))):
        return []
    if isinstance(value, Mapping):
        members = list(value.values())
    elif isinstance(value, (list, tuple)):
        members = list(value)
    else:
        members = list(_attributes(value).values())
    return [tensor for member in members for tensor in tensors_in(member, depth - 1)]


def _named(at: str) -> str:
    return _FIRST_KEY.sub(r"\1", at).removeprefix(".") or "it"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
