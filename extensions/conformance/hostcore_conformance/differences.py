"""Where two states differ, to the bit."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any


def first_difference(one: Any, other: Any, path: str = "") -> str | None:
    """The first place at which two trees of plain values, arrays and tensors differ, and how; None if nowhere.

    Numbers are compared bit by bit, so NaN equals NaN, and 0.0 does not equal -0.0.

    :param path: Where the trees are: ``/model``.
    """
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return _of_mappings(one, other, path)
    if _is_sequence(one) and _is_sequence(other):
        return _of_sequences(one, other, path)
    if hasattr(one, "dtype") and hasattr(other, "dtype"):
        return _of_arrays(one, other, path)
    if isinstance(one, float) and isinstance(other, float):
        same = struct.pack("d", one) == struct.pack("d", other)
    else:
        same = type(one) is type(other) and bool(one == other)
    return None if same else f"{path or 'the value'} is {_shown(one)} and {_shown(other)}"


def _of_mappings(one: Mapping[Any, Any], other: Mapping[Any, Any], path: str) -> str | None:
    for key in one:
        if key not in other:
            return f"{path}/{key} is there and is not"
    for key in other:
        if key not in one:
            return f"{path}/{key} is not there and is"
    return next((found for key in one if (found := first_difference(one[key], other[key], f"{path}/{key}"))), None)


def _of_sequences(one: Sequence[Any], other: Sequence[Any], path: str) -> str | None:
    if len(one) != len(other):
        return f"{path or 'the value'} has {len(one)} and {len(other)} items"
    pairs = enumerate(zip(one, other, strict=True))
    return next((found for i, (a, b) in pairs if (found := first_difference(a, b, f"{path}/{i}"))), None)


def _of_arrays(one: Any, other: Any, path: str) -> str | None:
    where = path or "the value"
    if (tuple(one.shape), str(one.dtype)) != (tuple(other.shape), str(other.dtype)):
        return f"{where} is {one.dtype}{list(one.shape)} and {other.dtype}{list(other.shape)}"
    if _bits(one) == _bits(other):
        return None
    unequal = (one != other).sum().item()
    return f"{where} differs in {unequal or 'the bits of some'} of its {_count(one)} numbers"


def _bits(array: Any) -> bytes:
    if hasattr(array, "detach"):
        import torch

        array = array.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return bytes(array.tobytes())


def _count(array: Any) -> int:
    return int(array.numel() if hasattr(array, "numel") else array.size)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
