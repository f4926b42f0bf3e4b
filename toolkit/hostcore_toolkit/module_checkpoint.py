"""The trainable part of a model as files that other programs read: adapters (LoRA), heads, whole models.

In the folder::

    lora.safetensors       the parameters that require a gradient, by name
    optimizer.safetensors  the states of optimizer, scheduler and scaler, as far as they were given
    checkpoint_meta.json   what was saved; written last

Each file is there whole or not at all, and all three name the save that they belong to: files of two saves, which a
crash in between leaves behind, are not taken for one. Nothing is pickled.
"""

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

from hostcore_toolkit.files import remove, write_atomically
from hostcore_toolkit.module_names import Parameters
from hostcore_toolkit.optimizers import OptimizerBundle
from hostcore_toolkit.state_file import write_state, write_tensors

WEIGHTS: Final = "lora.safetensors"
TRAINING: Final = "optimizer.safetensors"
META: Final = "checkpoint_meta.json"
FORMAT: Final = "lora_safetensors_v1"
#: Where other hosts put them, pickled.
PICKLED_WEIGHTS: Final = "lora.pt"
PICKLED_OPTIMIZER: Final = "optimizer.pt"
PICKLED_FORMAT: Final = "lora_torch_v1"

#: The key that distinguishes saves, in all three files.
SAVE: Final = "save"
TIED: Final = "tied"
TRAINED: Final = "trained"
_RESERVED: Final = frozenset({"format", "step", "final", "primary_path", "model_name_or_path", "optimizer_path", SAVE})


def save_trainable_module_checkpoint(  # noqa: PLR0917 - what trainers of other hosts call it with
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer | OptimizerBundle | None,
    output_dir: str | Path,
    step: int,
    final: bool,
    model_name_or_path: str = "",
    metadata: Mapping[str, Any] | None = None,
    *,
    scheduler: Any = None,
    scaler: Any = None,
) -> dict[str, Any]:
    """Write the parameters of a module that require a gradient, and the state of what trains them, as safetensors.

    Meant for a trainer's ``save_checkpoint``, whose result this can be::

        def save_checkpoint(self, state, step, output_dir, final, ctx):
            return save_trainable_module_checkpoint(
                state["model"], state["optimizer"], output_dir, step, final, scaler=ctx.scaler
            )

    Buffers and frozen parameters are left out. Tied parameters are stored once. ``DistributedDataParallel`` and
    ``torch.compile`` are looked through: the names are those of the module inside. On several ranks all may call it,
    and rank 0 writes. A module that FSDP has spread over the ranks is refused, since no rank has all of it.

    :param optimizer: Also an :class:`~hostcore_toolkit.OptimizerBundle`, with its scheduler; None to leave it out.
    :param output_dir: Made if it is not there. What an earlier save has left there is replaced.
    :param step: Finished steps.
    :param model_name_or_path: The model that the parameters belong into.
    :param metadata: Plain JSON to add.
    :param scheduler: Whatever has ``state_dict()``, as all of torch's have.
    :param scaler: The same, for ``ctx.scaler``.
    :return: What ``checkpoint_meta.json`` holds: ``format``, ``step``, ``final``, ``primary_path``,
        ``model_name_or_path``, ``optimizer_path`` if there is a state of that kind, and the metadata. The paths are
        relative to ``output_dir``: the host gives the folder another name when it commits the checkpoint.
    :raises ValueError: When no parameter requires a gradient, or the metadata has one of these keys.
    :raises TypeError: When the metadata is not JSON, or a state holds what is neither plain nor a tensor.
    :raises ModuleCheckpointError: When FSDP has spread the module over the ranks.
    :raises OSError: When the file system refuses.
    """
    folder = Path(output_dir)
    parameters = Parameters.trainable(module)
    if not parameters.by_name:
        raise ValueError("no trainable parameters found while saving checkpoint")
    optimizer, scheduler = unbundled(optimizer, scheduler)
    training = {
        name: one.state_dict()
        for name, one in (("optimizer", optimizer), ("scheduler", scheduler), ("scaler", scaler))
        if one is not None
    }
    meta = {
        "format": FORMAT,
        "step": step,
        "final": final,
        "primary_path": WEIGHTS,
        "model_name_or_path": model_name_or_path,
        **({"optimizer_path": TRAINING} if training else {}),
        **_checked(metadata or {}),
        SAVE: uuid.uuid4().hex,
    }
    document = _json(meta)
    told = {key: value for key, value in meta.items() if key != SAVE}
    if dist.is_available() and dist.is_initialized() and dist.get_rank() != 0:
        return told
    folder.mkdir(parents=True, exist_ok=True)
    for name in (META, PICKLED_WEIGHTS, PICKLED_OPTIMIZER, *([] if training else [TRAINING])):
        remove(folder / name)
    marks = {"format": FORMAT, SAVE: str(meta[SAVE])}
    write_tensors(folder / WEIGHTS, parameters.by_name, {**marks, TIED: json.dumps(parameters.tied)})
    if training:
        trained = json.dumps(parameters.trained_by(optimizer) if optimizer else None)
        write_state(folder / TRAINING, training, {**marks, TRAINED: trained})
    write_atomically(folder / META, document)
    return told


def unbundled(
    optimizer: torch.optim.Optimizer | OptimizerBundle | None, scheduler: Any
) -> tuple[torch.optim.Optimizer | None, Any]:
    """The optimizer and the scheduler of a bundle; what was given, if it is none."""
    if isinstance(optimizer, OptimizerBundle):
        return optimizer.optimizer, optimizer.scheduler if scheduler is None else scheduler
    return optimizer, scheduler


def _checked(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    if taken := sorted(_RESERVED & metadata.keys()):
        raise ValueError(f"the metadata cannot set {', '.join(map(repr, taken))}: these are set from the arguments")
    return metadata


def _json(meta: Mapping[str, Any]) -> bytes:
    try:
        return (json.dumps(meta, indent=2, allow_nan=False) + "\n").encode()
    except (TypeError, ValueError) as error:
        raise TypeError(f"the metadata is not JSON: {error}") from error
