"""Processes of this machine: what tells one apart, which descend from another, and how all of them are ended."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

#: While they are killed, they may start others.
_ROUNDS: Final = 5


@attrs.frozen(kw_only=True)
class Process:
    """A process as the system lists it."""

    #: When it started, in the system's own terms: with the pid, it tells it apart from every other process.
    started: str
    #: Dead, and waiting for its parent to ask how it ended.
    is_zombie: bool


def look(pid: int) -> Process | None:
    """A process of this machine; None if there is none of that number."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None if Path("/proc/self/stat").exists() else _look_with_ps(pid)
    # The command's name, which may have spaces, is in parentheses (proc_pid_stat(5)).
    state, *fields = stat.rpartition(b")")[2].decode().split()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return Process(started=f"{boot} {fields[18]}", is_zombie=state in "ZX")


def identity(pid: int) -> dict[str, Any]:
    """What tells a process apart from all others, of all machines: plain JSON."""
    process = look(pid)
    return {"host": socket.gethostname(), "pid": pid, "started": process.started if process else ""}


def runs_here(identified: Mapping[str, Any]) -> bool:
    """Whether a process of this machine runs. A zombie does not."""
    process = look(identified["pid"])
    return process is not None and process.started == identified["started"] and not process.is_zombie


def children(pid: int) -> list[int]:
    """The processes that a process has started and that run."""
    return [child for child, parent in _parents() if parent == pid]


def descendants(pid: int) -> list[int]:
    """The processes that a process, or one of these, has started, and that run; the nearest first."""
    by_parent: dict[int, list[int]] = {}
    for child, parent in _parents():
        by_parent.setdefault(parent, []).append(child)
    found = [pid]
    for one in found:
        found.extend(by_parent.get(one, ()))
    return found[1:]


def kill_all(pid: int) -> None:
    """Kill a process and all that descends from it, whatever sessions and groups they have made."""
    for _ in range(_ROUNDS):
        known = [pid, *descendants(pid)]
        for one in known:
            send(one, signal.SIGKILL)
        if len(known) == 1:
            return


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _look_with_ps(pid: int) -> Process | None:
    asked = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
    )
    state, _, started = asked.stdout.strip().partition(" ")
    return Process(started=started.strip(), is_zombie=state.startswith("Z")) if started else None


def _parents() -> Iterator[tuple[int, int]]:
    """Every process that runs, with its parent."""
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, check=True, text=True)
        for line in listed.stdout.splitlines():
            pid, parent, state = line.split()
            if not state.startswith("Z"):
                yield int(pid), int(parent)
        return
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                # The command's name, which may have spaces, is in parentheses (proc_pid_stat(5)).
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                if fields[0] not in (b"Z", b"X"):
                    yield int(entry.name), int(fields[1])
