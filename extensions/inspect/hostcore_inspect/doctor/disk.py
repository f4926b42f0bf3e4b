"""The disk under the runs folder."""

import errno
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from hostcore.probe import Answer
from hostcore.runs.directory import RUNS_DIR_VARIABLE
from hostcore.supervisor.quick_checks import free_space, is_full
from hostcore_inspect.doctor.finding import DoctorFinding, Status

_LITTLE_SPACE: Final = 10_000_000_000
_SLOW_SECONDS: Final = 0.5
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs", "devtmpfs"})
_NETWORK: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "lustre", "gpfs", "beegfs", "afs", "9p", "glusterfs", "virtiofs"}
)
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def disk_findings(answer: Answer, folder: Path) -> Iterator[DoctorFinding]:
    """Judge the answer of the probe.

    :param folder: Of all runs.
    """
    yield _write(answer, folder)
    space = answer.last("space")
    if space and space["total_bytes"]:  # file systems of the kernel's own have none
        yield space_finding(space)
    if kind := answer.last("kind"):
        yield _kind(kind)


def _write(answer: Answer, folder: Path) -> DoctorFinding:
    written = answer.last("written")
    if answer.trouble or written is None:
        full = answer.last("errno") in _FULL
        chosen = "make room, or choose another disk" if full else "choose another folder"
        return DoctorFinding(
            name="disk.write",
            status="failed",
            finding=f"{folder} cannot be written: {answer.trouble}",
            hint=f"{chosen}: {RUNS_DIR_VARIABLE}=/some/folder",
            details={"folder": str(folder), "file": answer.last("file")},
            hung=answer.hung,
        )
    slow = written["commit_seconds"] > _SLOW_SECONDS
    speed = f"{written['bytes'] / written['seconds'] / 1e6:,.0f} MB/s"
    return DoctorFinding(
        name="disk.write",
        status="warning" if slow else "ok",
        finding=f"{folder}: {speed}, and {1e3 * written['commit_seconds']:.3g} ms until a small file is there for good",
        hint=f"checkpoints take long here; a local disk is faster: {RUNS_DIR_VARIABLE}=/some/folder" if slow else None,
        details={"folder": str(folder), **written},
    )


def space_finding(space: Mapping[str, Any]) -> DoctorFinding:
    """Check the free space; see :func:`hostcore.supervisor.quick_checks.space_of`."""
    finding, hint = free_space(space)
    little = space["free_bytes"] < _LITTLE_SPACE
    status: Status = "failed" if is_full(space) else "warning" if little else "ok"
    return DoctorFinding(
        name="disk.space", status=status, finding=finding, hint=None if status == "ok" else hint, details=space
    )


def _kind(kind: str) -> DoctorFinding:
    status: Status = "ok"
    finding, hint = kind, None
    if kind in _IN_MEMORY:
        status, finding = "warning", f"{kind}: in memory, gone when the machine restarts"
        hint = f"choose a folder on a disk: {RUNS_DIR_VARIABLE}=/some/folder"
    elif kind in _NETWORK or kind.startswith("fuse."):
        status, finding = "warning", f"{kind}: over the network; as sure and as quick as its server"
        hint = f"for one machine, a local disk is quicker: {RUNS_DIR_VARIABLE}=/some/folder"
    return DoctorFinding(name="disk.kind", status=status, finding=finding, hint=hint, details={"kind": kind})
