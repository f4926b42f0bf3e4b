"""The state of a training on disk: ``<name>.json``, a tagged tree, and ``<name>.safetensors`` with its tensors.

No pickle: reading a state never runs code. The tree's own values are described in ``tree``; here are the leaves::

    {"$": "tensor", "key": "/model/weight"}                                a tensor of the safetensors file
    {"$": "tensor", "key": "weight", "file": "trainer/model.safetensors"}  one of another file of the checkpoint
    {"$": "tensors", "items": {"weight": {"$": "tensor", ...}, ...}}       what a ``TensorFile`` held
    {"$": "numpy.array", "dtype": "<f4", "shape": [2, 3], "key": "/x"}     its bytes, as a uint8 tensor
    {"$": "numpy.scalar", "dtype": "<f8", "base64": "..."}
    {"$": "numpy.str", "base64": "..."}       {"$": "numpy.bytes", "base64": "..."}
    {"$": "torch.dtype", "name": "float32"}   {"$": "torch.device", "name": "cuda:0"}
    {"$": "torch.Size", "items": [2, 3]}
    {"$": "tensor.sharded", "key": "/model/weight", "dtype": "float32", "shape": [4, 2], "placements": [0]}

The last one is of a tensor that is spread over ranks; its parts lie in the folder ``<name>.shards``, see ``sharded``.

What comes back of a tensor: dtype, shape and every bit. What does not: ``requires_grad`` and being a parameter (both
belong to the model, not to its state), the strides (it is contiguous) and the device.

Tensors that are the same view of the same memory, as tied weights are, are stored once and come back as one. Two
*different* views that overlap are each stored whole and come back apart, since safetensors knows no shared memory. So
do tensors that are spread over ranks.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import safetensors
import torch

from hostcore.checkpoints import tree
from hostcore.checkpoints.encoding import FORMAT, tensors_by_key
from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.sharded import ShardReader, shards_folder, spread_like
from hostcore.checkpoints.tree import TAG, Json, from_base64


def read_state(folder: Path, name: str, *, device: torch.device | str = "cpu", like: object = None) -> Any:
    """Read what ``snapshot.write_state`` wrote.

    :param device: Where the tensors go; arrays stay in main memory. Each has memory of its own, not the file's.
    :param like: The present state of the same training, on several ranks: each tensor comes back spread over the ranks
        as that of the same place is there. None: all come back whole.
    :raises CheckpointError: When a file is missing, or not what ``write_state`` wrote.
    """
    path = folder / f"{name}.json"
    try:
        document = orjson.loads(path.read_bytes())
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ValueError(f"it is not of the format {FORMAT}")
        present = None if like is None else tensors_by_key(like)
        shards = ShardReader(present, torch.device(device))
        with _LeafDecoder(path.with_suffix(".safetensors"), torch.device(device), present or {}, shards) as leaves:
            state = tree.decode(document, leaves.decode)
        shards.read(shards_folder(folder, name))
        return state
    except FileNotFoundError as error:
        raise CheckpointError(f"the state {name!r} is missing from {folder}", file=str(path)) from error
    except (OSError, safetensors.SafetensorError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"the state {name!r} cannot be read: {error}",
            code="checkpoint.state",
            file=str(path),
            hint="Use another checkpoint; this one is damaged, or a newer hostcore wrote it.",
        ) from error


class _LeafDecoder:
    """Decodes what :class:`_LeafEncoder` encoded; a context manager that closes the safetensors files."""

    def __init__(
        self, path: Path, device: torch.device, present: Mapping[str, torch.Tensor], shards: ShardReader
    ) -> None:
        self._path = path
        self._device = device
        self._present = present
        self._shards = shards
        self._stack = ExitStack()
        #: Open ones, by what the nodes call them; empty: the state's own.
        self._files: dict[str, Any] = {}
        self._tensors: dict[tuple[str, str], torch.Tensor] = {}

    def __enter__(self) -> "_LeafDecoder":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def decode(self, node: Mapping[str, Json]) -> object:
        """See ``tree.DecodeLeaf``."""
        match node[TAG]:
            case "tensor":
                return self._shared(node.get("file", ""), node["key"])
            case "tensors":
                return {name: self._shared(one.get("file", ""), one["key"]) for name, one in node["items"].items()}
            case "tensor.sharded":
                return self._shards.tensor(node, _torch_dtype(node["dtype"]))
            case "numpy.array":
                content = self._read("", node["key"]).numpy().tobytes()
                return np.frombuffer(bytearray(content), dtype=_numpy_dtype(node)).reshape(node["shape"])
            case "numpy.scalar":
                return np.frombuffer(from_base64(node["base64"]), dtype=_numpy_dtype(node))[0]
            case "numpy.str":
                return np.str_(from_base64(node["base64"]).decode("utf-8", "surrogatepass"))
            case "numpy.bytes":
                return np.bytes_(from_base64(node["base64"]))
            case "torch.dtype":
                return _torch_dtype(node["name"])
            case "torch.device":
                return _torch_device(node["name"])
            case "torch.Size":
                return torch.Size(node["items"])
        raise ValueError(f"{node[TAG]!r} is not a kind of value")

    def _shared(self, file: str, key: str) -> torch.Tensor:
        if (file, key) not in self._tensors:
            # A copy: what safetensors returns is the mapped file, which would keep a removed checkpoint on the disk.
            whole = self._read(file, key).to(self._device, copy=True)
            self._tensors[file, key] = whole if file else spread_like(whole, self._present.get(key))
        return self._tensors[file, key]

    def _read(self, file: str, key: str) -> torch.Tensor:
        if file not in self._files:
            path = self._path.parent / file if file else self._path
            self._files[file] = self._stack.enter_context(safetensors.safe_open(path, framework="pt"))
        tensor = self._files[file].get_tensor(key)
        assert isinstance(tensor, torch.Tensor)
        return tensor


def _numpy_dtype(node: Mapping[str, Json]) -> np.dtype[Any]:
    dtype = np.dtype(node["dtype"])
    if dtype.hasobject:
        raise ValueError("arrays of Python objects are never stored")
    return dtype


def _torch_device(name: str) -> torch.device:
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"{name!r} is not a device: {error}") from error


def _torch_dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"torch.{name} is not a dtype")
    return dtype
