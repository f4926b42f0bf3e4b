"""Checks of cores, memory and open files."""

import os
import resource
import sys
from collections.abc import Iterator
from typing import Final

from hostcore.supervisor.quick_checks import SHARED, available_memory, open_files, shared_memory, size, total_memory
from hostcore.supervisor.workers.control_group import core_quota, memory_limit
from hostcore_inspect.doctor.finding import DoctorFinding, Status

_LITTLE_MEMORY: Final = 2_000_000_000


def system_findings() -> Iterator[DoctorFinding]:
    """Check all of them."""
    yield cores_finding(usable_cores(), core_quota())
    yield memory_finding(available_memory(), memory_limit())
    yield files_finding(*resource.getrlimit(resource.RLIMIT_NOFILE))
    if SHARED.is_dir():
        yield shared_finding(os.statvfs(SHARED))


def usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cores_finding(usable: int, quota: float | None) -> DoctorFinding:
    """Check the cores that this process may use, and the time limit of its control group."""
    details = {"cores": os.cpu_count(), "usable": usable, "quota": quota}
    if quota is not None and quota < usable and "OMP_NUM_THREADS" not in os.environ:
        return DoctorFinding(
            name="system.cores",
            status="warning",
            finding=f"{usable} cores, but a limit of {quota:.3g} cores' worth of time: torch starts too many threads",
            hint=f"set OMP_NUM_THREADS={max(1, round(quota))}",
            details=details,
        )
    limited = f", limited to {quota:.3g} cores' worth of time" if quota is not None and quota < usable else ""
    return DoctorFinding(name="system.cores", status="ok", finding=f"{usable} usable{limited}", details=details)


def memory_finding(available: int, limit: int | None) -> DoctorFinding:
    """Check the memory of the machine or of the control group, and its available part, in bytes."""
    total = total_memory()
    little = available < _LITTLE_MEMORY
    limited = " (a limit of the control group)" if limit == total else ""
    return DoctorFinding(
        name="system.memory",
        status="warning" if little else "ok",
        finding=f"{size(total)}, {size(available)} available{limited}",
        hint="a worker takes about 0.5 GB before it has a model: end other processes" if little else None,
        details={"total_bytes": total, "available_bytes": available, "limit_bytes": limit},
    )


def files_finding(soft: int, hard: int) -> DoctorFinding:
    """Check the limit of open files.

    :param soft: The limit.
    :param hard: The highest limit that this process may set.
    """
    finding, hint = open_files(soft)
    status: Status = "warning" if hint else "ok"
    return DoctorFinding(
        name="system.files", status=status, finding=finding, hint=hint, details={"soft": soft, "hard": hard}
    )


def shared_finding(shared: os.statvfs_result) -> DoctorFinding:
    """Check the memory that processes can share."""
    total, free = shared.f_blocks * shared.f_frsize, shared.f_bavail * shared.f_frsize
    finding, hint = shared_memory(shared)
    status: Status = "warning" if hint else "ok"
    details = {"total_bytes": total, "free_bytes": free}
    return DoctorFinding(name="system.shared", status=status, finding=finding, hint=hint, details=details)
