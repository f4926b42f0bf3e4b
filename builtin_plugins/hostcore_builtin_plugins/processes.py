"""Processes of this machine: their identity, their descendants, and their end."""

import os
import re
import signal
import socket
import sys
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

#: While they are killed, they may start others.
_ROUNDS: Final = 5


@attrs.frozen(kw_only=True)
class ListedProcess:
    """A process as the system lists it."""

    #: When it started, in the system's own terms: with the pid, it tells it apart from every other process.
    started: str
    #: Dead, and waiting for its parent to ask how it ended.
    is_zombie: bool


def look(pid: int) -> ListedProcess | None:
    """Return a process of this machine; None if there is none of that number."""
    try:
        state, ticks = proc_stat(pid)
    except (FileNotFoundError, ProcessLookupError):
        return None if Path("/proc/self/stat").exists() else _look_without_proc(pid)
    return ListedProcess(started=f"{boot_id()} {ticks}", is_zombie=state in "ZX")


def proc_stat(pid: int) -> tuple[str, int]:
    """Return the state and the start of a process, in clock ticks since boot, as Linux lists it.

    Leases record these ticks. The seconds since 1970 that psutil has in place of them change with the clock.

    :raises FileNotFoundError, ProcessLookupError: When there is none, ``/proc`` hides it, or there is no ``/proc``.
    """
    # The command's name, which may have spaces, is in parentheses (proc_pid_stat(5)).
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode().split()
    return fields[0], int(fields[19])


def identity(pid: int) -> dict[str, Any]:
    """Return the identity of a process among those of all machines: plain JSON."""
    process = look(pid)
    started = process.started if process else ""
    return {"host": socket.gethostname(), "pid": pid, "started": started, "pid_namespace": pid_namespace()}


def boot_id() -> str:
    """The id of this boot of this machine; empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def pid_namespace() -> str:
    """The PID namespace of this process; empty where it is not known."""
    with suppress(OSError):
        if str(Path("/proc/self").readlink()) == str(os.getpid()):  # else /proc is that of another namespace
            return str(Path("/proc/self/ns/pid").readlink())
    return ""


def shares_pids(host: str, boot: str, namespace: str) -> bool:
    """Return whether the process numbers of a place are those of this process.

    Containers and machines may have one host name: boot and PID namespace have to be the same.
    """
    if sys.platform == "linux" and not (boot and namespace):
        return False
    return (host, boot, namespace) == (socket.gethostname(), boot_id(), pid_namespace())


def place_name() -> str:
    """A name of this machine, boot and PID namespace, for files whose writers are known by their process numbers."""
    host, boot, namespace = socket.gethostname(), boot_id(), pid_namespace()
    known = shares_pids(host, boot, namespace)
    told = f"{boot} {namespace}" if known else os.urandom(8).hex()  # then no other process shares it
    return f"{re.sub(r'[^A-Za-z0-9.]', '-', host)[:64]}.{zlib.crc32(told.encode()):08x}"


def is_here(identified: Mapping[str, Any]) -> bool:
    """Return whether the number of an identified process counts here."""
    if "pid_namespace" not in identified:  # of an earlier version
        return bool(identified["host"] == socket.gethostname())
    boot = identified["started"].partition(" ")[0] if sys.platform == "linux" else ""
    return shares_pids(identified["host"], boot, identified["pid_namespace"])


def seconds_since_change(path: Path) -> float:
    """Return the seconds since a file was changed, by the clock that dates its folder's files, such as a file server's.

    :raises FileNotFoundError: When there is none.
    """
    import tempfile  # slow, and a list of runs that have ended needs none

    with suppress(PermissionError):  # NFS asks for the time of what is opened
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    changed = path.stat().st_mtime
    try:
        with tempfile.TemporaryFile(dir=path.parent, prefix=".now.", suffix=".tmp") as file:
            os.utime(file.fileno())
            return os.fstat(file.fileno()).st_mtime - changed
    except OSError:  # who may only read has no other clock than this machine's
        return time.time() - changed


def runs_here(identified: Mapping[str, Any]) -> bool:
    """Return True if a process of this machine runs. A zombie does not."""
    process = look(identified["pid"])
    return process is not None and process.started == identified["started"] and not process.is_zombie


def children(pid: int) -> list[int]:
    """Return the processes that a process has started and that run."""
    return _started_by(pid, recursive=False)


def descendants(pid: int) -> list[int]:
    """Return the running processes that a process, or a descendant of it, has started; parents before children."""
    return _started_by(pid, recursive=True)


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


def _started_by(pid: int, *, recursive: bool) -> list[int]:
    import psutil  # a list of runs that have ended needs none

    found = []
    with suppress(psutil.NoSuchProcess):
        for one in psutil.Process(pid).children(recursive):
            with suppress(psutil.NoSuchProcess):
                if _status(one) != psutil.STATUS_ZOMBIE:
                    found.append(one.pid)
    return found


def _look_without_proc(pid: int) -> ListedProcess | None:
    import psutil

    try:
        process = psutil.Process(pid)
        return ListedProcess(started=str(process.create_time()), is_zombie=_status(process) == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return None


def _status(process: Any) -> str:
    """Return the status; empty for another user's process, where the system keeps it secret."""
    import psutil

    try:
        return str(process.status())
    except psutil.AccessDenied:
        return ""
