"""The shapes, dtypes and sizes of what is in a batch, in words."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

_LISTED: Final = 12
_DEEPEST: Final = 4


def describe_batch(batch: Any) -> str:
    """The arrays and tensors of a batch: ``x: float32[32, 16] on cpu (2.0 KiB), y: int64[32] on cpu (256 B)``.

    :param batch: What ``prepare_batch`` returned: arrays, tensors, record batches, and mappings, sequences and objects
        of these.
    """
    listed = [(name, _of_array(value)) for name, value in _arrays(batch, "", _DEEPEST)]
    words = [f"{name}: {words}" if name else words for name, words in listed[:_LISTED]]
    if len(listed) > _LISTED:
        words.append(f"and {len(listed) - _LISTED} more")
    return ", ".join(words) or f"of class {type(batch).__name__}"


def in_words(size: float) -> str:
    """A size in bytes."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _arrays(value: Any, name: str, depth: int) -> Iterator[tuple[str, Any]]:
    """All arrays in a value, with their places in it."""
    if _is_array(value) or hasattr(value, "num_rows"):
        yield name, value
    elif depth:
        for key, inner in _members(value):
            yield from _arrays(inner, f"{name}.{key}" if name else key, depth - 1)


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(key), inner) for key, inner in value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        yield from ((str(place), inner) for place, inner in enumerate(value))
    elif attrs.has(type(value)):
        yield from ((field.name, getattr(value, field.name, None)) for field in attrs.fields(type(value)))
    else:
        yield from getattr(value, "__dict__", {}).items()


def _of_array(value: Any) -> str:
    if not _is_array(value):
        return f"{value.num_rows} rows in {type(value).__name__} ({in_words(getattr(value, 'nbytes', 0))})"
    shape = tuple(value.shape)
    dtype = str(value.dtype).removeprefix("torch.")
    device = getattr(value, "device", None)
    where = f" on {device}" if hasattr(device, "type") else ""  # NumPy's is always the text "cpu"
    itemsize = getattr(value.dtype, "itemsize", 0)
    return f"{dtype}{list(shape)}{where} ({in_words(math.prod(shape) * itemsize)})"
