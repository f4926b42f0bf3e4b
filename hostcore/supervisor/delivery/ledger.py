"""The ledger of uploads, ``uploads.jsonl``: what has arrived where, one line for each file.

It is appended to by one process at a time, which holds a lock on it as long as it lives. A line is about what lies at
the destination now under a path, so the newest line of a path counts. What arrived but is not written down, because the
process was killed in between, is offered to the uploader again, and that looks first.
"""

import errno
import fcntl
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson

from hostcore.events.strict_json import dump
from hostcore.events.writer import append_lines, now_ms
from hostcore.supervisor.delivery.subscription import Destination
from hostcore.supervisor.delivery.units import Unit, UnitFile
from hostcore_hookspecs.errors import HostcoreError

#: Errors of a file system that has no locks.
_LOCKLESS: Final = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})


class LedgerBusy(HostcoreError):
    """Another process uploads this run now."""

    code = "uploads.busy"


class Ledger:
    """The ledger, held by this process.

    :param path: Created if missing.
    :param attempt: Which one writes.
    :raises LedgerBusy: When another process holds it.
    :raises OSError: When it cannot be opened.
    """

    def __init__(self, path: Path, *, attempt: int, clock: Callable[[], int] = now_ms) -> None:
        self._attempt = attempt
        self._clock = clock
        self._lock = threading.Lock()
        #: The SHA-256 of what lies there, by place and path.
        self._arrived: dict[tuple[str, str], str] = {}
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            self._hold(path)
            self._read(path)
        except BaseException:
            os.close(self._descriptor)
            raise

    def _hold(self, path: Path) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LedgerBusy(
                "another process uploads this run now",
                file=str(path),
                hint="wait until it has ended; what is left then is uploaded by the next one",
            ) from error
        except OSError as error:
            if error.errno not in _LOCKLESS:
                raise

    def _read(self, path: Path) -> None:
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):  # its writer was killed
            os.ftruncate(self._descriptor, whole)
        for line in content[:whole].splitlines():
            with suppress(orjson.JSONDecodeError, KeyError, TypeError):  # what another version has written
                found: Mapping[str, Any] = orjson.loads(line)
                self._arrived[found["place"], found["path"]] = found["sha256"]

    def knows(self, place: str, file: UnitFile) -> bool:
        """Return True if a file has arrived at a place, and nothing else under its name since."""
        return self._arrived.get((place, file.relative_path)) == file.sha256

    def knows_all(self, place: str, unit: Unit) -> bool:
        """Return True if a unit has arrived at a place as a whole."""
        return all(self.knows(place, file) for file in unit.all_files)

    def note(self, to: Destination, unit: Unit, file: UnitFile, *, uri: str) -> None:
        """Write down that a file has arrived; nothing after :meth:`close`.

        :raises OSError: When it cannot be written; this process knows it all the same.
        """
        line = {
            "time_ms": self._clock(),
            "attempt": self._attempt,
            "uploader": to.name,
            "place": to.key,
            "path": file.relative_path,
            "size": file.size,
            "sha256": file.sha256,
            "uri": uri,
            "step": unit.step,
        }
        with self._lock:
            if self._descriptor < 0:
                return
            self._arrived[to.key, file.relative_path] = file.sha256
            append_lines(self._descriptor, dump(line))

    def sync(self) -> None:
        """Bring what was written to the disk.

        :raises OSError: When the disk refuses.
        """
        with self._lock:
            if self._descriptor < 0:
                return
            copy = os.dup(self._descriptor)  # a disk that takes its time must not keep the others
        try:
            os.fsync(copy)
        finally:
            os.close(copy)

    def close(self) -> None:
        """Let go of it, so that another process may hold it."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
