"""Options of sbatch for a job."""

import hashlib
import math
import re
from decimal import Decimal
from typing import Final

from hostcore_engines.slurm.settings import Settings
from hostcore_hookspecs import FatalError, LaunchContext

#: What may be an account, and part of a file name and a comment.
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,119}", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_COMMENT: Final = "hostcore:"
_MIB: Final = 1 << 20


def key_of(launch_id: str) -> str:
    """A launch's id as the name of a file and a word of sbatch's; empty for none."""
    if not launch_id or _PLAIN.fullmatch(launch_id):
        return launch_id
    return hashlib.sha256(launch_id.encode()).hexdigest()[:40]


def comment_of(launch_id: str) -> str:
    """Return the comment by which a launch's job is found in the queue."""
    return f"{_COMMENT}{key_of(launch_id)}"


def job_name(ctx: LaunchContext) -> str:
    """Return the job's name in the queue."""
    return ctx.name or "hostcore"


def options_of(settings: Settings, ctx: LaunchContext) -> list[str]:
    """Return the options of sbatch, without those for the output.

    :raises FatalError: When the job has a request that Slurm does not support.
    """
    resources = ctx.job.resources
    _check(ctx)
    options = [f"--job-name={job_name(ctx)}"]
    if ctx.launch_id:
        options.append(f"--comment={comment_of(ctx.launch_id)}")
    options += [f"--nodes={resources.num_nodes}", "--ntasks-per-node=1"]
    if resources.gpus_per_node:
        kind = f"{settings.gpu_type}:" if settings.gpu_type else ""
        gres = settings.gpu_option == "gres"
        options.append(f"--{settings.gpu_option}={'gpu:' if gres else ''}{kind}{resources.gpus_per_node}")
    if resources.cpus_per_node is not None:
        options.append(f"--cpus-per-task={math.ceil(resources.cpus_per_node)}")
    if resources.memory_per_node_gb is not None:
        options.append(f"--mem={mebibytes(resources.memory_per_node_gb)}M")
    for name, value in (
        ("account", resources.namespace),
        ("partition", settings.partition),
        ("qos", settings.qos),
        ("constraint", settings.constraint),
        ("time", settings.time_limit),
    ):
        if value is not None:
            options.append(f"--{name}={value}")
    if settings.signal_seconds:
        options.append(f"--signal=B:USR1@{settings.signal_seconds}")
    options += ["--requeue" if settings.requeue else "--no-requeue", "--open-mode=append"]
    return [*options, *settings.options]


def mebibytes(gigabytes: float) -> int:
    """Convert GB (10^9 bytes) to Slurm's M (2^20 bytes), rounded up."""
    return math.ceil(Decimal(str(gigabytes)) * 10**9 / _MIB)


def _check(ctx: LaunchContext) -> None:
    resources = ctx.job.resources
    if resources.image:
        raise FatalError(
            "the launcher slurm starts processes of the nodes, and knows no image",
            pointer="/resources/image",
            hint="remove the key; what the nodes lack can be loaded by the launcher's setting before",
        )
    if resources.namespace is not None and not _PLAIN.fullmatch(resources.namespace):
        raise FatalError(
            f"{resources.namespace!r} is no account of Slurm's",
            pointer="/resources/namespace",
            hint="`sacctmgr show associations user=$USER` shows those that you may use",
        )
    for name in ctx.env:
        if not _NAME.fullmatch(name) or name.startswith(("SLURM_", "SBATCH_")):
            raise FatalError(
                f"{name!r} cannot be set for a job of Slurm's",
                pointer=f"/resources/env/{name.replace('~', '~0').replace('/', '~1')}",
                hint="names are letters, digits and _; what begins with SLURM_ or SBATCH_ is Slurm's own",
            )
