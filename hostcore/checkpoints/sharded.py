"""Tensors that are spread over ranks (``DTensor``): each rank writes its part, and any number of ranks reads them.

``torch.distributed.checkpoint`` does both. Its files are safetensors, one for each rank, whose headers have the place
of their parts in the whole tensors; nothing is pickled. Everything of it is imported only when a state holds such a
tensor: it takes half a second.
"""

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import torch

from hostcore.checkpoints.errors import CheckpointError, UnstorableState
from hostcore.checkpoints.tree import TAG, Json, TreePath

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.tensor import DTensor

_WRITE: Final = "checkpoint.write"


def is_sharded(value: object) -> bool:
    """Return whether a value is a tensor that is spread over ranks."""
    module = sys.modules.get("torch.distributed.tensor")  # without the import there is no such tensor
    return module is not None and isinstance(value, module.DTensor)


def shards_folder(folder: Path, name: str) -> Path:
    """Return the folder for the parts of a state's tensors."""
    return folder / f"{name}.shards"


def sharded_node(tensor: "DTensor", key: str, place: TreePath) -> dict[str, Json]:
    """Return the node of such a tensor in the tree of a state; alike on all ranks.

    :raises UnstorableState: When the ranks' parts do not make up the whole.
    """
    if any(one.is_partial() for one in tensor.placements):
        hint = "Call .redistribute() or .full_tensor() on it in state_dict."
        raise UnstorableState(place.pointer, "a tensor whose parts have not been added up (Partial)", hint=hint)
    return {
        TAG: "tensor.sharded",
        "key": key,
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        # By dimension of the mesh: which one of the tensor's is cut; null if each rank has all.
        "placements": [getattr(one, "dim", None) if one.is_shard() else None for one in tensor.placements],
    }


class ShardBuffer:
    """Copies this rank's parts into main memory, each time into the same."""

    def __init__(self) -> None:
        self._stager: Any = None

    def snapshot(self, tensors: "Mapping[str, DTensor]") -> "ShardSnapshot":
        """Copy this rank's parts. The snapshot before is lost.

        :param tensors: By key; the same keys on all ranks.
        :raises CheckpointError: When this torch is too old.
        """
        if self._stager is None:
            try:
                from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
            except ImportError as error:
                raise CheckpointError(
                    f"torch {torch.__version__} cannot store tensors that are spread over ranks",
                    code="checkpoint.unstorable",
                    hint="Install torch 2.9 or newer, or return full tensors from state_dict.",
                ) from error
            cuda = torch.cuda.is_available()
            self._stager = DefaultStager(
                StagingOptions(
                    use_pinned_memory=cuda,
                    use_shared_memory=False,
                    use_async_staging=False,
                    use_non_blocking_copy=cuda,
                )
            )
        if any(one.is_cuda for one in tensors.values()):
            torch.cuda.synchronize()  # see hostcore.checkpoints.snapshot
        return ShardSnapshot(self._stager.stage(dict(tensors)))


@attrs.frozen(eq=False)
class ShardSnapshot:
    """The parts of this rank as they were; valid until its buffer takes the next."""

    _tensors: Mapping[str, Any]

    def write(self, folder: Path, group: "ProcessGroup") -> None:
        """Write the parts of all ranks. A collective, in whatever thread the group belongs to.

        When it returns, all of them are written, on the disk, and neither listed nor hashed.

        :param folder: Made where it is missing; on a file system that all ranks share.
        :raises CheckpointError: On all ranks, when one of them could not.
        """
        from torch.distributed.checkpoint.api import CheckpointException
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
        from torch.distributed.checkpoint.state_dict_saver import save

        writer = HuggingFaceStorageWriter(path=str(folder), save_distributed=True)
        try:
            save(dict(self._tensors), storage_writer=writer, process_group=group)
        except CheckpointException as error:
            raise _not_written(error.failures, folder) from error


def _not_written(failures: Mapping[int, Any], folder: Path) -> CheckpointError:
    rank, (error, _) = min(failures.items())
    refused = isinstance(error, OSError)
    reason = (error.strerror or error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
    return CheckpointError(
        f"the tensors that are spread over ranks could not be written by rank {rank}: {reason}",
        code=_WRITE if refused else "checkpoint.shards",
        file=str(folder),
        hint="Earlier checkpoints are intact. Make room or mend the permissions, then resume the run.",
    )


class ShardReader:
    """Collects the tensors to be read from the parts, and reads them at once.

    :param like: The tensors of the present state, by key; None: everything comes back whole.
    """

    def __init__(self, like: Mapping[str, torch.Tensor] | None, device: torch.device) -> None:
        self._like = like or {}
        self._device = device
        self._spread = next((one for one in self._like.values() if is_sharded(one)), None)
        self._wanted: dict[str, Any] = {}

    def tensor(self, node: Mapping[str, Json], dtype: torch.dtype) -> torch.Tensor:
        """The tensor of a node: filled when :meth:`read` is called.

        It is spread like that of the present state; if that has none of this key, over all ranks as far as the present
        state is spread at all.
        """
        key, shape = node["key"], torch.Size(node["shape"])
        if key not in self._wanted:
            present = self._like.get(key)
            if is_sharded(present) and present is not None and present.shape == shape:
                self._wanted[key] = torch.empty_like(present.detach(), dtype=dtype)
            elif present is None and self._spread is not None:
                self._wanted[key] = _over_all_ranks(shape, dtype, node["placements"], self._spread.device.type)
            else:
                self._wanted[key] = torch.empty(shape, dtype=dtype, device=self._device)
        return self._wanted[key]  # type: ignore[no-any-return]

    def read(self, folder: Path) -> None:
        """Fill all tensors asked for. No collective: each rank reads what it needs.

        :raises CheckpointError: When the parts are not there, or not what was written.
        """
        if not self._wanted:
            return
        from torch.distributed.checkpoint.api import CheckpointException
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
        from torch.distributed.checkpoint.state_dict_loader import load

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about reading alone, which is intended
                reader = HuggingFaceStorageReader(str(folder))
                load(dict(self._wanted), storage_reader=reader, no_dist=True)
        except CheckpointException as error:
            _, (reason, _) = min(error.failures.items())
            raise ValueError(f"{folder.name}: {reason}") from error


def _over_all_ranks(shape: torch.Size, dtype: torch.dtype, placements: list[int | None], device_type: str) -> Any:
    from torch import distributed
    from torch.distributed import tensor
    from torch.distributed.device_mesh import init_device_mesh

    cut = next((dim for dim in placements if dim is not None), None)
    mesh = init_device_mesh(device_type, (distributed.get_world_size(),))
    placed = [tensor.Replicate() if cut is None else tensor.Shard(cut)]
    return tensor.empty(*shape, dtype=dtype, device_mesh=mesh, placements=placed)


def spread_like(whole: torch.Tensor, present: torch.Tensor | None) -> torch.Tensor:
    """A tensor that every rank has all of, as the present state has it: spread, if that one is. No collective."""
    if present is None or not is_sharded(present) or present.shape != whole.shape:
        return whole
    from torch.distributed.tensor import distribute_tensor

    target: Any = present
    placed = whole.to(target.device_mesh.device_type)
    return distribute_tensor(placed, target.device_mesh, target.placements, src_data_rank=None)
