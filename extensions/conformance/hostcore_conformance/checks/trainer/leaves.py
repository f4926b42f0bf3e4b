"""The leaves of a training state by their path, and where two states differ."""

import struct
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class Difference:
    """Where two states differ."""

    #: ``optimizer.state.0.exp_avg``.
    path: str
    #: What is there in each, in words.
    expected: str
    got: str


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Everything in a tree of mappings, lists and tuples that is none of these, by its path; empty ones too."""
    if isinstance(tree, Mapping) and tree:
        for key, value in tree.items():
            yield from leaves(value, _joined(path, key))
    elif isinstance(tree, list | tuple) and tree:
        for number, value in enumerate(tree):
            yield from leaves(value, _joined(path, number))
    else:
        yield path, tree


def _joined(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def differences(expected: Any, got: Any) -> Iterator[Difference]:
    """The places at which two states differ, bit by bit: NaN equals NaN, and 0.0 does not equal -0.0."""
    one, other = dict(leaves(expected)), dict(leaves(got))
    for path in one | other:
        if path not in other or path not in one:
            yield Difference(path=path, expected=_shown_at(one, path), got=_shown_at(other, path))
        elif not same(one[path], other[path]):
            yield _difference(path, one[path], other[path])


def first_difference(expected: Any, got: Any, *, but: Collection[str] = ()) -> Difference | None:
    """The first place at which two states differ; None if there is none.

    :param but: Paths that are not compared.
    """
    return next((found for found in differences(expected, got) if found.path not in but), None)


def same(one: Any, other: Any) -> bool:
    """Whether two leaves are equal, bit by bit."""
    if hasattr(one, "dtype") and hasattr(other, "dtype"):
        return _form(one) == _form(other) and _bits(one) == _bits(other)
    if isinstance(one, float) and isinstance(other, float):
        return struct.pack("d", one) == struct.pack("d", other)
    return type(one) is type(other) and bool(one == other)


def _form(array: Any) -> tuple[Any, ...]:
    return tuple(array.shape), str(array.dtype)


def _bits(array: Any) -> bytes:
    if hasattr(array, "detach"):
        import torch

        array = array.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return bytes(array.tobytes())


def _difference(path: str, one: Any, other: Any) -> Difference:
    if not hasattr(one, "dtype") or not hasattr(other, "dtype") or _form(one) != _form(other):
        return Difference(path=path, expected=shown(one), got=shown(other))
    unequal = one != other
    count = int(unequal.sum())
    if not count:
        return Difference(path=path, expected=shown(one), got=f"{shown(other)} with a zero of another sign")
    if not tuple(one.shape):
        return Difference(path=path, expected=shown(one), got=shown(other))
    where = tuple(int(index) for index in unequal.nonzero()[0]) if hasattr(one, "detach") else _first_of_array(unequal)
    size = int(one.numel() if hasattr(one, "numel") else one.size)
    place = f"[{', '.join(map(str, where))}]"
    return Difference(
        path=path,
        expected=f"{one[where].item()!r} at {place}",
        got=f"{other[where].item()!r}, and {count} of its {size} numbers differ",
    )


def _first_of_array(unequal: Any) -> tuple[int, ...]:
    return tuple(int(axis[0]) for axis in unequal.nonzero())


def _shown_at(found: Mapping[str, Any], path: str) -> str:
    return shown(found[path]) if path in found else "nothing"


def shown(leaf: Any) -> str:
    """A leaf in a few words."""
    if hasattr(leaf, "dtype") and hasattr(leaf, "shape"):
        if not tuple(leaf.shape):
            return repr(leaf.item())
        return f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
    text = repr(leaf)
    return text if len(text) <= 60 else f"{text[:59]}…"
