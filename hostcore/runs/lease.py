"""The lease of a run: its supervisor renews it, so that two never run it at once."""

import os
import socket
from collections.abc import Sequence
from pathlib import Path

import attrs

from hostcore.runs.documents import (
    CorruptDocument,
    UnreadableDocument,
    from_document,
    lives,
    read_document,
    write_document,
)
from hostcore_builtin_plugins.processes import boot_id, pid_namespace, proc_stat, shares_pids

RENEW_SECONDS = 5.0


def _start_time(pid: int) -> int | None:
    """Return the start of a process in clock ticks since boot; 0 if that is not known.

    None if it does not run; a zombie does not.
    """
    try:
        state, ticks = proc_stat(pid)
    except ProcessLookupError:  # it ended between the opening and the reading
        return None
    except FileNotFoundError:  # without /proc, or where it hides the processes of others, existence has to do
        return 0 if lives(pid) else None
    return None if state in "ZX" else ticks


@attrs.frozen(kw_only=True)
class ProcessIdentity:
    """A process, distinguished from a later one with the same number."""

    host: str
    boot_id: str
    pid: int
    #: In clock ticks since boot.
    start_time: int
    #: Empty where it is not known, and in what an earlier hostcore has written.
    pid_namespace: str = ""

    @classmethod
    def current(cls) -> "ProcessIdentity":
        """Return the identity of this process."""
        pid = os.getpid()
        return cls(
            host=socket.gethostname(),
            boot_id=boot_id(),
            pid=pid,
            start_time=_start_time(pid) or 0,
            pid_namespace=pid_namespace(),
        )

    @property
    def is_here(self) -> bool:
        """Return whether its number counts here: it is or was a process of this boot and this PID namespace."""
        return shares_pids(self.host, self.boot_id, self.pid_namespace)

    @property
    def runs(self) -> bool:
        """Return whether it still runs; only for a process that :attr:`is_here`."""
        return _start_time(self.pid) in (0, self.start_time)


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
    #: The process number of each rank's worker; None for a worker that another machine has started.
    workers: Sequence[int | None] = attrs.field(factory=list)

    def write(self, path: Path) -> None:
        """Replace the lease."""
        write_document(path, attrs.asdict(self))

    @classmethod
    def read(cls, path: Path) -> "Lease | None":
        """Read the lease of a run; None if it has none, or a damaged one: a lease is advice."""
        try:
            return from_document(cls, read_document(path), file=path)
        except (FileNotFoundError, CorruptDocument, UnreadableDocument):
            return None
