"""Bringing files here: several at once, checked, on the disk when it returns, and nothing of them if it fails.

A transfer is stalled when its store gives nothing for ``STALL_SECONDS``. Progress is a byte that the file system
reports, or a file that grows on the disk: ``file://`` and ``sftp://`` copy without a report. While this machine hashes
a file or syncs it, no store is waited for, and the time does not count.
"""

import hashlib
import os
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
from fsspec.callbacks import Callback

from hostcore_builtin_plugins.background import in_background
from hostcore_builtin_plugins.control_characters import visible
from hostcore_builtin_plugins.stores.errors import StoreFull, Unreachable, WrongContent, is_no_space, store_errors
from hostcore_builtin_plugins.stores.filesystems import is_thread_safe

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_THREADS: Final = 8
_TRIES: Final = 3
#: A transfer without progress for so long will not be finished.
STALL_SECONDS: Final = 120.0
_TICK_SECONDS: Final = 0.2
#: The time that the other threads have to stop when one has failed.
_JOIN_SECONDS: Final = 5.0
#: Before the second try; longer before each further one.
PAUSE_SECONDS: Final = 0.5
#: Errors that another try does not mend.
_FINAL: Final = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError)


@contextmanager
def shown_progress(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error, if that is a terminal.

    :param total: In bytes; None: not known.
    :return: A function to call with the number of bytes that have arrived.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(visible(label, one_line=True), total=total)
        yield lambda done: progress.update(task, completed=done)


@attrs.frozen(kw_only=True)
class Wanted:
    """A file to bring here."""

    #: Within its file system.
    source: str
    #: Its name in messages.
    uri: str
    target: Path
    #: In bytes; None: not known.
    size: int | None = None
    #: In lower-case hexadecimal; empty: not known.
    sha256: str = ""


def bring(
    filesystem: "AbstractFileSystem",
    wanted: Sequence[Wanted],
    *,
    label: str,
    pointer: str | None = None,
    stall_seconds: float = STALL_SECONDS,
) -> list[str]:
    """Bring files here. On failure, the caller removes the folder that they go to.

    :param label: The text of the progress bar, which a terminal shows.
    :param pointer: The place in the job that names them.
    :param stall_seconds: Without progress; see the module.
    :return: The SHA-256 of each, in the order of ``wanted``.
    :raises WrongContent: A file has another size or checksum than it should.
    :raises Unreachable: Nothing arrives any more.
    :raises StoreError: A file cannot be read, or there is no room.
    """
    if not wanted:
        return []
    _require_room(wanted, pointer)
    transfer = _Transfer(filesystem, wanted, pointer)
    threads = min(_THREADS, len(wanted)) if is_thread_safe(filesystem) else 1
    with shown_progress(label, sum(one.size or 0 for one in wanted) or None) as show:
        try:
            transfer.run(threads, show, stall_seconds)
        except Exception:
            transfer.cancelled.set()
            transfer.join()
            raise
        finally:
            transfer.cancelled.set()  # also when the user has had enough: they stop at their next block
    return [transfer.digests[number] for number in range(len(wanted))]


def _require_room(wanted: Sequence[Wanted], pointer: str | None) -> None:
    target = wanted[0].target
    folder = next(place for place in target.parents if place.is_dir())
    needed, free = sum(one.size or 0 for one in wanted), shutil.disk_usage(folder).free
    if needed > free:
        raise StoreFull(
            f"{needed:,} bytes are to be brought here, and {folder} has room for {free:,}",
            pointer=pointer,
            file=str(folder),
            hint="make room, or set HOSTCORE_CACHE_DIR or HOSTCORE_RUNS_DIR to a folder on another disk",
        )


class _Transfer:
    """The files of one call, and the threads that bring them."""

    def __init__(self, filesystem: "AbstractFileSystem", wanted: Sequence[Wanted], pointer: str | None) -> None:
        self._filesystem = filesystem
        self._pointer = pointer
        self._wanted = wanted
        self._waiting = deque(enumerate(wanted))
        self._lock = threading.Lock()
        self._moved = 0
        #: The files that the store is asked for now.
        self._arriving: set[Path] = set()
        #: The number of threads that hash a file, or sync it.
        self._at_disk = 0
        self._threads: list[Future[None]] = []
        self.cancelled = threading.Event()
        self.digests: dict[int, str] = {}

    def run(self, threads: int, show: Callable[[int], None], stall_seconds: float) -> None:
        """Bring all of them."""
        self._threads = [in_background(self._work, f"hostcore fetch {number + 1}") for number in range(threads)]
        seen: object = None
        seen_at = time.monotonic()
        working = set(self._threads)
        while working:
            done, working = wait(working, _TICK_SECONDS, FIRST_EXCEPTION)
            for thread in done:
                thread.result()
            now, progress = time.monotonic(), self._progress()
            if self._at_disk or progress != seen:
                seen, seen_at = progress, now
            elif now - seen_at > stall_seconds:
                raise self._stalled(stall_seconds)
            show(self._moved)

    def _progress(self) -> object:
        """Return another value whenever something has arrived."""
        return self._moved, len(self.digests), [_size(path) for path in sorted(self._arriving.copy())]

    def join(self) -> None:
        """Wait a moment for the threads, which would make anew what the caller is about to remove."""
        wait(self._threads, _JOIN_SECONDS)

    def move(self, count: int) -> None:
        """Count bytes that have arrived.

        :raises InterruptedError: The transfer was cancelled.
        """
        if self.cancelled.is_set():
            raise InterruptedError("the transfer was cancelled")
        with self._lock:
            self._moved += count

    def _stalled(self, seconds: float) -> Unreachable:
        message = f"nothing has arrived for {seconds:g} seconds"
        hint = "look whether the store is up, and whether this machine gets there; then try again"
        waiting = next(one.uri for number, one in enumerate(self._wanted) if number not in self.digests)
        return Unreachable(message, pointer=self._pointer, file=waiting, hint=hint)

    def _work(self) -> None:
        while not self.cancelled.is_set():
            try:
                number, one = self._waiting.popleft()
            except IndexError:
                return
            with store_errors(one.uri, pointer=self._pointer):
                self.digests[number] = self._bring(one)

    def _bring(self, one: Wanted) -> str:
        one.target.parent.mkdir(parents=True, exist_ok=True)
        for tried in range(1, _TRIES + 1):
            counter = _Counter(self)
            try:
                self._receive(one, counter)
                with self._disk_work():
                    digest = _checked(one, self._pointer)
            except Exception as error:
                self.move(-counter.counted)
                tries = 2 if isinstance(error, WrongContent) else _TRIES
                if tried >= tries or isinstance(error, _FINAL) or is_no_space(error):
                    raise
                if self.cancelled.wait(PAUSE_SECONDS * tried):
                    raise
            else:
                with self._disk_work(), one.target.open("rb") as file:
                    os.fsync(file.fileno())
                return digest
        raise AssertionError("the last try has returned or raised")

    def _receive(self, one: Wanted, counter: "_Counter") -> None:
        self._arriving.add(one.target)
        try:
            self._filesystem.get_file(one.source, str(one.target), callback=counter)
        finally:
            self._arriving.remove(one.target)
        counter.absolute_update(one.target.stat().st_size)  # some file systems report nothing

    @contextmanager
    def _disk_work(self) -> Iterator[None]:
        """Keep the time from counting while it is entered: no store is waited for."""
        with self._lock:
            self._at_disk += 1
        try:
            yield
        finally:
            with self._lock:
                self._at_disk -= 1


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # not begun


def _checked(one: Wanted, pointer: str | None) -> str:
    size = one.target.stat().st_size
    if one.size is not None and size != one.size:
        raise WrongContent(f"{one.uri} has {one.size:,} bytes, and {size:,} arrived", pointer=pointer, file=one.uri)
    return checked_digest(one.target, one.sha256, uri=one.uri, pointer=pointer)


def checked_digest(path: Path, sha256: str, *, uri: str, pointer: str | None) -> str:
    """Return the SHA-256 of a file, in hexadecimal.

    :param sha256: The expected one; empty: any.
    :param uri: The file's name in messages.
    :param pointer: The place of the expected one in the job.
    :raises WrongContent: It is another.
    """
    with path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if sha256 and digest != sha256:
        raise WrongContent(
            f"the content of {uri} is not what it should be: its SHA-256 is {digest}, not {sha256}",
            pointer=pointer,
            file=uri,
        )
    return digest


class _Counter(Callback):  # type: ignore[misc] # fsspec has no types
    """Counts the bytes of one file as they arrive."""

    def __init__(self, transfer: _Transfer) -> None:
        super().__init__()
        self._transfer = transfer
        self.counted = 0

    def relative_update(self, inc: int = 1) -> None:
        """See :class:`Callback`."""
        self._transfer.move(inc)
        self.counted += inc

    def absolute_update(self, value: int) -> None:
        """See :class:`Callback`."""
        self.relative_update(value - self.counted)

    def branch(self, path_1: Any, path_2: Any, kwargs: Any) -> None:  # noqa: ARG002
        """Count nothing apart: one file has no parts."""
        return
