"""A state as what its files will hold: the content of the JSON file, and the tensors that go beside it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np
import orjson
import torch

from hostcore.checkpoints import tree
from hostcore.checkpoints.errors import CheckpointError, UnstorableState
from hostcore.checkpoints.layout import TensorEntry
from hostcore.checkpoints.sharded import is_sharded, sharded_node
from hostcore.checkpoints.tree import TAG, Json, TreePath, to_base64
from hostcore_hookspecs.step import TensorFile

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

FORMAT: Final = "hostcore.state/1"
#: The folder of a checkpoint that holds the trainer's own files.
TRAINER_FOLDER: Final = "trainer"

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


@attrs.frozen(kw_only=True, eq=False)
class TensorLeaf:
    """A tensor or an array of a state, still where the training has it."""

    entry: TensorEntry
    source: torch.Tensor | np.ndarray[Any, Any]
    #: Of the file that it goes into, as :attr:`Encoded.files` has it; empty: the state's own.
    file: str = ""

    @property
    def on_cuda(self) -> bool:
        """True on a CUDA device (ROCm's are called so too)."""
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
        plain = bits_of(self.source)
        bits = memory[begin : begin + self.entry.size].view(plain.dtype).view(plain.shape)
        bits.copy_(plain, non_blocking=self.on_cuda)


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the content of a tensor that can be stored, as integers of the size of its elements."""
    return tensor.detach().resolve_conj().resolve_neg().view(_BITS[tensor.element_size()])


@attrs.frozen(kw_only=True, eq=False)
class Encoded:
    """A state in its parts."""

    #: The content of its JSON file.
    document: bytes
    #: What is to be copied into its safetensors files.
    leaves: Sequence[TensorLeaf]
    #: Files that hold a part of the tensors, by their paths in the checkpoint, with their metadata.
    files: Mapping[str, Mapping[str, str]]
    #: Tensors that are spread over ranks, by key: the same keys on all ranks that have the same state.
    sharded: "Mapping[str, DTensor]"


def encode_state(value: object) -> Encoded:
    """Encode a tree of values.

    :raises UnstorableState: When the tree holds a value that would not come back equal; ``pointer`` locates it.
    """
    encoder = _TensorEncoder()
    document = orjson.dumps({"format": FORMAT, **tree.encode(value, encoder)})
    leaves = [*encoder.leaves.values(), *encoder.placed]
    return Encoded(document=document, leaves=leaves, files=encoder.files, sharded=encoder.sharded)


def encode_whole(value: object) -> Encoded:
    """Encode a tree of values none of which is spread over ranks.

    :raises UnstorableState: As :func:`encode_state` does, and when there is such a tensor.
    """
    encoded = encode_state(value)
    for key in encoded.sharded:
        raise UnstorableState(
            key,
            "a tensor that is spread over ranks",
            hint="Only a trainer's state_dict may return one; here, store what its .full_tensor() returns.",
        )
    return encoded


def tensors_by_key(value: object) -> dict[str, torch.Tensor]:
    """All tensors in the own files of a state, by the keys that they are stored under.

    :raises UnstorableState: As :func:`encode_state` does.
    """
    encoded = encode_state(value)
    own = [leaf for leaf in encoded.leaves if not leaf.file]
    plain = {leaf.entry.key: leaf.source for leaf in own if isinstance(leaf.source, torch.Tensor)}
    return {**plain, **encoded.sharded}


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


def copy_leaves(leaves: Sequence[TensorLeaf], memory: torch.Tensor, begins: Sequence[int]) -> None:
    """Copy all leaves into memory, to their places; complete when this returns.

    The order is explained in :mod:`hostcore.checkpoints.snapshot`.
    """
    devices = {leaf.source.device for leaf in leaves if leaf.on_cuda}
    for device in devices:
        torch.cuda.synchronize(device)
    for leaf, begin in zip(leaves, begins, strict=True):
        leaf.copy_to(memory, begin)
    for device in devices:
        torch.cuda.synchronize(device)


@attrs.define(eq=False)
class _TensorEncoder:
    """Encodes tensors, arrays and their kin, and collects what goes into the safetensors file."""

    leaves: dict[str, TensorLeaf] = attrs.field(factory=dict)  # by key
    #: Those of files of their own, and the metadata of these.
    placed: list[TensorLeaf] = attrs.field(factory=list)
    files: dict[str, Mapping[str, str]] = attrs.field(factory=dict)
    sharded: "dict[str, DTensor]" = attrs.field(factory=dict)  # by key
    #: Nodes by view; the tree keeps the tensors alive meanwhile, so addresses stay theirs.
    _views: dict[object, dict[str, Json]] = attrs.field(factory=dict)

    def encode(self, value: object, place: TreePath) -> dict[str, Json] | None:
        """See ``tree.LeafEncoder``."""
        if is_sharded(value):
            return self._sharded(value, place)
        if isinstance(value, torch.Tensor):
            return self._tensor(value, place)
        if isinstance(value, TensorFile):
            return self._tensor_file(value, place)
        if type(value) is np.ndarray:
            return self._array(value, place)
        return self.encode_key(value, place)

    def encode_key(self, value: object, _place: TreePath) -> dict[str, Json] | None:
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

    def _tensor_file(self, file: TensorFile, place: TreePath) -> dict[str, Json]:
        path = f"{TRAINER_FOLDER}/{file.path}"
        if path in self.files:
            raise UnstorableState(place.pointer, f"a second file that is called {path}", hint="Give it another name.")
        self.files[path] = file.metadata
        nodes: dict[str, Json] = {}
        for name, tensor in file.items():
            within = TreePath(place, name)
            if is_sharded(tensor):
                hint = "Place what its .full_tensor() returns, or leave it in state_dict without a TensorFile."
                raise UnstorableState(within.pointer, "a tensor that is spread over ranks, in a TensorFile", hint=hint)
            if not isinstance(tensor, torch.Tensor):
                what = f"of class {type(tensor).__module__}.{type(tensor).__qualname__}, in a TensorFile"
                raise UnstorableState(within.pointer, what, hint="A TensorFile holds tensors and nothing else.")
            nodes[name] = self._tensor(tensor, within, file=path, name=name)
        return {TAG: "tensors", "items": nodes}

    def _tensor(self, tensor: torch.Tensor, place: TreePath, *, file: str = "", name: str = "") -> dict[str, Json]:
        if what := unstorable(tensor):
            raise UnstorableState(place.pointer, what, hint="Store a plain, dense copy of it, or leave it out.")
        view: object = (
            tensor.device, tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.shape, tensor.stride(),
            tensor.dtype, tensor.is_conj(), tensor.is_neg(),
        )  # fmt: skip
        if tensor.numel() == 0:  # no memory to identify it by
            view = id(tensor)
        known = self._views.get(view)
        if known is None or (file and known.get("file") != file):  # a file has all that it names, for its readers
            dtype, shape = _SAFETENSORS_NAMES[tensor.dtype], list(tensor.shape)
            if dtype == "F4":  # torch counts pairs
                shape[-1] *= 2
            key = name if file else self._unused(place)
            entry = TensorEntry(key=key, dtype=dtype, shape=shape, alignment=tensor.element_size(), size=tensor.nbytes)
            leaf = TensorLeaf(entry=entry, source=tensor, file=file)
            if file:
                self.placed.append(leaf)
                self._views[view] = {TAG: "tensor", "key": key, "file": file}
            else:
                self.leaves[key] = leaf
                self._views[view] = {TAG: "tensor", "key": key}
        return self._views[view]

    def _array(self, array: np.ndarray[Any, Any], place: TreePath) -> dict[str, Json] | None:
        if array.dtype.kind not in "biufcmMSU" or array.dtype.char in "gG":  # long doubles differ between machines
            return None
        key = self._unused(place)
        entry = TensorEntry(key=key, dtype="U8", shape=[array.nbytes], alignment=1, size=array.nbytes)
        self.leaves[key] = TensorLeaf(entry=entry, source=array)
        return {TAG: "numpy.array", "dtype": array.dtype.str, "shape": list(array.shape), "key": key}

    def _sharded(self, tensor: Any, place: TreePath) -> dict[str, Json]:
        # Each of them under a key of its own, also where two share memory: whether they do is hidden from a rank whose
        # part is empty, and the keys must be the same on all ranks.
        key = self._unused(place)
        node = sharded_node(tensor, key, place)
        self.sharded[key] = tensor
        return node

    def _unused(self, place: TreePath) -> str:
        # 1 and "1" are different keys of a dictionary, and the same in a pointer.
        key = pointer = place.pointer or "/"
        number = 1
        while key in self.leaves or key in self.sharded:
            number += 1
            key = f"{pointer}#{number}"
        return key


def unstorable(tensor: torch.Tensor) -> str | None:
    """Return the reason why a tensor cannot be stored; None for a tensor that can be."""
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
