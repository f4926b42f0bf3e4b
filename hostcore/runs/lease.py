"""The lease of a run: its supervisor renews it, so that two never run it at once."""

import os
import socket
import time
from pathlib import Path

import attrs

from hostcore.runs.documents import construct, lives, read_document, write_document

RENEW_SECONDS = 5.0
#: A lease of another machine that was not renewed for this long is over.
EXPIRE_SECONDS = 30.0


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux: the host's name and the start time have to do
        return ""


def _start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if it does not run (a zombie does not)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except ProcessLookupError:  # it ended between the opening and the reading
        return None
    except FileNotFoundError:  # without /proc there is no start time; whether the process exists has to do
        return None if Path("/proc/self/stat").exists() or not lives(pid) else 0
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])


@attrs.frozen(kw_only=True)
class ProcessIdentity:
    """A process, told apart from a later one with the same number."""

    host: str
    boot_id: str
    pid: int
    #: In clock ticks since boot.
    start_time: int

    @classmethod
    def current(cls) -> "ProcessIdentity":
        """The process that asks."""
        pid = os.getpid()
        return cls(host=socket.gethostname(), boot_id=_boot_id(), pid=pid, start_time=_start_time(pid) or 0)

    @property
    def is_here(self) -> bool:
        """Whether it is or was a process of this machine."""
        return self.host == socket.gethostname()

    @property
    def runs(self) -> bool:
        """Whether it still runs; only for a process of this machine."""
        return self.boot_id == _boot_id() and _start_time(self.pid) == self.start_time


@attrs.frozen(kw_only=True)
class Lease:
    """``lease.json``."""

    process: ProcessIdentity
    attempt: int
    #: Finished steps when it was renewed.
    step: int
    #: When the step last advanced, in milliseconds since 1970.
    last_progress_ms: int
    #: When it was renewed, in milliseconds since 1970.
    renewed_ms: int

    def write(self, path: Path) -> None:
        """Replace the lease."""
        write_document(path, attrs.asdict(self))

    @classmethod
    def read(cls, path: Path) -> "Lease | None":
        """The lease of a run; None if it has none.

        :raises CorruptDocument: When the file is not a lease.
        """
        try:
            found = read_document(path)
        except FileNotFoundError:
            return None
        process = construct(ProcessIdentity, found.get("process"), file=path)
        return construct(cls, {**found, "process": process}, file=path)

    @property
    def is_live(self) -> bool:
        """Whether its holder still runs the run, as far as this machine can tell."""
        if self.process.is_here:
            return self.process.runs
        return time.time() - self.renewed_ms / 1000 < EXPIRE_SECONDS
