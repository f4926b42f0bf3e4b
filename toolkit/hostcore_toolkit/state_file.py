"""The state of an optimizer and its kin in one safetensors file: tensors as tensors, the rest as JSON in its header.

No pickle: reading one never runs code. JSON has no form for some values of a state, which are tagged::

    {"$": "tensor", "key": "/optimizer/state/0/exp_avg"}      {"$": "tuple", "items": [0.9, 0.999]}
    {"$": "dict", "items": [[0, {…}]]}                        {"$": "float", "value": "inf"}
    {"$": "counter", "items": [[30, 1]]}

The tags are those of the host's own checkpoints.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import safetensors
import torch
from safetensors.torch import save

from hostcore_toolkit.files import write_atomically

_TAG: Final = "$"
_TREE: Final = "tree"


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file, in place of one that may be there, on the disk when this returns.

    :param tensors: Of any device and strides. Views of the same memory are stored each for itself.
    :raises OSError: When the file system refuses; what was there before stays.
    """
    plain: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        dense = tensor.detach().to("cpu").contiguous()
        memory = dense.untyped_storage().data_ptr()
        plain[name] = dense.clone() if memory in seen else dense
        seen.add(memory)
    write_atomically(path, save(plain, dict(metadata)))


def write_state(path: Path, state: Mapping[str, object], metadata: Mapping[str, str]) -> None:
    """Write a state: nested dictionaries, lists and tuples of tensors, numbers, strings, booleans and None.

    :raises TypeError: When it holds anything else; the message has the place.
    :raises OSError: As :func:`write_tensors` does.
    """
    tensors: dict[str, torch.Tensor] = {}
    tree = json.dumps(_encode(dict(state), "", tensors), allow_nan=False)
    write_tensors(path, tensors, {**metadata, _TREE: tree})


def read_tensors(path: Path) -> tuple[dict[str, torch.Tensor], Mapping[str, str]]:
    """The tensors of a safetensors file, over the file's own memory, and its metadata.

    :raises safetensors.SafetensorError: When it is none.
    :raises OSError: When it cannot be read.
    """
    with safetensors.safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


def read_state(path: Path) -> tuple[dict[str, Any], Mapping[str, str]]:
    """Read a state that :func:`write_state` wrote, and its metadata.

    :raises safetensors.SafetensorError, KeyError, TypeError, ValueError: When it is not that.
    :raises OSError: When it cannot be read.
    """
    tensors, metadata = read_tensors(path)
    state = _decode(json.loads(metadata[_TREE]), tensors)
    if not isinstance(state, dict):
        raise TypeError("it is not a state")
    return state, metadata


def _encode(value: object, place: str, tensors: dict[str, torch.Tensor]) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {_TAG: "float", "value": repr(float(value))}
    if isinstance(value, torch.Tensor):
        tensors[place] = value
        return {_TAG: "tensor", "key": place}
    if isinstance(value, (list, tuple)):
        items = [_encode(item, f"{place}/{index}", tensors) for index, item in enumerate(value)]
        return items if isinstance(value, list) else {_TAG: "tuple", "items": items}
    if isinstance(value, dict):
        pairs = [(key, _encode(item, f"{place}/{key}", tensors)) for key, item in value.items()]
        if isinstance(value, Counter):
            return {_TAG: "counter", "items": pairs}
        if all(isinstance(key, str) for key in value) and _TAG not in value:
            return dict(pairs)
        if all(isinstance(key, (str, int)) for key in value):
            return {_TAG: "dict", "items": pairs}
    kind = type(value)
    raise TypeError(
        f"the state at {place} is a {kind.__module__}.{kind.__qualname__}, which cannot be stored without pickle"
    )


def _decode(node: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if isinstance(node, list):
        return [_decode(item, tensors) for item in node]
    if not isinstance(node, dict):
        return node
    match node.get(_TAG):
        case None:
            return {key: _decode(item, tensors) for key, item in node.items()}
        case "tensor":
            return tensors[node["key"]].clone()  # not the mapped file, which would keep a removed one on the disk
        case "tuple":
            return tuple(_decode(item, tensors) for item in node["items"])
        case "dict":
            return {key: _decode(item, tensors) for key, item in node["items"]}
        case "counter":
            return Counter(dict(node["items"]))
        case "float":
            return float(node["value"])
    raise ValueError(f"{node[_TAG]!r} is not a kind of value")
