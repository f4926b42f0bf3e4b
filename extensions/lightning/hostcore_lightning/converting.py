"""A job in place of a configuration file of ``LightningCLI``."""

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from hostcore_hookspecs import HostcoreError
from hostcore_lightning.frameworks import merged
from hostcore_lightning.metric_names import recorded_by_guess
from hostcore_lightning.trainer_arguments import as_job

#: Sections of a configuration that may be a file of their own.
_SECTIONS: Final = ("model", "data", "trainer", "optimizer", "lr_scheduler")
#: Arguments of ``Trainer.fit``, which stand beside the sections.
_OF_FIT: Final = {
    "ckpt_path": 'a run goes on by itself, or with `hostcore resume`; to begin with these weights alone: "weights": {}',
    "weights_only": "",
}
#: Arguments of a Trainer that others may be linked to.
_LINKED: Final = ("max_epochs", "max_steps", "accumulate_grad_batches", "precision", "gradient_clip_val")
#: Callbacks that the job has the like of.
_PROGRESS: Final = ("TQDMProgressBar", "RichProgressBar", "ProgressBar", "RichModelSummary", "ModelSummary")


class CannotConvert(HostcoreError):
    """A file that is no configuration of ``LightningCLI``, or that cannot be read."""

    code = "lightning.config"


def converted(
    paths: Sequence[Path], *, cli: str | None = None, module: str | None = None, datamodule: str | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Convert configuration files; return the job, and a line about each argument that it does not have.

    :param paths: Files, of which a later one counts.
    :param cli: Import path of the CLI that reads the file, or of a function that makes it; None: a plain one.
    :param module: Import path of its module, if the file does not name one.
    :param datamodule: Likewise.
    :raises CannotConvert: The file cannot be read.
    """
    config: dict[str, Any] = {}
    for path in paths:
        config = merged(config, _read(path))
    config = _resolved(config, path)
    notes: list[str] = []
    if not any(key in config for key in ("model", "data", "trainer")):
        raise CannotConvert(
            "it has no model, data or trainer", file=str(path), hint="give a file that `python main.py fit` takes"
        )
    if cli is None and module is None and not _names_class(config.get("model")):
        raise CannotConvert(
            "model names no class",
            file=str(path),
            hint="name it: --module main:Net, and --datamodule main:Data; or --cli main:cli_main, your program's CLI",
        )
    trainer = config.pop("trainer", None) or {}
    if not isinstance(trainer, Mapping):
        raise CannotConvert("trainer is no mapping", file=str(path), hint="give the arguments of Trainer by name")
    job: dict[str, Any] = {"trainer": "lightning"}
    found = as_job(trainer)
    callbacks, of_job = _callbacks(trainer.get("callbacks"), notes)
    seed = config.pop("seed_everything", True)
    if isinstance(seed, int) and not isinstance(seed, bool):
        job["seed"] = seed
    elif seed:
        notes.append('seed_everything is left to chance there; here it is "seed": 0, unless the job has another')
    for name, way_out in _OF_FIT.items():
        if value := config.pop(name, None):
            notes.append(f"{name} is left out: {way_out.format(json.dumps(value))}") if way_out else None
    rest = {"callbacks": callbacks} if callbacks else {}
    if cli is not None:  # arguments may be linked to them
        rest |= {name: value for name, value in trainer.items() if name in _LINKED and value is not None}
    if cli is None:  # the host imports what these name, from the job's folder, too
        module = module or _import_path(config.get("model"))
        datamodule = datamodule or _import_path(config.get("data"))
    named = {"cli": cli, "module": module, "datamodule": datamodule}
    sections = {key: one for key, one in config.items() if one is not None} | ({"trainer": rest} if rest else {})
    hyperparams = {key: one for key, one in named.items() if one is not None} | {"config": sections}
    job["hyperparams"] = hyperparams | dict(found.hyperparams)
    keys = {"validate_every": "epoch"} | dict(found.keys)
    if not keys.keys() & {"epochs", "max_steps"}:
        keys["epochs"] = 1000
        notes.append('"epochs" is 1000, as Trainer has it where neither max_epochs nor max_steps is given')
    notes += [f"trainer.{name} is left out: {way_out}" for name, way_out in found.elsewhere.items()]
    return job | keys | of_job, notes


def written(job: Mapping[str, Any], path: Path) -> str:
    """Return a job as JSON.

    :raises CannotConvert: A value is none that JSON has.
    """
    try:
        return json.dumps(job, indent=2, allow_nan=False, default=str) + "\n"
    except ValueError:
        raise CannotConvert("it has an infinite number, which JSON has not", file=str(path)) from None


def write_new(path: Path, text: str) -> None:
    """Write a file that does not exist.

    :raises CannotConvert: It does, or cannot be written.
    """
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise CannotConvert("the file exists", file=str(path), hint="remove it, or give another name") from None
    except OSError as error:
        raise CannotConvert(f"it cannot be written: {error.strerror}", file=str(path)) from None


def _callbacks(given: Any, notes: list[str]) -> tuple[list[Any], dict[str, Any]]:
    """Return the callbacks that stay in the configuration, and keys of the job in place of the others."""
    stay: list[Any] = []
    job: dict[str, Any] = {}
    own: list[dict[str, Any]] = []
    for one in given if isinstance(given, list) else [given] if given else []:
        path, init = (one.get("class_path"), one.get("init_args")) if isinstance(one, Mapping) else (one, None)
        name = str(path).rpartition(".")[2]
        if name == "ModelCheckpoint":
            own += _checkpoints(init if isinstance(init, Mapping) else {}, job, notes)
        elif name == "LearningRateMonitor":
            own.append({"use": "lr-monitor"})
        elif name in _PROGRESS:
            notes.append(f"the callback {name} is left out: hostcore shows the progress in the terminal")
        else:
            stay.append(one)
    if own:
        job["callbacks"] = own
    return stay, job


def _checkpoints(init: Mapping[str, Any], job: dict[str, Any], notes: list[str]) -> Iterator[dict[str, Any]]:
    taken = {"monitor", "mode"}
    if steps := init.get("every_n_train_steps"):
        job["checkpoint_every"] = steps
        taken.add("every_n_train_steps")
    elif init.get("every_n_epochs") == 1:
        job["checkpoint_every"] = "epoch"
        taken.add("every_n_epochs")
    if left := sorted(key for key, value in init.items() if key not in taken and value is not None):
        notes.append(
            f"of the callback ModelCheckpoint, {', '.join(left)} is left out: the last checkpoint and the best are "
            'kept; see "checkpoint_every" and "keep_checkpoints"'
        )
    if monitor := init.get("monitor"):
        mode = {"mode": init["mode"]} if "mode" in init else {"mode": "min"}
        yield {"use": "best-checkpoint", "monitor": recorded_by_guess(str(monitor)), **mode}


def _names_class(section: Any) -> bool:
    return isinstance(section, str) or (isinstance(section, Mapping) and "class_path" in section)


def _import_path(section: Any) -> str | None:
    path = section.get("class_path") if isinstance(section, Mapping) else section
    if not isinstance(path, str) or "." not in path:
        return None
    return ":".join(path.rsplit(".", 1))


def _read(path: Path) -> dict[str, Any]:
    try:
        found = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise CannotConvert(f"it cannot be read: {reason}", file=str(path)) from None
    except YAMLError as error:
        first, *_ = str(getattr(error, "problem", None) or error).splitlines()
        mark = getattr(error, "problem_mark", None)
        place = f" (line {mark.line + 1})" if mark else ""
        raise CannotConvert(f"it is no YAML: {first}{place}", file=str(path)) from None
    if not isinstance(found, Mapping):
        raise CannotConvert("it holds no mapping", file=str(path), hint="give a file that `python main.py fit` takes")
    of_fit = found.get("fit")
    sections: dict[str, Any] = dict(of_fit if isinstance(of_fit, Mapping) else found)
    for name in _SECTIONS:
        if isinstance(inner := sections.get(name), str) and (path.parent / inner).is_file():
            sections[name] = _read(path.parent / inner)
    return sections


def _resolved(config: dict[str, Any], path: Path) -> dict[str, Any]:
    """Resolve references to other values, ``${trainer.max_epochs}``, as OmegaConf does."""
    if "${" not in json.dumps(config, default=str):
        return config
    if find_spec("omegaconf") is None:
        raise CannotConvert(
            "it refers to other values by ${…}, which omegaconf reads", file=str(path), hint="pip install omegaconf"
        )
    omegaconf: Any = import_module("omegaconf")
    try:
        return dict(omegaconf.OmegaConf.to_container(omegaconf.OmegaConf.create(config), resolve=True))
    except omegaconf.errors.OmegaConfBaseException as error:
        raise CannotConvert(str(error).splitlines()[0], file=str(path)) from None
