"""Quick checks before each attempt of a run: variables, open files, memory, disk. In: a plan. Out: warnings.

They take milliseconds and no process. ``hostcore doctor`` of ``hostcore-inspect`` makes the same checks among others.
"""

import difflib
import os
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import psutil

from hostcore.checkpoints.find import committed, load_record
from hostcore.runs.directory import RUNS_DIR_VARIABLE
from hostcore.supervisor.device_leases import DEVICES_DIR_VARIABLE
from hostcore.supervisor.engine import (
    ADMISSION_VARIABLE,
    MASTER_SOCKET_VARIABLE,
    START_VARIABLE,
    SUPERVISOR_VARIABLE,
)
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.workers.control_group import memory_limit
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.events import Warning

#: The variables that hostcore reads or sets.
OWN: Final = frozenset(
    {
        *("HOSTCORE_CACHE_DIR", "HOSTCORE_CONFIG", "HOSTCORE_DATABASE_URL", "HOSTCORE_SERVER"),
        *(ADMISSION_VARIABLE, DEVICES_DIR_VARIABLE, RUNS_DIR_VARIABLE),
        *(MASTER_SOCKET_VARIABLE, START_VARIABLE, SUPERVISOR_VARIABLE),
    }
)
OWN_PREFIX: Final = "HOSTCORE_"
#: Memory of a worker before it has a model: torch and its libraries.
WORKER_BYTES: Final = 500_000_000
SHARED: Final = Path("/dev/shm")  # noqa: S108 - examined, not written to
_NO_SPACE: Final = 100_000_000
_FEW_FILES: Final = 1024
_LITTLE_SHARED: Final = 512_000_000


class NoSpace(HostcoreError):
    """The disk has no room for what the run must write."""

    code = "disk.space"


def quick_warnings(plan: RunPlan) -> Iterator[Warning]:
    """Check the machine for a run that starts now.

    :raises NoSpace: When the disk cannot take the next checkpoint, and the job requires its checkpoints.
    """
    found = [("system.files", *open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))]
    if len(plan.devices.names) > 1 and SHARED.is_dir():
        found.append(("system.shared", *shared_memory(os.statvfs(SHARED))))
    for name, near in unknown_variables(os.environ):
        if near:  # any other may be meant for a program around hostcore
            found.append(("environment", f"hostcore does not know {name}", f"did you mean {near}?"))
    ranks = plan.spec.ranks if plan.spec.world_size is None else 1
    available = available_memory()
    if available < ranks * WORKER_BYTES:
        workers = "a worker takes" if ranks == 1 else f"{ranks} workers take"
        needed = f"{workers} about {size(ranks * WORKER_BYTES)} before there is a model"
        found.append(("system.memory", f"{needed}, and {size(available)} are available", "end other processes"))
    found.append(("disk.space", *_space(plan)))
    for code, finding, hint in found:
        if hint:
            yield Warning(code=code, message=f"{finding}; {hint}")


def _space(plan: RunPlan) -> tuple[str, str | None]:
    folder = plan.checkpoints_dir
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    space = space_of(nearest)
    needed = _size_of_newest(plan)
    if not space["total_bytes"]:  # a file system of the kernel's own
        return "", None
    if needed <= space["free_bytes"]:
        return (
            free_space(space) if is_full(space) else ("", None)
        )  # little room is a finding of doctor, not of each run
    finding = f"the next checkpoint needs about {size(needed)}, and {size(space['free_bytes'])} are free"
    hint = "make room, or give the run a smaller keep_checkpoints"
    if plan.spec.require_checkpoints:
        raise NoSpace(finding, pointer="/require_checkpoints", file=str(nearest), hint=hint)
    return finding, hint


def _size_of_newest(plan: RunPlan) -> int:
    """Return the size of the checkpoint that the run resumes from, which the next one resembles; 0 if unknown."""
    if records := committed(plan.checkpoints_dir):
        return records[-1].size
    parent = plan.fetched_parent or plan.spec.begins_from
    return load_record(Path(parent)).record.size if parent else 0


def open_files(soft: int) -> tuple[str, str | None]:
    """Describe the limit of open files, with a hint if it is low."""
    if soft == resource.RLIM_INFINITY:
        return "no limit", None
    return f"at most {soft:,} open at once", f"raise it: ulimit -n {_FEW_FILES * 4}" if soft < _FEW_FILES else None


def shared_memory(shared: os.statvfs_result) -> tuple[str, str | None]:
    """Describe the memory that processes can share, with a hint if it is little."""
    total, free = shared.f_blocks * shared.f_frsize, shared.f_bavail * shared.f_frsize
    hint = "ranks on GPUs and the processes of a DataLoader share memory there: docker run --shm-size=8g"
    return f"{SHARED} has {size(free)} of {size(total)} free", hint if free < _LITTLE_SHARED else None


def free_space(space: Mapping[str, Any]) -> tuple[str, str]:
    """Describe a disk, with a hint to make room.

    :param space: See :func:`space_of`.
    """
    no_names = "; no more files can be made (inodes)" if space["free_names"] == 0 else ""
    finding = f"{size(space['free_bytes'])} of {size(space['total_bytes'])} free{no_names}"
    return finding, f"make room, or choose another disk: {RUNS_DIR_VARIABLE}=/some/folder"


def is_full(space: Mapping[str, Any]) -> bool:
    """Return whether a disk has no room for a run."""
    return bool(space["free_bytes"] < _NO_SPACE or space["free_names"] == 0)


def space_of(folder: Path) -> dict[str, Any]:
    """Return the free space of the disk of a folder, and the number of files that it can still have; None: no limit."""
    disk = os.statvfs(folder)
    space = {"free_bytes": disk.f_bavail * disk.f_frsize, "total_bytes": disk.f_blocks * disk.f_frsize}
    return {**space, "free_names": disk.f_favail if disk.f_files else None}


def total_memory() -> int:
    """Return the memory of the machine, or the limit of its control group, in bytes."""
    total: int = psutil.virtual_memory().total
    return min(total, memory_limit() or total)


def available_memory() -> int:
    """Return the memory that is available without swapping, in bytes."""
    available: int = psutil.virtual_memory().available
    return min(available, total_memory())


def unknown_variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Find variables that look like hostcore's own and are not; each with the nearest known one, or nothing."""
    for name in sorted(environment):
        if name.startswith(OWN_PREFIX) and name not in OWN:
            # Without the common prefix, which would make any two alike.
            known = [own.removeprefix(OWN_PREFIX) for own in OWN]
            near = difflib.get_close_matches(name.removeprefix(OWN_PREFIX), known, n=1, cutoff=0.75)
            yield name, f"{OWN_PREFIX}{near[0]}" if near else ""


def size(count: float) -> str:
    """Format bytes for people: ``24.1 GB``, ``64 MB``."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count / 1e3:.3g} kB"
