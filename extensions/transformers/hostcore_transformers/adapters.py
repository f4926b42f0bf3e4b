"""Adapters by peft: new ones, those of a folder, and a model with which they are merged."""

import importlib
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from hostcore_builtin_plugins.extras import install_command
from hostcore_hookspecs import HostcoreError, InvalidSettings
from hostcore_transformers.hyperparams import Lora
from hostcore_transformers.weights import adapter_tensors, load_weights

if TYPE_CHECKING:
    from hostcore_transformers.tasks import Task

CONFIGURATION: Final = "adapter_config.json"
#: Beside adapters: the configuration of the model that has them, with its class, its head and its labels.
OF_MODEL: Final = "model_config.json"
_WEIGHTS: Final = "adapter_model.safetensors"
#: Keys of a configuration that are taken as they are; any other has to be as peft has it by default.
_KEPT: Final = {
    "alpha_pattern", "bias", "exclude_modules", "fan_in_fan_out", "layers_pattern", "layers_to_transform", "lora_alpha",
    "lora_bias", "lora_dropout", "modules_to_save", "r", "rank_pattern", "target_modules", "task_type", "use_dora",
    "use_rslora",
}  # fmt: skip
#: Keys that say where an adapter comes from, and how its weights began.
_HISTORY: Final = {"auto_mapping", "base_model_name_or_path", "inference_mode", "peft_version", "revision"}


class CannotMerge(HostcoreError):
    """Adapters that cannot be merged with a model."""

    code = "export"


def with_new_adapters(model: Any, lora: Lora, task: "Task", new: Sequence[str]) -> Any:
    """Wrap a model so that adapters with new weights are trained in place of its own.

    :param new: Parameters of the model that are in no file: their layers are trained, and stored with the adapters.
    :raises InvalidSettings: When peft is not installed, or the model has no such layers.
    """
    peft = _peft("/lora")
    names = {part for name, _ in model.named_modules() for part in name.split(".")}
    # Of tasks that it knows, peft adds the head by itself.
    head = [one for one in task.head if one in names and task.adapters is None]
    config = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=lora.target_modules
        if isinstance(lora.target_modules, str)
        else list(lora.target_modules) or None,
        modules_to_save=list(dict.fromkeys((*lora.modules_to_save, *head, *_layers(new, task)))) or None,
        task_type=task.adapters,
    )
    if missing := [one for one in lora.modules_to_save if one not in names]:
        message = f"the model has no layer {missing[0]!r}"
        raise InvalidSettings("/lora/modules_to_save", message, hint=f"its own: {', '.join(sorted(names - {''}))}")
    try:
        return peft.get_peft_model(model, config)
    except (ValueError, re.error) as error:
        raise InvalidSettings("/lora/target_modules", str(error).partition("\n")[0]) from error


def _layers(parameters: Sequence[str], task: "Task") -> list[str]:
    """The layers of parameters, without those of the task's head."""
    layers = dict.fromkeys(name.rpartition(".")[0] for name in parameters)
    return [one for one in layers if one and not set(one.split(".")) & set(task.head)]


def with_adapters_of(model: Any, folder: Path, new: Sequence[str]) -> Any:
    """Wrap a model with the adapters in a folder, as peft and this trainer write it, to go on from their weights.

    Nothing of the folder is run: keys of its configuration that have other code loaded are refused.

    :param new: Parameters of the model that are in none of its files: the adapters have to have them.
    :raises InvalidSettings: When there are none, or they are not of this model.
    """
    peft = _peft("/adapter")
    config = _configuration(peft, folder)
    try:
        wrapped = peft.get_peft_model(model, config)
        weights = _read(folder)
    except (OSError, ValueError, TypeError, KeyError, re.error) as error:
        message = f"the adapter in {folder} does not fit the model: {str(error).partition(chr(10))[0]}"
        raise InvalidSettings("/adapter", message, hint='see that "model" is the one that it was trained on') from error
    present = {name: tuple(one.shape) for name, one in adapter_tensors(wrapped).items()}
    stored = {name: tuple(one.shape) for name, one in weights.items()}
    if present != stored:
        name = min(name for name in present.keys() | stored.keys() if present.get(name) != stored.get(name))
        message = f"the adapter in {folder} is of another model: {name} is of shape {stored.get(name, 'none')} there, "
        message += f"and {present.get(name, 'none')} here"
        raise InvalidSettings("/adapter", message, hint='see that "model" is the one that it was trained on')
    if lost := [name for name in new if f"base_model.model.{name}" not in stored]:
        message = f"{min(lost)} is neither in the files of the model nor in the adapter in {folder}"
        raise InvalidSettings("/adapter", message, hint='see that "model" is the one that it was trained on')
    load_weights(wrapped, weights)
    return wrapped


def merge_adapters(adapter: Path, target: Path, *, base: Path | None = None, dtype: str | None = None) -> None:
    """Add adapters to the weights of their model, and write that as ``from_pretrained`` reads it.

    :param adapter: The folder ``trainer`` of a checkpoint.
    :param target: An existing folder.
    :param base: The folder of the model. None: that which the adapters were trained on, by its path then.
    :param dtype: Of torch, such as ``bfloat16``. None: float32.
    :raises HostcoreError: When the model is not found, or is another than that of the adapters.
    """
    if not (adapter / CONFIGURATION).is_file() or not (adapter / OF_MODEL).is_file():
        message = f"{adapter} has no adapters of the trainer transformers"
        raise CannotMerge(message, file=str(adapter), hint="leave --merge out: the weights are whole already")
    document = json.loads((adapter / OF_MODEL).read_bytes())
    folder = base or Path(json.loads((adapter / CONFIGURATION).read_bytes())["base_model_name_or_path"])
    if not (folder / "config.json").is_file():
        message = f"the model that the adapters were trained on is not in {folder}"
        raise CannotMerge(message, file=str(folder), hint="--base names the folder where it is")
    with _quiet():
        try:
            model, new = _model_of(document, folder)
            merged = with_adapters_of(model, adapter, new).merge_and_unload()
        except InvalidSettings as error:  # of a setting that there is not
            raise CannotMerge(str(error), file=str(folder), hint="--base names the folder of their model") from error
        merged.to(getattr(torch, dtype or "float32")).save_pretrained(target)


def _model_of(document: Mapping[str, Any], folder: Path) -> tuple[Any, list[str]]:
    """The model that had the adapters, and the names of its parameters that are not in its folder."""
    import transformers

    kind: Any = getattr(transformers, document["architectures"][0])
    model, found = kind.from_pretrained(
        folder,
        config=kind.config_class.from_dict(document),
        dtype="float32",
        ignore_mismatched_sizes=True,
        output_loading_info=True,
        local_files_only=True,
        trust_remote_code=False,
    )
    anew = {*found["missing_keys"], *(name for name, *_ in found["mismatched_keys"])}
    own = json.loads((folder / "config.json").read_bytes()).get("model_type")
    if own != document["model_type"] or any(re.search(r"\.\d+\.", name) for name in found["unexpected_keys"]):
        message = f"{folder} has another model than that which the adapters were trained on, a {kind.__name__}"
        raise CannotMerge(message, file=str(folder), hint="--base names the folder of that one")
    return model, sorted(anew & {name for name, _ in model.named_parameters()})


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave the libraries' reports of a model that is loaded to the checks of it."""
    logging: Any = importlib.import_module("transformers.utils.logging")
    level, shows_progress = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.set_verbosity(level)
        if shows_progress:
            logging.enable_progress_bar()


def _configuration(peft: Any, folder: Path) -> Any:
    file = folder / CONFIGURATION
    try:
        document = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        message = f"{folder} has no adapter: {CONFIGURATION} cannot be read"
        raise InvalidSettings("/adapter", message, hint="name a folder as peft's save_pretrained writes it") from error
    if not isinstance(document, Mapping) or document.get("peft_type") != "LORA":
        message = f"{file} is not of a LoRA adapter"
        raise InvalidSettings("/adapter", message, hint="peft itself has others: use it in a trainer of your own")
    usual = peft.LoraConfig().to_dict()
    given = {name: value for name, value in document.items() if name in _KEPT}
    for name, value in document.items():
        is_plain = not value or value == usual.get(name) or (name, value) == ("init_lora_weights", "gaussian")
        if name not in _KEPT | _HISTORY | {"peft_type"} and not is_plain:
            message = f'{file} has "{name}", which this trainer does not know'
            raise InvalidSettings(
                "/adapter", message, hint="merge it into the model with peft first (merge_and_unload)"
            )
    return peft.LoraConfig(**given)


def _read(folder: Path) -> Mapping[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / _WEIGHTS)


def _peft(pointer: str) -> Any:
    try:
        return importlib.import_module("peft")
    except ImportError as error:
        hint = install_command("transformers")
        raise InvalidSettings(pointer, "adapters need peft, which is not installed", hint=hint) from error
