"""Reading what ``save_trainable_module_checkpoint`` wrote, here or in another host."""

import json
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Final

import attrs
import safetensors
import torch

from hostcore_toolkit.module_checkpoint import (
    META,
    PICKLED_FORMAT,
    PICKLED_OPTIMIZER,
    PICKLED_WEIGHTS,
    SAVE,
    TIED,
    TRAINED,
    TRAINING,
    WEIGHTS,
    unbundled,
)
from hostcore_toolkit.module_names import ModuleCheckpointError, Parameters
from hostcore_toolkit.optimizers import OptimizerBundle
from hostcore_toolkit.state_file import read_state, read_tensors

#: What ``DistributedDataParallel`` puts in front of every name, and other hosts have stored.
_WRAPPED: Final = "module."
#: The first torch whose ``weights_only`` is safe with files of others (CVE-2025-32434, GHSA-63cw-57p8-fm3p).
_SAFE_TORCH: Final = "2.10"
_MOST_NAMED: Final = 5


@attrs.frozen(kw_only=True)
class LoadedModule:
    """Names of tensors that were loaded, and of others. With ``strict`` nothing is left out."""

    #: What ``checkpoint_meta.json`` holds; empty without one.
    metadata: Mapping[str, Any]
    #: Trainable parameters that the file has not; they are as they were.
    missing: tuple[str, ...] = ()
    #: What the file has, and is no trainable parameter of the module.
    unexpected: tuple[str, ...] = ()
    #: Parameters of another shape, with both shapes; they are as they were.
    mismatched: tuple[str, ...] = ()
    #: Parameters that were stored in another dtype, with both dtypes; their values were converted.
    converted: tuple[str, ...] = ()
    #: Of ``optimizer``, ``scheduler``, ``scaler``: those given whose state is not there, or of other parameters.
    skipped: tuple[str, ...] = ()

    @property
    def step(self) -> int | None:
        """The finished steps at which it was saved, if that was noted."""
        step = self.metadata.get("step")
        return step if isinstance(step, int) else None

    @property
    def problems(self) -> tuple[str, ...]:
        """Everything that ``strict`` would not have loaded, in words."""
        kinds = {
            "missing in the file": self.missing,
            "not a trainable parameter here": self.unexpected,
            "of another shape": self.mismatched,
            "of another dtype": self.converted,
            "without a state that fits": self.skipped,
        }
        return tuple(f"{what}: {_several(names)}" for what, names in kinds.items() if names)


def load_trainable_module_checkpoint(
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer | OptimizerBundle | None,
    checkpoint_dir: str | Path,
    *,
    scheduler: Any = None,
    scaler: Any = None,
    strict: bool = True,
) -> LoadedModule:
    """Load what :func:`save_trainable_module_checkpoint` wrote into a module and what trains it.

    Meant for a trainer's ``load_checkpoint``, whose ``checkpoint_dir`` is the very folder that ``save_checkpoint`` was
    given. Reads folders that the trainer helpers of other hosts wrote in the format ``lora_safetensors_v1``; also their
    ``.pt`` files, as far as ``torch.load(weights_only=True)`` takes them, and no others. All is checked before anything
    is changed. Tied parameters may be tied differently than they were.

    :param optimizer: None to leave its state alone. The same for ``scheduler`` and ``scaler``.
    :param strict: Whether every difference between file and module is an error. False: what fits is loaded, in the
        dtype of the module, and the result names those that did not.
    :raises ModuleCheckpointError: When there is nothing to load, it is damaged, half-written, or pickled code; with
        ``strict`` also when names, shapes or dtypes differ, or the state of what was given is not there.
    """
    folder = Path(checkpoint_dir)
    metadata = _metadata(folder)
    tensors, marks = _weights(folder, metadata)
    _same_save(folder / WEIGHTS, marks, metadata)
    optimizer, scheduler = unbundled(optimizer, scheduler)
    given = {"optimizer": optimizer, "scheduler": scheduler, "scaler": scaler}
    given = {name: one for name, one in given.items() if one is not None}
    parameters = Parameters.trainable(module)
    states = _states(folder, metadata, parameters, optimizer) if given else {}
    found = _Match.of(parameters, tensors, json.loads(marks.get(TIED, "{}")))
    loaded = LoadedModule(
        metadata={key: value for key, value in metadata.items() if key != SAVE},
        missing=found.missing,
        unexpected=found.unexpected,
        mismatched=found.mismatched,
        converted=found.converted,
        skipped=tuple(name for name in given if name not in states),
    )
    if strict and loaded.problems:
        raise ModuleCheckpointError(
            f"the checkpoint is not of this module: {'; '.join(loaded.problems)}",
            file=str(folder),
            hint="make the module as it was when it was saved, or load what fits with strict=False",
        )
    with torch.no_grad():
        for parameter, tensor in found.pairs:
            parameter.copy_(tensor)
    for name, one in given.items():
        if name in states:
            one.load_state_dict(states[name])
    return loaded


@attrs.frozen(kw_only=True, eq=False)
class _Match:
    """Assignment of tensors to parameters."""

    pairs: tuple[tuple[torch.nn.Parameter, torch.Tensor], ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: tuple[str, ...]
    converted: tuple[str, ...]

    @classmethod
    def of(cls, parameters: Parameters, tensors: Mapping[str, torch.Tensor], tied: Mapping[str, str]) -> "_Match":
        stored = _unwrapped({**tensors, **{name: tensors[first] for name, first in tied.items() if first in tensors}})
        aliases = _unwrapped(dict(tied))
        pairs, missing, mismatched, converted = [], [], [], []
        used: set[str] = set()
        for name, parameter in parameters.by_name.items():
            names = [name, *(other for other, first in parameters.tied.items() if first == name)]
            present = [one for one in names if one in stored]
            used.update(present)
            if not present:
                missing.append(name)
                continue
            tensor = stored[present[0]]
            if tensor.shape != parameter.shape:
                mismatched.append(f"{name} ({_shape(tensor)} in the file, {_shape(parameter)} here)")
                continue
            if any(not torch.equal(stored[one], tensor) for one in present[1:]):
                mismatched.append(f"{name} (tied to {', '.join(names[1:])} here, and different in the file)")
                continue
            if tensor.dtype != parameter.dtype:
                converted.append(f"{name} ({tensor.dtype} in the file, {parameter.dtype} here)")
            pairs.append((parameter, tensor))
        return cls(
            pairs=tuple(pairs),
            missing=tuple(missing),
            unexpected=tuple(name for name in stored if name not in used and name not in aliases),
            mismatched=tuple(mismatched),
            converted=tuple(converted),
        )


def _unwrapped(named: dict[str, Any]) -> dict[str, Any]:
    if named and all(name.startswith(_WRAPPED) for name in named):
        return {name.removeprefix(_WRAPPED): value for name, value in named.items()}
    return named


def _metadata(folder: Path) -> Mapping[str, Any]:
    path = folder / META
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if not isinstance(found, dict):
        raise _unreadable(path, ValueError("it is not a JSON object"))
    return found


def _weights(folder: Path, metadata: Mapping[str, Any]) -> tuple[Mapping[str, torch.Tensor], Mapping[str, str]]:
    path, pickled = folder / WEIGHTS, folder / PICKLED_WEIGHTS
    if path.exists() and pickled.exists() and "format" not in metadata:
        raise ModuleCheckpointError(
            f"there are {WEIGHTS} and {PICKLED_WEIGHTS}, and nothing says which one is newer",
            file=str(folder),
            hint="remove the one that is not wanted",
        )
    if pickled.exists() and (metadata.get("format") == PICKLED_FORMAT or not path.exists()):
        tensors = _unpickled(pickled)
        if not all(isinstance(one, torch.Tensor) for one in tensors.values()):
            raise _unreadable(pickled, TypeError("it holds more than tensors by their names"))
        return tensors, {}
    if not path.exists():
        raise ModuleCheckpointError(
            f"there is no {WEIGHTS}",
            file=str(folder),
            hint="give the folder that save_checkpoint was given: load_checkpoint is given the same",
        )
    try:
        return read_tensors(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise _unreadable(path, error) from error


def _states(
    folder: Path, metadata: Mapping[str, Any], parameters: Parameters, optimizer: torch.optim.Optimizer | None
) -> dict[str, Any]:
    """The states by what they are of; without the optimizer's if that is of other parameters."""
    path, pickled = folder / TRAINING, folder / PICKLED_OPTIMIZER
    if SAVE not in metadata and pickled.exists():
        return _of_another_host(_unpickled(pickled), optimizer)
    if not path.exists():
        return {}
    try:
        states, marks = read_state(path)
        trained = json.loads(marks[TRAINED])
    except (OSError, safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        raise _unreadable(path, error) from error
    _same_save(path, marks, metadata)
    if optimizer is not None and trained != parameters.trained_by(optimizer):
        states.pop("optimizer", None)
    return states


def _same_save(path: Path, marks: Mapping[str, str], metadata: Mapping[str, Any]) -> None:
    """Files of another host have no mark; then neither file has."""
    if marks.get(SAVE) != metadata.get(SAVE):
        raise ModuleCheckpointError(
            f"{path.name} is not of the save that {META} tells of: a save was cut off",
            file=str(path),
            hint="load another checkpoint",
        )


def _of_another_host(state: Mapping[str, Any], optimizer: torch.optim.Optimizer | None) -> dict[str, Any]:
    """The optimizer's state, if it has as many parameters as the optimizer: it names none."""
    try:
        stored = [len(group["params"]) for group in state["param_groups"]]
    except (KeyError, TypeError):
        stored = []
    present = [len(group["params"]) for group in optimizer.param_groups] if optimizer else None
    return {"optimizer": state} if stored == present else {}


def require_safe_unpickling(path: Path) -> None:
    """Refuse a file that ``torch.load(weights_only=True)`` of this version of torch cannot read safely.

    :raises ModuleCheckpointError: With the version to install.
    """
    if torch.__version__ < _SAFE_TORCH:
        raise ModuleCheckpointError(
            f"{path.name} is pickled, which torch {torch.__version__} cannot read safely",
            file=str(path),
            hint=f"install torch {_SAFE_TORCH} or later, or convert the file to safetensors",
        )


def _unpickled(path: Path) -> dict[str, Any]:
    require_safe_unpickling(path)
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, UnpicklingError) as error:
        raise ModuleCheckpointError(
            f"{path.name} is pickled, and holds more than tensors and plain values, or is damaged",
            file=str(path),
            hint="convert it to safetensors where it comes from; loading it here could run code",
        ) from error
    if not isinstance(found, dict):
        raise _unreadable(path, TypeError(f"it holds a {type(found).__name__}"))
    return found


def _unreadable(path: Path, error: Exception) -> ModuleCheckpointError:
    return ModuleCheckpointError(
        f"{path.name} cannot be read: {error}", file=str(path), hint="load another checkpoint; this one is damaged"
    )


def _shape(tensor: torch.Tensor) -> str:
    return str(tuple(tensor.shape))


def _several(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
