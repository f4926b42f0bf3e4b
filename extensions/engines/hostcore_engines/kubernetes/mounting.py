"""Volumes of the container: for the run, the job, and the code to start."""

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

import attrs

from hostcore_engines.kubernetes.environment import SCRATCH, TEMPORARY, escaped
from hostcore_engines.kubernetes.names import require_name, require_text
from hostcore_engines.kubernetes.settings import KubernetesSettings
from hostcore_hookspecs import FatalError, LaunchContext

_DOCUMENT_DIR: Final = "/etc/hostcore"
DOCUMENT_KEY: Final = "job.json"
_DOCUMENT: Final = f"{_DOCUMENT_DIR}/{DOCUMENT_KEY}"
#: The name of the volume.
_RUNS: Final = "runs"
#: The key of a job that names the checkpoint that it begins from.
_BEGIN: Final = "resume_from_checkpoint"
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 (in the container)


@attrs.frozen(kw_only=True)
class Mounts:
    """The volumes of a pod, and what follows from them."""

    #: As ``volumes`` of a pod lists them.
    volumes: Sequence[dict[str, Any]]
    #: As ``volumeMounts`` of a container lists them.
    mounts: Sequence[dict[str, Any]]
    #: ``HOSTCORE_RUNS_DIR`` in the container, where its ranks meet: in a volume, which has other runs in it, the run
    #: directory itself.
    runs_dir: str


def mounts_of(ctx: LaunchContext, settings: KubernetesSettings, *, document: str) -> Mounts:
    """Return the mounts that the container needs."""
    volumes: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []

    def mount(name: str, path: str, source: dict[str, Any], *, read_only: bool = False) -> None:
        volumes.append({"name": name, **source})
        mounts.append({"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})})

    if settings.volume is None:
        runs_dir = f"{SCRATCH}/runs"
        mount("job", _DOCUMENT_DIR, {"configMap": {"name": document}}, read_only=True)
    else:
        runs_dir = ctx.run_dir
        require_name(settings.volume, "PersistentVolumeClaim", "/launcher/volume")
        volumes.append({"name": _RUNS, "persistentVolumeClaim": {"claimName": settings.volume}})
        mounts += [{"name": _RUNS, **one} for one in _of_volume(ctx, _volume_path(ctx, settings))]
    mount("scratch", SCRATCH, {"emptyDir": {}})
    mount("tmp", TEMPORARY, {"emptyDir": {}})
    # Ranks and the workers of a feed share tensors there; what a container has by itself is 64 MiB.
    mount("shared-memory", _SHARED_MEMORY, {"emptyDir": {"medium": "Memory"}})
    return Mounts(volumes=volumes, mounts=mounts, runs_dir=runs_dir)


def _of_volume(ctx: LaunchContext, root: PurePosixPath) -> Iterator[dict[str, Any]]:
    """Yield the mounts of the volume: its own run alone is writable.

    :param root: Where the volume is mounted.
    """
    run_dir = PurePosixPath(ctx.run_dir)
    parent = _parent_run(ctx)
    if root != run_dir.parent:  # data may lie beside the runs
        yield {"mountPath": str(root), "readOnly": True}
    elif parent is not None:
        yield {"mountPath": str(parent), "subPath": str(parent.relative_to(root)), "readOnly": True}
    yield {"mountPath": str(run_dir), "subPath": str(run_dir.relative_to(root))}


def _parent_run(ctx: LaunchContext) -> PurePosixPath | None:
    """The other run, beside this one, from a checkpoint of which it begins."""
    runs_dir, begin = PurePosixPath(ctx.run_dir).parent, PurePosixPath(str(ctx.document.get(_BEGIN)))
    if not begin.is_relative_to(runs_dir) or ".." in begin.parts:
        return None
    name = next(iter(begin.relative_to(runs_dir).parts), ".")
    return None if name.startswith(".") or name == PurePosixPath(ctx.run_dir).name else runs_dir / name


def _volume_path(ctx: LaunchContext, settings: KubernetesSettings) -> PurePosixPath:
    runs_dir = PurePosixPath(ctx.run_dir).parent
    if settings.volume_path is None:
        path = runs_dir
    else:
        path = PurePosixPath(settings.volume_path)
        if not path.is_absolute() or ".." in path.parts or not runs_dir.is_relative_to(path):
            raise FatalError(
                f"the run directory {ctx.run_dir} is not below {settings.volume_path!r}, where the volume is mounted",
                pointer="/launcher/volume_path",
                hint=f"mount the volume there on this machine, too, and set HOSTCORE_RUNS_DIR to a folder in it; the "
                f"folder of the runs is {runs_dir}",
            )
    if ":" in str(path):
        raise FatalError(f"Kubernetes mounts nothing at a path with ':': {path}", pointer="/launcher/volume_path")
    return path


def _is_object_store(uri: str | None) -> bool:
    """Return whether a URI is the same place for all nodes."""
    scheme, separator, _ = (uri or "").partition("://")
    return bool(separator) and scheme.rpartition("::")[2] not in ("file", "local", "memory")


def command_of(
    ctx: LaunchContext, settings: KubernetesSettings, *, own_python: str, rendezvous: Sequence[str]
) -> list[str]:
    """Return the container's command: as it is for one rank, below torchrun for several.

    A list of arguments; no shell sees it, and Kubernetes replaces nothing in it but the variables in ``rendezvous``.

    :param own_python: This machine's interpreter, which the image's takes the place of.
    :param rendezvous: torchrun's arguments for the place of this node among the others.
    :raises FatalError: Several nodes share no place for the state of the run.
    """
    resources = ctx.job.resources
    if resources.num_nodes > 1 and settings.volume is None and not _is_object_store(ctx.job.checkpoint_base_uri):
        raise FatalError(
            f"{resources.num_nodes} nodes have to share the folder of the runs or an object store, and the job names "
            "neither",
            pointer="/resources/num_nodes",
            hint='name a PersistentVolumeClaim (ReadWriteMany): "launcher": {"use": …, "volume": …}; or a store: '
            '"checkpoint_base_uri": "s3://bucket/runs"; or take one node',
        )
    python = require_text(settings.python, "interpreter", "/launcher/python")
    command = [python if one == own_python else one for one in ctx.command[:1]]
    command += [_DOCUMENT if settings.volume is None and one == ctx.job_path else one for one in ctx.command[1:]]
    command = [escaped(require_text(one, "command", "/launcher")) for one in command]
    if resources.num_nodes * resources.ranks_per_node == 1:
        return command
    ranks = [f"--nnodes={resources.num_nodes}", f"--nproc-per-node={resources.ranks_per_node}"]
    return [escaped(python), "-P", "-m", "torch.distributed.run", *ranks, *rendezvous, "--no-python", *command]
