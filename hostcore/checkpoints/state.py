"""The state of a training on disk: ``<name>.json``, a tagged tree, and ``<name>.safetensors`` with its tensors.

No pickle: reading a state never runs code. The tree's own values are described in ``tree``; here are the leaves::

    {"$": "tensor", "key": "/model/weight"}                                a tensor of the safetensors file
    {"$": "numpy.array", "dtype": "<f4", "shape": [2, 3], "key": "/x"}     its bytes, as a uint8 tensor
    {"$": "numpy.scalar", "dtype": "<f8", "base64": "..."}
    {"$": "numpy.str", "base64": "..."}       {"$": "numpy.bytes", "base64": "..."}
    {"$": "torch.dtype", "name": "float32"}   {"$": "torch.device", "name": "cuda:0"}
    {"$": "torch.Size", "items": [2, 3]}

What comes back of a tensor: dtype, shape and every bit. What does not: ``requires_grad`` and being a parameter (both
belong to the model, not to its state), the strides (it is contiguous) and the device.

Tensors that are the same view of the same memory, as tied weights are, are stored once and come back as one. Two
*different* views that overlap are each stored whole and come back apart, since safetensors knows no shared memory.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np
import orjson
import safetensors
import torch
from safetensors.torch import save_file

from hostcore.checkpoints import tree
from hostcore.checkpoints.errors import CheckpointError, UnstorableState
from hostcore.checkpoints.tree import TAG, Json, Place, from_base64, to_base64

FORMAT: Final = "hostcore.state/1"

#: By name, since not every version of torch has them all.
_DTYPES: Final = frozenset(
    getattr(torch, name)
    for name in (
        "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16",
        "float32", "float64", "complex64", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
        "float8_e8m0fnu", "float4_e2m1fn_x2",
    )
    if hasattr(torch, name)
)  # fmt: skip


def write_state(folder: Path, name: str, value: object) -> None:
    """Write a tree of values into a folder, as ``<name>.json`` and, if it holds tensors or arrays, ``.safetensors``.

    Meant for the folder that ``commit`` hands out: nothing is fsynced here.

    :raises UnstorableState: When the tree holds a value that would not come back equal; ``pointer`` says which.
    :raises CheckpointError: When the files cannot be written.
    """
    leaves = _LeafEncoder()
    document = {"format": FORMAT, **tree.encode(value, leaves)}
    path = folder / f"{name}.json"
    try:
        path.write_bytes(orjson.dumps(document))
        if leaves.tensors:
            tensors_path = path.with_suffix(".safetensors")
            save_file(leaves.tensors, tensors_path, metadata={"format": "pt"})
            # safetensors makes files that only their owner can read, whatever the umask says.
            tensors_path.chmod(path.stat().st_mode & 0o777)
    except (OSError, safetensors.SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(
            f"the state {name!r} could not be written: {reason}",
            code="checkpoint.write",
            file=str(path),
            hint="Earlier checkpoints are intact. Make room or mend the permissions, then resume the run.",
        ) from error


def read_state(folder: Path, name: str, *, device: torch.device | str = "cpu") -> Any:
    """Read what :func:`write_state` wrote.

    :param device: Where the tensors go; arrays stay in main memory. Each has memory of its own, not the file's.
    :raises CheckpointError: When a file is missing, or not what :func:`write_state` wrote.
    """
    path = folder / f"{name}.json"
    try:
        document = orjson.loads(path.read_bytes())
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ValueError(f"it is not of the format {FORMAT}")
        with _LeafDecoder(path.with_suffix(".safetensors"), torch.device(device)) as leaves:
            return tree.decode(document, leaves.decode)
    except FileNotFoundError as error:
        raise CheckpointError(f"the state {name!r} is missing from {folder}", file=str(path)) from error
    except (OSError, safetensors.SafetensorError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"the state {name!r} cannot be read: {error}",
            code="checkpoint.state",
            file=str(path),
            hint="Use another checkpoint; this one is damaged, or a newer hostcore wrote it.",
        ) from error


@attrs.define(eq=False)
class _LeafEncoder:
    """Encodes tensors, arrays and their kin, and collects what goes into the safetensors file."""

    #: By key, on the CPU, contiguous, no two in the same memory.
    tensors: dict[str, torch.Tensor] = attrs.field(factory=dict)
    #: Keys by view; the tree keeps the tensors alive meanwhile, so addresses stay theirs.
    _views: dict[object, str] = attrs.field(factory=dict)
    _storages: set[object] = attrs.field(factory=set)

    def encode(self, value: object, place: Place) -> dict[str, Json] | None:
        """See ``tree.LeafEncoder``."""
        if isinstance(value, torch.Tensor):
            return {TAG: "tensor", "key": self._tensor(value, place)}
        if type(value) is np.ndarray:
            return self._array(value, place)
        return self.encode_key(value, place)

    def encode_key(self, value: object, _place: Place) -> dict[str, Json] | None:
        """See ``tree.LeafEncoder``. A tensor as a key is equal to itself alone."""
        if isinstance(value, np.generic):
            return _numpy_scalar(value)
        if isinstance(value, torch.dtype):
            return {TAG: "torch.dtype", "name": str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {TAG: "torch.device", "name": str(value)}
        if isinstance(value, torch.Size):
            return {TAG: "torch.Size", "items": list(value)}
        return None

    def _tensor(self, tensor: torch.Tensor, place: Place) -> str:
        if what := _unstorable(tensor):
            raise UnstorableState(place.pointer, what, hint="Store a plain, dense copy of it, or leave it out.")
        storage = (tensor.device, tensor.untyped_storage().data_ptr())
        view: object = (
            *storage, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype, tensor.is_conj(),
            tensor.is_neg(),
        )  # fmt: skip
        if tensor.numel() == 0:  # no memory to tell it by
            view = id(tensor)
        if view in self._views:
            return self._views[view]
        plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
        self._views[view] = key = self._add(plain.clone() if storage in self._storages else plain, place)
        self._storages.add(storage)
        return key

    def _array(self, array: np.ndarray[Any, Any], place: Place) -> dict[str, Json] | None:
        if array.dtype.kind not in "biufcmMSU" or array.dtype.char in "gG":  # long doubles differ between machines
            return None
        content = np.frombuffer(bytearray(array.tobytes()), dtype=np.uint8)
        key = self._add(torch.from_numpy(content), place)
        return {TAG: "numpy.array", "dtype": array.dtype.str, "shape": list(array.shape), "key": key}

    def _add(self, tensor: torch.Tensor, place: Place) -> str:
        # 1 and "1" are different keys of a dictionary, and the same in a pointer.
        key = pointer = place.pointer or "/"
        number = 1
        while key in self.tensors:
            number += 1
            key = f"{pointer}#{number}"
        self.tensors[key] = tensor
        return key


def _unstorable(tensor: torch.Tensor) -> str | None:
    """What keeps a tensor from being stored, in words."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return f"a tensor of class {type(tensor).__module__}.{type(tensor).__qualname__}"
    if tensor.layout is not torch.strided or tensor.is_nested:
        return "a sparse or nested tensor"
    if tensor.is_quantized:
        return "a quantized tensor"
    if tensor.device.type == "meta":
        return "a tensor on the meta device, without content"
    if tensor.dtype not in _DTYPES:
        return f"a tensor of {tensor.dtype}"
    return None


def _numpy_scalar(value: np.generic) -> dict[str, Json] | None:
    if type(value) is np.str_:
        return {TAG: "numpy.str", "base64": to_base64(str.encode(value, "utf-8", "surrogatepass"))}
    if type(value) is np.bytes_:
        return {TAG: "numpy.bytes", "base64": to_base64(bytes(value))}
    if value.dtype.kind not in "biufcmM" or value.dtype.char in "gG":
        return None
    return {TAG: "numpy.scalar", "dtype": value.dtype.str, "base64": to_base64(value.tobytes())}


class _LeafDecoder:
    """Decodes what :class:`_LeafEncoder` encoded; a context manager that closes the safetensors file."""

    def __init__(self, path: Path, device: torch.device) -> None:
        self._path = path
        self._device = device
        self._stack = ExitStack()
        self._file: Any = None
        self._tensors: dict[str, torch.Tensor] = {}

    def __enter__(self) -> "_LeafDecoder":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def decode(self, node: Mapping[str, Json]) -> object:
        """See ``tree.DecodeLeaf``."""
        match node[TAG]:
            case "tensor":
                return self._shared(node["key"])
            case "numpy.array":
                content = self._read(node["key"]).numpy().tobytes()
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

    def _shared(self, key: str) -> torch.Tensor:
        if key not in self._tensors:
            # A copy: what safetensors returns is the mapped file, which would keep a removed checkpoint on the disk.
            self._tensors[key] = self._read(key).to(self._device, copy=True)
        return self._tensors[key]

    def _read(self, key: str) -> torch.Tensor:
        if self._file is None:
            self._file = self._stack.enter_context(safetensors.safe_open(self._path, framework="pt"))
        tensor = self._file.get_tensor(key)
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
