"""Control group of this process: its memory, its cores, and kills for lack of memory."""

import resource
import sys
from pathlib import Path
from typing import Final

_CGROUP: Final = Path("/sys/fs/cgroup")
_MEMBERSHIP: Final = Path("/proc/self/cgroup")
_VMSTAT: Final = Path("/proc/vmstat")
#: Value for "no limit" in cgroup version 1.
_UNLIMITED: Final = 1 << 60


def oom_kills() -> int:
    """Count the processes that the kernel has killed for lack of memory: in this control group, or on the machine.

    The number itself means nothing; that it has grown does. 0 where the kernel does not count.
    """
    counters = [folder / name for folder in _folders("memory") for name in ("memory.events", "memory.oom_control")]
    return sum(_field(path, "oom_kill") for path in [_VMSTAT, *counters])


def memory_limit() -> int | None:
    """The memory that this control group may take, in bytes; None if it has no limit, or none that can be read."""
    limits = []
    for folder in _folders("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read(folder / name).strip()
            if text.isdecimal() and int(text) < _UNLIMITED:
                limits.append(int(text))
    return min(limits, default=None)


def core_quota() -> float | None:
    """Return the cores' worth of time that this control group gets; None: no limit, or none that can be read."""
    quotas = []
    for folder in _folders("cpu"):
        words = _read(folder / "cpu.max").split()  # "150000 100000", or "max 100000"
        words = words or [_read(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]  # "-1": none
        quotas += [int(words[0]) / int(words[1])] if len(words) == 2 and all(map(str.isdecimal, words)) else []
    return min(quotas, default=None)


def children_peak() -> int:
    """The largest amount of memory that a child of this process has held at once, of those that have ended; bytes."""
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _folders(controller: str) -> list[Path]:
    """Return folders of this process's control group: its own place, and the root that a container sees.

    :param controller: Version 1 of control groups has a tree for each.
    """
    folders = [_CGROUP, _CGROUP / controller]
    for line in _read(_MEMBERSHIP).splitlines():
        _, controllers, place = line.split(":", 2)
        if controllers == "":
            folders.append(_CGROUP / place.lstrip("/"))
        elif controller in controllers.split(","):
            folders.append(_CGROUP / controller / place.lstrip("/"))
    return list(dict.fromkeys(folders))


def _field(path: Path, name: str) -> int:
    for line in _read(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdecimal():
            return int(value)
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # not Linux, another version of control groups, or not ours to read
        return ""
