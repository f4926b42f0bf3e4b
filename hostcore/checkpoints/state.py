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

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np
import orjson
import safetensors
import torch

from hostcore.checkpoints import tree
from hostcore.checkpoints.errors import CheckpointError, UnstorableState
from hostcore.checkpoints.layout import Entry
from hostcore.checkpoints.tree import TAG, Json, Place, from_base64, to_base64

FORMAT: Final = "hostcore.state/1"

#: What safetensors calls the dtypes. By name: not every torch has them all.
_SAFETENSORS_NAMES: Final[Mapping[torch.dtype, str]] = {
    getattr(torch, name): stored
    for name, stored in {
        "bool": "BOOL", "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64", "int8": "I8",
        "int16": "I16", "int32": "I32", "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32",
        "float64": "F64", "complex64": "C64", "float8_e4m3fn": "F8_E4M3", "float8_e4m3fnuz": "F8_E4M3FNUZ",
        "float8_e5m2": "F8_E5M2", "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0",
        "float4_e2m1fn_x2": "F4",
    }.items()
    if hasattr(torch, name)
}  # fmt: skip

#: Integers of the same size as the items: they are copied bit for bit, whatever they mean.
_BITS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def read_state(folder: Path, name: str, *, device: torch.device | str = "cpu") -> Any:
    """Read what ``snapshot.write_state`` wrote.

    :param device: Where the tensors go; arrays stay in main memory. Each has memory of its own, not the file's.
    :raises CheckpointError: When a file is missing, or not what ``write_state`` wrote.
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


@attrs.frozen(kw_only=True, eq=False)
class Leaf:
    """A tensor or an array of a state, still where the training has it."""

    entry: Entry
    source: torch.Tensor | np.ndarray[Any, Any]

    @property
    def on_cuda(self) -> bool:
        """Whether it is on a CUDA device (ROCm's are called so too)."""
        return isinstance(self.source, torch.Tensor) and self.source.is_cuda

    def copy_to(self, memory: torch.Tensor, begin: int) -> None:
        """Copy the content into memory, contiguous.

        :param memory: As from :func:`allocate`. From a CUDA device, the copy is complete when that is synchronized.
        :param begin: Where in the memory, in bytes; a multiple of the entry's alignment.
        """
        if self.entry.size == 0:
            return
        if isinstance(self.source, np.ndarray):
            target = np.ndarray(self.source.shape, self.source.dtype, memory.numpy(), begin)
            np.copyto(target, self.source, casting="no")
            return
        plain = self.source.detach().resolve_conj().resolve_neg().view(_BITS[self.entry.alignment])
        bits = memory[begin : begin + self.entry.size].view(plain.dtype).view(plain.shape)
        bits.copy_(plain, non_blocking=self.on_cuda)


def encode_state(value: object) -> tuple[bytes, Sequence[Leaf]]:
    """Encode a tree of values: the content of its JSON file, and what is to be copied into the safetensors file.

    :raises UnstorableState: When the tree holds a value that would not come back equal; ``pointer`` says which.
    """
    encoder = _LeafEncoder()
    document = orjson.dumps({"format": FORMAT, **tree.encode(value, encoder)})
    return document, list(encoder.leaves.values())


def allocate(size: int, *, pinned: bool) -> torch.Tensor:
    """Memory for the copy of a state: one-dimensional, uint8, on the CPU.

    :param size: In bytes.
    :param pinned: Whether a CUDA device will write into it.
    :raises CheckpointError: When there is no more.
    """
    try:
        return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=pinned)
    except RuntimeError as error:
        raise CheckpointError(
            f"there is no memory for a copy of the state: {size / 1e9:.1f} GB are needed",
            code="checkpoint.write",
            hint="Give the run more memory, or a smaller state.",
        ) from error


def copy_leaves(leaves: Sequence[Leaf], memory: torch.Tensor, begins: Mapping[str, int]) -> None:
    """Copy all leaves into memory, to their places; complete when this returns."""
    for leaf in leaves:
        leaf.copy_to(memory, begins[leaf.entry.key])
    for device in {leaf.source.device for leaf in leaves if leaf.on_cuda}:
        torch.cuda.synchronize(device)


@attrs.define(eq=False)
class _LeafEncoder:
    """Encodes tensors, arrays and their kin, and collects what goes into the safetensors file."""

    leaves: dict[str, Leaf] = attrs.field(factory=dict)  # by key
    #: Keys by view; the tree keeps the tensors alive meanwhile, so addresses stay theirs.
    _views: dict[object, str] = attrs.field(factory=dict)

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
        view: object = (
            tensor.device, tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.shape, tensor.stride(),
            tensor.dtype, tensor.is_conj(), tensor.is_neg(),
        )  # fmt: skip
        if tensor.numel() == 0:  # no memory to tell it by
            view = id(tensor)
        if view not in self._views:
            dtype, shape = _SAFETENSORS_NAMES[tensor.dtype], list(tensor.shape)
            if dtype == "F4":  # torch counts pairs
                shape[-1] *= 2
            self._views[view] = self._add(tensor, place, dtype=dtype, shape=shape, alignment=tensor.element_size())
        return self._views[view]

    def _array(self, array: np.ndarray[Any, Any], place: Place) -> dict[str, Json] | None:
        if array.dtype.kind not in "biufcmMSU" or array.dtype.char in "gG":  # long doubles differ between machines
            return None
        key = self._add(array, place, dtype="U8", shape=[array.nbytes], alignment=1)
        return {TAG: "numpy.array", "dtype": array.dtype.str, "shape": list(array.shape), "key": key}

    def _add(self, source: torch.Tensor | np.ndarray[Any, Any], place: Place, **stored: Any) -> str:
        # 1 and "1" are different keys of a dictionary, and the same in a pointer.
        key = pointer = place.pointer or "/"
        number = 1
        while key in self.leaves:
            number += 1
            key = f"{pointer}#{number}"
        self.leaves[key] = Leaf(entry=Entry(key=key, size=source.nbytes, **stored), source=source)
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
    if tensor.dtype not in _SAFETENSORS_NAMES:
        return f"a tensor of {tensor.dtype}"
    if _SAFETENSORS_NAMES[tensor.dtype] == "F4" and tensor.dim() == 0:
        return f"a tensor of {tensor.dtype} without dimensions"
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
