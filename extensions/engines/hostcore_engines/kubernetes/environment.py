"""The environment of the training container: what containers made for the original training API read, and our own."""

import secrets
from collections.abc import Mapping
from typing import Any, Final

import attrs
import orjson

from hostcore_engines.kubernetes.names import pointer, require_name, require_text, require_variable
from hostcore_hookspecs import FatalError, LaunchContext
from hostcore_hookspecs.job import Job

#: Mounted empty, for the container alone: its root file system is read-only.
SCRATCH: Final = "/scratch"
TEMPORARY: Final = "/tmp"  # noqa: S108 (in the container)
#: What operators set, for torchrun.
_OPERATORS: Final = frozenset(
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "JOB_COMPLETION_INDEX"}
)
_HIDDEN: Final = "********"
#: By what ranks of nodes that share no folder know each other.
_ADMISSION: Final = "HOSTCORE_RANKS_SECRET"
#: Annotations that keep fields of a request of the original API, where a job has no place for them.
_MODEL_ID: Final = "hostcore/model-id"
_EXTRA_ARGS: Final = "hostcore/extra-args"
_CONFIG_PATH: Final = "hostcore/config-path"
#: What sources call their files.
_PATHS: Final = ("parquet_paths", "paths", "index")


@attrs.frozen(kw_only=True)
class SecretKey:
    """A key of a Secret in the job's namespace."""

    secret: str
    key: str


Value = str | SecretKey


def environment_of(
    ctx: LaunchContext,
    secret_env: Mapping[str, str],
    *,
    runs_dir: str,
    show_values: bool = True,
    share_secret: bool = False,
) -> list[dict[str, Any]]:
    """The variables of the container, as its ``env`` lists them.

    :param secret_env: ``<Secret>/<key>`` by variable.
    :param runs_dir: The folder of all runs in the container.
    :param show_values: Whether the values of the job's own variables stand in it, and secrets that are made here.
    :param share_secret: Whether the nodes need a secret to meet by: a new one is made, unless ``secret_env`` has it.
    :raises FatalError: The job sets what is set for it, or something that Kubernetes does not take.
    """
    ours: dict[str, Value] = {**_original(ctx), "HOSTCORE_RUNS_DIR": runs_dir, "HOME": SCRATCH, "TMPDIR": TEMPORARY}
    for name, text in secret_env.items():
        ours[name] = _secret_key(name, text, taken=ours)
    if share_secret and _ADMISSION not in ours:
        ours[_ADMISSION] = secrets.token_hex(32) if show_values else _HIDDEN
    theirs: dict[str, Value] = {}
    for name, value in ctx.env.items():
        where = pointer("resources", "env", name)
        require_variable(name, where)
        _require_free(name, ours, where)
        require_text(value, f"value of {name}", where)
        theirs[name] = value if show_values else _HIDDEN
    return [_entry(name, value) for name, value in {**ours, **theirs}.items()]


def escaped(text: str) -> str:
    """A text that Kubernetes hands on as it is: it takes ``$(NAME)`` for a variable, and ``$$`` for ``$``."""
    return text.replace("$", "$$")


def _entry(name: str, value: Value) -> dict[str, Any]:
    if isinstance(value, SecretKey):
        return {"name": name, "valueFrom": {"secretKeyRef": {"name": value.secret, "key": value.key}}}
    return {"name": name, "value": escaped(value)}


def _require_free(name: str, ours: Mapping[str, Value], where: str) -> None:
    if name in _OPERATORS or name.startswith(("PET_", "TORCHELASTIC_")):
        raise FatalError(f"{name} is set by the operator that starts the pods", pointer=where, hint="remove it")
    if name in ours:
        raise FatalError(f"{name} is set by the launcher", pointer=where, hint="remove it, or give it another name")


def _secret_key(name: str, text: str, *, taken: Mapping[str, Value]) -> SecretKey:
    where = pointer("launcher", "secret_env", name)
    require_variable(name, where)
    _require_free(name, taken, where)
    secret, slash, key = text.partition("/")
    if not slash or not key or "/" in key:
        raise FatalError(f"{text!r} is not a Secret and its key", pointer=where, hint='write "<Secret>/<key>"')
    return SecretKey(secret=require_name(secret, "Secret", where), key=key)


def _original(ctx: LaunchContext) -> dict[str, Value]:
    """The variables that the original training API described a job by. What a job does not set is left out."""
    job, resources = ctx.job, ctx.job.resources
    told = {
        "FRAMEWORK": job.trainer,
        "MODEL_ID": job.hyperparams.get("model_id", job.annotations.get(_MODEL_ID)),
        "RUN_ID": job.run_id,
        "NUM_NODES": resources.num_nodes,
        "GPUS_PER_NODE": resources.gpus_per_node,
        **_places(job),
        "DATASET_URI": _dataset_uri(job.dataset),
        "TRAINING_EXTRA_ARGS_JSON": job.annotations.get(_EXTRA_ARGS) or orjson.dumps(_extra_args(job)).decode(),
        "CONFIG_PATH": job.hyperparams.get("config_path", job.annotations.get(_CONFIG_PATH)),
        "RESUME_FROM_CHECKPOINT": 1 if ctx.document.get("resume_from_checkpoint") is True else None,
    }
    return {name: str(value) for name, value in told.items() if value is not None}


def _places(job: Job) -> dict[str, str]:
    """Return the URIs of a run's mirror, as variables."""
    if not job.checkpoint_base_uri:
        return {}
    base = job.checkpoint_base_uri.rstrip("/")
    prefix = f"{base}/{job.run_id}/framework={job.trainer.replace(':', '-').replace('/', '-')}"
    return {
        "CHECKPOINT_BASE_URI": base,
        "CHECKPOINT_PREFIX": prefix,
        "CHECKPOINTS_URI": f"{prefix}/checkpoints",
        "LOGS_URI": f"{prefix}/logs",
        "CONFIG_URI": f"{prefix}/config",
    }


def _extra_args(job: Job) -> dict[str, Any]:
    """Return the ``extra_args`` of an equivalent request of the original API."""
    of_the_host = {
        "max_steps": job.max_steps or None,
        "num_epochs": job.epochs,
        "batch_size": job.batch_size if job.dataset else None,
        "gradient_accumulation": job.accumulate if job.accumulate > 1 else None,
        "save_steps": job.checkpoint_every or None,
    }
    theirs = {key: value for key, value in job.hyperparams.items() if key not in ("model_id", "config_path")}
    return {key: value for key, value in of_the_host.items() if value is not None} | theirs


def _dataset_uri(dataset: Mapping[str, Any] | None) -> str | None:
    """The one place that the data lies at; None if it is not one."""
    told = next((dataset[key] for key in _PATHS if dataset.get(key)), ()) if dataset else ()
    paths = [told] if isinstance(told, str) else list(told)
    return paths[0] if len(paths) == 1 and isinstance(paths[0], str) else None
