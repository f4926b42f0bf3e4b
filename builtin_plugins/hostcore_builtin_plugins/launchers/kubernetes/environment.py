"""The environment of the training container: what containers made for the original training API read, and our own."""

from collections.abc import Mapping
from typing import Any, Final

import attrs
import orjson

from hostcore_builtin_plugins.launchers.kubernetes.names import pointer, require_name, require_text, require_variable
from hostcore_hookspecs import FatalError, LaunchContext

#: Mounted empty, for the container alone: its root file system is read-only.
SCRATCH: Final = "/scratch"
TEMPORARY: Final = "/tmp"  # noqa: S108 (in the container)
#: What operators set, for torchrun.
_OPERATORS: Final = frozenset(
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "JOB_COMPLETION_INDEX"}
)
_HIDDEN: Final = "********"


@attrs.frozen(kw_only=True)
class SecretKey:
    """A key of a Secret in the job's namespace."""

    secret: str
    key: str


Value = str | SecretKey


def environment_of(
    ctx: LaunchContext, secret_env: Mapping[str, str], *, runs_dir: str, show_values: bool = True
) -> list[dict[str, Any]]:
    """The variables of the container, as its ``env`` lists them.

    :param secret_env: ``<Secret>/<key>`` by variable.
    :param runs_dir: The folder of all runs in the container.
    :param show_values: Whether the values of the job's own variables stand in it.
    :raises FatalError: The job sets what is set for it, or something that Kubernetes does not take.
    """
    ours: dict[str, Value] = {**_original(ctx), "HOSTCORE_RUNS_DIR": runs_dir, "HOME": SCRATCH, "TMPDIR": TEMPORARY}
    for name, text in secret_env.items():
        ours[name] = _secret_key(name, text, taken=ours)
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
    """The variables that the original training API described a job by."""
    job, resources = ctx.job, ctx.job.resources
    variables: dict[str, Value] = {
        "FRAMEWORK": job.trainer,
        "MODEL_ID": str(job.hyperparams.get("model_id", "")),
        "RUN_ID": job.run_id,
        "NUM_NODES": str(resources.num_nodes),
        "GPUS_PER_NODE": str(resources.gpus_per_node),
        "TRAINING_EXTRA_ARGS_JSON": orjson.dumps(
            {key: value for key, value in job.hyperparams.items() if key != "model_id"}
        ).decode(),
    }
    if job.checkpoint_base_uri:
        base = job.checkpoint_base_uri.rstrip("/")
        # As the mirror of a run is laid out.
        prefix = f"{base}/{job.run_id}/framework={job.trainer.replace(':', '-').replace('/', '-')}"
        variables |= {
            "CHECKPOINT_BASE_URI": base,
            "CHECKPOINT_PREFIX": prefix,
            "CHECKPOINTS_URI": f"{prefix}/checkpoints",
            "LOGS_URI": f"{prefix}/logs",
            "CONFIG_URI": f"{prefix}/config",
        }
    if uri := _dataset_uri(job.dataset):
        variables["DATASET_URI"] = uri
    if ctx.document.get("resume_from_checkpoint") is True:
        variables["RESUME_FROM_CHECKPOINT"] = "1"
    return variables


def _dataset_uri(dataset: Mapping[str, Any] | None) -> str:
    """The one place that the data lies at; empty if it is not one."""
    paths = (dataset or {}).get("parquet_paths") or (dataset or {}).get("paths") or ()
    paths = [paths] if isinstance(paths, str) else list(paths)
    return paths[0] if len(paths) == 1 and isinstance(paths[0], str) else ""
