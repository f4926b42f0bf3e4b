"""The weights of a checkpoint in files that other programs read."""

import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import attrs

from hostcore.checkpoints.find import committed, verify
from hostcore.checkpoints.record import CommitRecord
from hostcore.runs.directory import RunDirectory
from hostcore.runs.history import History
from hostcore_builtin_plugins.extras import install_command
from hostcore_hookspecs.errors import HostcoreError
from hostcore_inspect.formats import Dtype, Format

#: Files of a trainer whose folder ``from_pretrained`` reads: of a model, or of an adapter.
_CONFIGURATIONS: Final = ("trainer/config.json", "trainer/adapter_config.json")
_DTYPES: Final[Mapping[Dtype, str]] = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
#: Names of the weights in a trainer's state, the most usual first.
_WEIGHTS: Final = ("model", "weights", "state_dict", "module", "network", "net")


class CannotExport(HostcoreError):
    """A run has nothing to export that way."""

    code = "export"


@attrs.frozen(kw_only=True)
class Exported:
    """Files that were written."""

    #: Finished steps of the checkpoint.
    step: int
    format: Format
    #: The part of the trainer's state; None for files of the trainer's own.
    part: str | None
    #: Below the folder, sorted.
    files: tuple[str, ...]
    #: Of all tensors; None for files of the trainer's own.
    elements: int | None


def export(
    run: RunDirectory,
    folder: Path,
    *,
    step: int | Literal["last", "best"] = "last",
    format: Format | None = None,
    part: str | None = None,
    dtype: Dtype | None = None,
    merge: bool = False,
    base: Path | None = None,
) -> Exported:
    """Write the weights of a checkpoint into a new folder; all of it, or nothing.

    :param folder: Made; must not exist.
    :param step: Of a committed checkpoint.
    :param format: None: ``hf`` where the trainer writes files for ``from_pretrained``, else ``safetensors``.
    :param part: The place of the weights in the trainer's state, with dots; None: found by its name.
    :param dtype: Convert floating-point tensors to it. None: as they are.
    :param merge: Add adapters of the trainer ``transformers`` to the weights of their model.
    :param base: The folder of that model. None: where it was when they were trained.
    :raises HostcoreError: There is no such checkpoint or part, the checkpoint is damaged, or the folder exists.
    """
    if folder.exists():
        raise CannotExport(f"{folder} exists", file=str(folder), hint="name a folder that does not exist yet")
    record = _chosen(run, step)
    verify(run.checkpoints, record)
    checkpoint = run.checkpoints / record.folder_name
    is_pretrained = any(file.path in _CONFIGURATIONS for file in record.files)
    if base and not merge:
        raise CannotExport("a model is named, and nothing is merged with it", hint="--base is for --merge")
    chosen: Format = format or ("hf" if is_pretrained and part is None else "safetensors")
    if chosen == "hf":
        if not is_pretrained:
            message = "its trainer writes no config.json, which from_pretrained needs"
            raise CannotExport(message, file=str(checkpoint), hint="--format safetensors writes the tensors alone")
        if part or (dtype and not merge):
            message = "files of the trainer's own are copied as they are"
            raise CannotExport(message, hint="leave --part and --dtype out, or choose --format safetensors")
        with _whole(folder) as target:
            _copy(checkpoint, target, record, adapters=not merge)
            if merge:
                _merger()(checkpoint / "trainer", target, base=base, dtype=dtype and _DTYPES[dtype])
        tensors, found = None, None
    elif merge:
        message = "adapters are merged for from_pretrained"
        raise CannotExport(message, hint="leave --format out, or --merge")
    else:
        found, tensors = _tensors(checkpoint, part, dtype)
        with _whole(folder) as target:
            _WRITERS[chosen](tensors, target)
    return Exported(
        step=record.step,
        format=chosen,
        part=found,
        files=tuple(sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())),
        elements=None if tensors is None else sum(one.numel() for one in tensors.values()),
    )


def _chosen(run: RunDirectory, step: int | Literal["last", "best"]) -> CommitRecord:
    records = {record.step: record for record in committed(run.checkpoints)}
    if not records:
        message = f"the run {run.run_id!r} has no checkpoint"
        raise CannotExport(message, file=str(run.checkpoints), hint="checkpoint_every says how often to write one")
    wanted: int | None
    if step == "last":
        wanted = max(records)
    elif step == "best":
        history = History(run)
        history.read_on()
        wanted = history.best["step"] if history.best else None
    else:
        wanted = step
    if wanted not in records:
        steps = ", ".join(map(str, records))
        what = "nothing was best yet" if wanted is None else f"there is no checkpoint of step {wanted}"
        hint = f"there are those of {steps}"
        if step == "best":
            hint += "; the callback best-checkpoint keeps that of the best step"
        raise CannotExport(f"the run {run.run_id!r}: {what}", file=str(run.checkpoints), hint=hint)
    return records[wanted]


@contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    """A folder beside the one that is asked for, which gets its name when all is written."""
    hidden = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        hidden.mkdir(parents=True)
        yield hidden
        hidden.rename(folder)
    except OSError as error:
        raise CannotExport(f"{folder} cannot be written: {error.strerror or error}", file=str(folder)) from error
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def _merger() -> Callable[..., None]:
    """Return the function that the trainer's distribution adds to ``hostcore``."""
    import hostcore

    found: Callable[..., None] | None = getattr(hostcore, "merge_adapters", None)
    if found is None:
        hint = install_command("transformers")
        raise CannotExport("adapters are merged by hostcore-transformers, which is not installed", hint=hint)
    return found


def _copy(checkpoint: Path, target: Path, record: CommitRecord, *, adapters: bool) -> None:
    left = () if adapters else ("trainer/adapter_", "trainer/model_config.json")
    for file in record.files:
        if file.path.startswith("trainer/") and not file.path.startswith(left):
            own = target / file.path.removeprefix("trainer/")
            own.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(checkpoint / file.path, own)


def _tensors(checkpoint: Path, part: str | None, dtype: Dtype | None) -> tuple[str, dict[str, Any]]:
    """Read the weights: their place in the trainer's state, and the tensors by name."""
    import torch

    from hostcore.checkpoints.state import read_state

    state = read_state(checkpoint, "state")
    parts = dict(_parts(state))
    found = part if part is not None else next((name for name in _WEIGHTS if name in parts), None)
    if found is None and len(parts) == 1:
        (found,) = parts
    if found is None or found not in parts:
        what = f"no tensors at {part!r}" if part is not None else "several tensors, and none that is called model"
        hint = f"--part takes one of {', '.join(map(repr, parts))}" if parts else "its state holds no tensors by name"
        raise CannotExport(f"the trainer's state has {what}", file=str(checkpoint), hint=hint)
    kind = dtype and getattr(torch, _DTYPES[dtype])
    tensors = {}
    for name, one in parts[found].items():
        converted = one.to(kind) if kind and one.is_floating_point() else one
        tensors[name] = converted.contiguous()
    return found, tensors


def _parts(state: Any, place: str = "", levels: int = 3) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the mappings in a state that have nothing but tensors, by their places."""
    import torch

    if not isinstance(state, Mapping) or not state:
        return
    if all(isinstance(name, str) and isinstance(one, torch.Tensor) for name, one in state.items()):
        yield place, state
    elif levels:
        for name, one in state.items():
            yield from _parts(one, f"{place}.{name}" if place else str(name), levels - 1)


def _write_safetensors(tensors: Mapping[str, Any], folder: Path) -> None:
    from safetensors.torch import save_file

    seen: set[int] = set()
    apart = {}
    for name, one in tensors.items():
        apart[name] = one.clone() if one.data_ptr() in seen else one  # tied weights: the format has no shared memory
        seen.add(one.data_ptr())
    save_file(apart, folder / "model.safetensors", metadata={"format": "pt"})


def _write_dcp(tensors: Mapping[str, Any], folder: Path) -> None:
    from torch.distributed.checkpoint.state_dict_saver import save

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        save(dict(tensors), checkpoint_id=folder, no_dist=True)


def _write_torch(tensors: Mapping[str, Any], folder: Path) -> None:
    import torch

    torch.save(dict(tensors), folder / "model.pt")


_WRITERS: Final[Mapping[str, Callable[[Mapping[str, Any], Path], None]]] = {
    "safetensors": _write_safetensors,
    "dcp": _write_dcp,
    "torch": _write_torch,
}
