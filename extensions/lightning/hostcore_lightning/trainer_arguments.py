"""Arguments of Lightning's Trainer as keys of a job, and where the others go."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from hostcore_hookspecs import StepContext
from hostcore_lightning.settings import CannotRun

_PRECISIONS: Final = {
    **dict.fromkeys(("32", "32-true"), "fp32"),
    **dict.fromkeys(("bf16", "bf16-mixed"), "bf16"),
    **dict.fromkeys(("16", "16-mixed"), "fp16"),
}
#: Keys of a job that hold for the whole training, and what a job has that does not name them.
_DEFAULTS: Final[Mapping[str, Any]] = {
    "precision": "fp32",
    "accumulate": 1,
    "validate_every": 0,
    "deterministic": False,
    "gradient_clip_val": None,
    "gradient_clip_algorithm": "norm",
    "find_unused_parameters": False,
}
_NO_DEFAULT: Final = object()
_COMPARED: Final = ("precision", "accumulate", "validate_every", "deterministic", "epochs", "max_steps")
_RENAMED: Final = {
    "max_epochs": "epochs",
    "max_steps": "max_steps",
    "accumulate_grad_batches": "accumulate",
    "num_sanity_val_steps": "sanity_batches",
    "log_every_n_steps": "metric_every",
}
_NAMES: Final = {key: name for name, key in _RENAMED.items()}
#: As ``sanity_batches``.
_ALL: Final = 1_000_000
_TOGETHER: Final = ("accelerator", "devices", "val_check_interval", "check_val_every_n_epoch")
#: Arguments that change nothing in what is learned, and that a job needs nothing for.
_SILENT: Final = (
    *("enable_checkpointing", "enable_progress_bar", "enable_model_summary", "use_distributed_sampler", "benchmark"),
    *("inference_mode", "barebones", "enable_autolog_hparams", "callbacks", "model_registry"),
)
#: Where the other arguments go.
_ELSEWHERE: Final[Mapping[str, str]] = {
    "logger": 'reporters record the metrics: "reporters": [{"use": "tensorboard"}], "mlflow", "wandb", …',
    "default_root_dir": "hostcore run --runs-dir FOLDER",
    "profiler": "hostcore has the times of a step in `hostcore report`",
    "fast_dev_run": "hostcore run JOB --fast-dev-run",
    "max_time": '"max_runtime_seconds" ends a run that has gone wrong; for a plan, set "max_steps"',
    "min_epochs": 'a run ends with "epochs" or "max_steps", or when a callback stops it',
    "min_steps": 'a run ends with "epochs" or "max_steps", or when a callback stops it',
    "limit_train_batches": 'use a part of the dataset in the data module, or "max_steps"',
    "limit_val_batches": "use a part of the dataset in the data module",
    "limit_test_batches": "use a part of the dataset in the data module",
    "limit_predict_batches": "hostcore does not predict",
    "overfit_batches": "use a part of the dataset in the data module",
    "detect_anomaly": "call torch.autograd.set_detect_anomaly(True) where the module is imported",
    "sync_batchnorm": "convert in configure_model: torch.nn.SyncBatchNorm.convert_sync_batchnorm(self)",
    "num_nodes": "a launcher starts ranks on several machines: see 'Run on several machines'",
    "plugins": "a launcher stands for the environment of a cluster",
    "reload_dataloaders_every_n_epochs": "loaders are made once; use a sampler with set_epoch",
}


@attrs.frozen(kw_only=True)
class AsJob:
    """Keys of a job in place of a Trainer's arguments."""

    keys: dict[str, Any] = attrs.field(factory=dict)
    hyperparams: dict[str, Any] = attrs.field(factory=dict)
    #: Of each argument that no key stands for: where it goes.
    elsewhere: dict[str, str] = attrs.field(factory=dict)


def as_job(trainer: Mapping[str, Any]) -> AsJob:
    """Convert the arguments of a Trainer.

    :param trainer: By name; None is Trainer's default.
    """
    given = {name: value for name, value in trainer.items() if value is not None}
    job = AsJob()
    for name, value in given.items():
        if name in _RENAMED:
            if name == "num_sanity_val_steps" or value != -1:  # -1: no limit; of these, all batches
                job.keys[_RENAMED[name]] = _ALL if value == -1 else value
        elif name in _CONVERTED:
            _CONVERTED[name](name, value, job)
        elif name in _ELSEWHERE:
            if not _changes_nothing(name, value):
                job.elsewhere[name] = _ELSEWHERE[name]
        elif name not in (*_SILENT, *_TOGETHER):
            job.elsewhere[name] = "it is no argument of lightning's Trainer"
    _devices(given.get("accelerator", "auto"), given.get("devices", "auto"), job)
    _validations(given, job)
    for key in [key for key, value in job.keys.items() if key != "validate_every" and value == _DEFAULTS.get(key)]:
        del job.keys[key]
    return job


def _precision(name: str, value: Any, job: AsJob) -> None:
    if str(value) in _PRECISIONS:
        job.keys["precision"] = _PRECISIONS[str(value)]
    else:
        job.elsewhere[name] = f'{value} is none of fp32, bf16 and fp16, which "precision" may be'


def _clipping(name: str, value: Any, job: AsJob) -> None:
    if value:
        job.hyperparams[name] = value


def _deterministic(name: str, value: Any, job: AsJob) -> None:
    job.keys[name] = bool(value)


def _strategy(name: str, value: Any, job: AsJob) -> None:
    if value == "ddp_find_unused_parameters_true":
        job.hyperparams["find_unused_parameters"] = True
    elif value not in ("auto", "ddp"):
        shown = value.get("class_path", value) if isinstance(value, Mapping) else value
        shown = shown if isinstance(shown, str) else type(shown).__name__
        job.elsewhere[name] = f'{shown}: hostcore trains with DDP, on the ranks of "devices"'


_CONVERTED: Final[Mapping[str, Callable[[str, Any, AsJob], None]]] = {
    "precision": _precision,
    "gradient_clip_val": _clipping,
    "gradient_clip_algorithm": _clipping,
    "deterministic": _deterministic,
    "strategy": _strategy,
}


def _changes_nothing(name: str, value: Any) -> bool:
    if name.startswith("limit_"):
        return value == 1.0 or name == "limit_val_batches" and value == 0  # noqa: RUF021
    return value in (False, 0) or (name == "num_nodes" and value == 1)


def _devices(accelerator: Any, devices: Any, job: AsJob) -> None:
    kind = "cuda" if accelerator == "gpu" else str(accelerator)
    if isinstance(devices, str) and devices.lstrip("-").isdigit():
        devices = int(devices)
    elif isinstance(devices, str) and "," in devices:
        devices = [int(one) for one in devices.split(",") if one.strip().isdigit()]
    if kind not in ("auto", "cpu", "cuda", "mps"):
        job.elsewhere["accelerator"] = f'"{kind}" is no device of a job: "device" may be cpu, cuda or mps'
    elif devices and isinstance(devices, (list, tuple)) and kind in ("auto", "cuda"):
        names = [f"cuda:{one}" for one in devices]
        job.keys.update({"devices": names} if len(names) > 1 else {"device": names[0]})
    elif isinstance(devices, int) and devices > 1:
        job.keys["devices"] = ["cpu"] * devices if kind == "cpu" else f"auto:{devices}"
    elif kind != "auto":
        job.keys["device"] = kind
    if kind == "cuda" and devices in ("auto", -1):
        job.elsewhere["devices"] = 'all GPUs of a machine are no number: write "devices": "auto:8" for eight ranks'


def _validations(given: Mapping[str, Any], job: AsJob) -> None:
    interval, epochs = given.get("val_check_interval"), given.get("check_val_every_n_epoch", 1)
    accumulate = job.keys.get("accumulate", 1)
    accumulate = accumulate if isinstance(accumulate, int) and accumulate > 0 else 1
    if given.get("limit_val_batches") == 0:
        job.keys["validate_every"] = 0
        job.keys.pop("sanity_batches", None)
    elif isinstance(interval, int) and interval > 1:
        if interval % accumulate:
            job.elsewhere["val_check_interval"] = f"{interval} batches are no whole number of steps of {accumulate}"
        else:
            job.keys["validate_every"] = interval // accumulate
    elif interval not in (None, 1.0):
        job.elsewhere["val_check_interval"] = (
            f'{interval} of an epoch is a number of steps here: "validate_every": {interval} times those of an epoch'
        )
    elif epochs != 1:
        job.elsewhere["check_val_every_n_epoch"] = (
            f'{epochs} epochs are a number of steps here: "validate_every": {epochs} times those of an epoch'
        )
    elif "check_val_every_n_epoch" in given or interval is not None:
        job.keys["validate_every"] = "epoch"


def check_hyperparams(trainer: Mapping[str, Any], hyperparams: Any) -> None:
    """Check that the job's hyperparameters have what a ``LightningCLI`` gives its Trainer.

    :raises CannotRun: They do not name it.
    """
    _compare(as_job(trainer).hyperparams, hyperparams, "hyperparams of the job")


def check_job(trainer: Mapping[str, Any], ctx: StepContext) -> None:
    """Check that the job has what a ``LightningCLI`` gives its Trainer. The job counts; differences are warnings.

    :raises CannotRun: It does not name it.
    """
    given = as_job(trainer)
    warnings = [
        *_compare(given.hyperparams, ctx.hyperparams, "hyperparams of the job"),
        *_compare({key: one for key, one in given.keys.items() if key in _COMPARED}, ctx.job, "job"),
        *(f"trainer.{name} of the config has no effect: {way_out}" for name, way_out in given.elsewhere.items()),
    ]
    for text in warnings if ctx.rank == 0 else ():
        ctx.warn(text)


def _compare(wanted: Mapping[str, Any], has: Any, place: str) -> list[str]:
    warnings = []
    for key, value in wanted.items():
        found, name = getattr(has, key), _NAMES.get(key, key)
        if found == value:
            continue
        what, shown = f"trainer.{name} of the config", json.dumps(value)
        if found == _DEFAULTS.get(key, _NO_DEFAULT):
            raise CannotRun("/config", f"{what} is not in the job", hint=f'write "{key}": {shown} in the {place}')
        warnings.append(f'{what} is {shown} as "{key}", and the job has {json.dumps(found)}, which counts')
    return warnings
