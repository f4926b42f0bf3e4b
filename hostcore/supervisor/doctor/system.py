"""Cores, memory, open files: what this process may take of the machine."""

import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hostcore.supervisor.doctor.finding import Finding, size
from hostcore.supervisor.workers.control_group import core_quota, memory_limit

#: Of a worker before it has a model: torch and what it brings.
WORKER_BYTES: Final = 500_000_000
_LITTLE_MEMORY: Final = 2_000_000_000
_FEW_FILES: Final = 1024
_LITTLE_SHARED: Final = 512_000_000
SHARED: Final = Path("/dev/shm")  # noqa: S108 - what is looked at, not written to


def system_findings() -> Iterator[Finding]:
    """All of them."""
    yield cores_finding(usablecores_finding(), core_quota())
    yield memory_finding(available_memory(), memory_limit())
    yield files_finding(*resource.getrlimit(resource.RLIMIT_NOFILE))
    if SHARED.is_dir():
        yield shared_finding(os.statvfs(SHARED))


def usablecores_finding() -> int:
    """The cores that this process may run on."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def total_memory() -> int:
    """Of the machine, or of its control group if that gets less; bytes."""
    total: int = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(total, memory_limit() or total)


def available_memory() -> int | None:
    """What can be taken without swapping, as the kernel estimates it; bytes. None where it does not."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:  # another system
        return None
    values = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return min(int(values[0]) * 1024, total_memory()) if values else None


def cores_finding(usable: int, quota: float | None) -> Finding:
    """The cores that this process may use, and the time that its control group leaves it of them."""
    details = {"cores": os.cpu_count(), "usable": usable, "quota": quota}
    if quota is not None and quota < usable and "OMP_NUM_THREADS" not in os.environ:
        return Finding(
            name="system.cores",
            status="warning",
            finding=f"{usable} cores, but a limit of {quota:.3g} cores' worth of time: torch starts too many threads",
            hint=f"set OMP_NUM_THREADS={max(1, round(quota))}",
            details=details,
        )
    limited = f", limited to {quota:.3g} cores' worth of time" if quota is not None and quota < usable else ""
    return Finding(name="system.cores", status="ok", finding=f"{usable} usable{limited}", details=details)


def memory_finding(available: int | None, limit: int | None) -> Finding:
    """The memory of the machine or of the control group, and how much of it is available, in bytes."""
    total = total_memory()
    free = "" if available is None else f", {size(available)} available"
    little = available is not None and available < _LITTLE_MEMORY
    return Finding(
        name="system.memory",
        status="warning" if little else "ok",
        finding=f"{size(total)}{free}{' (a limit of the control group)' if limit == total else ''}",
        hint="a worker takes about 0.5 GB before it has a model: end other processes" if little else None,
        details={"total_bytes": total, "available_bytes": available, "limit_bytes": limit},
    )


def files_finding(soft: int, hard: int) -> Finding:
    """Whether enough files can be open at once.

    :param soft: The limit.
    :param hard: How far it can be raised.
    """
    few = soft != resource.RLIM_INFINITY and soft < _FEW_FILES
    return Finding(
        name="system.files",
        status="warning" if few else "ok",
        finding="no limit" if soft == resource.RLIM_INFINITY else f"at most {soft:,} open at once",
        hint=f"raise it: ulimit -n {_FEW_FILES * 4}" if few else None,
        details={"soft": soft, "hard": hard},
    )


def shared_finding(shared: os.statvfs_result) -> Finding:
    """Whether there is enough memory that processes can share."""
    total, free = shared.f_blocks * shared.f_frsize, shared.f_bavail * shared.f_frsize
    little = free < _LITTLE_SHARED
    return Finding(
        name="system.shared",
        status="warning" if little else "ok",
        finding=f"{SHARED} has {size(free)} of {size(total)} free",
        hint="ranks on GPUs and the processes of a DataLoader share memory there: docker run --shm-size=8g"
        if little
        else None,
        details={"total_bytes": total, "free_bytes": free},
    )
