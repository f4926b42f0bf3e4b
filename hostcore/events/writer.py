"""The log that one rank appends to."""

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from hostcore.events.codec import encode_payload
from hostcore.events.folder_sync import sync_folder
from hostcore_hookspecs.events import Payload


def now_ms() -> int:
    """The wall clock in milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


def append_lines(descriptor: int, lines: bytes) -> None:
    """Append whole lines with one system call, so that readers never see two lines mixed.

    :raises OSError: When the disk is full. If a part of them still fitted, it is taken back.
    """
    written = os.write(descriptor, lines)
    if written != len(lines):
        os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class RankLog:
    """``logs/rank-<rank>.attempt-<attempt>.jsonl``, appended to by that rank alone, from any of its threads."""

    def __init__(self, path: Path, *, clock: Callable[[], int] = now_ms) -> None:
        self.path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        sync_folder(path.parent)

    def write(self, payload: Payload, *, step: int | None = None, epoch: int | None = None) -> None:
        """Append an event.

        :raises OSError: When it cannot be written, for instance because the disk is full.
        """
        line = encode_payload(payload, time_ms=self._clock(), step=step, epoch=epoch)
        with self._lock:  # a line that did not fit is taken back, and must be the last one
            append_lines(self._descriptor, line)

    def sync(self) -> None:
        """Wait until everything written is on the disk."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Sync and close. What another thread still writes is refused, and never lands in a file opened later."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
        os.fsync(descriptor)
        os.close(descriptor)
