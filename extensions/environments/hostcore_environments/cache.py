"""The environments of this machine, each under a key derived from its contents.

::

    <folder>/<key>/                a virtual environment, complete: it was renamed to this name when it was
    <folder>/<key>/environment.json    its description
    <folder>/<key>.<…>.building/   one that is built now, or that a killed process has left; used by no run
    <folder>/<key>.lock            held alone while it is built or removed, and shared by the runs that use it
    <folder>/resolutions/          what requirements were resolved to, for a while
    <folder>/logs/                 output of uv

An environment is never changed. The kernel gives locks back when a process ends, however that is.
"""

import ctypes
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

import attrs

from hostcore.runs.directory import user_cache
from hostcore.runs.documents import read_document, write_document
from hostcore_hookspecs.errors import HostcoreError

FOLDER_VARIABLE: Final = "HOSTCORE_ENVIRONMENTS_DIR"
#: How many are kept; the least recently used are removed when another one is built.
KEPT_VARIABLE: Final = "HOSTCORE_ENVIRONMENTS_KEPT"
KEPT: Final = 10
#: How many gigabytes (10⁹ bytes) they may have together before the least recently used are removed.
MOST_GB_VARIABLE: Final = "HOSTCORE_ENVIRONMENTS_MAX_GB"
MOST_GB: Final = 50
_RECORD: Final = "environment.json"
#: A link to the Python that the environment was made with, which may be uninstalled one day.
_PYTHON: Final = Path("bin", "python")
#: The ending of what is not complete.
BUILDING: Final = ".building"
#: Seconds between messages about a wait for another process, and between tries of its lock.
TOLD_SECONDS: Final = 3.0
_ASKED_SECONDS: Final = 0.1

#: The locks of the environments that this process uses, open until it ends.
_in_use: list[IO[bytes]] = []


class InvalidSetting(HostcoreError):
    """A variable of the environment has an invalid value."""

    code = "environment.setting"


@attrs.frozen(kw_only=True)
class CachedEnvironment:
    """An environment that is there."""

    key: str
    folder: Path
    #: The requirements or the lock that it was first built for.
    made_for: Sequence[str]
    #: The version of Python.
    python: str
    #: In milliseconds since 1970.
    built_ms: int
    used_ms: int
    #: Bytes on the disk; files that it shares with uv's cache or other environments are counted in each.
    size: int

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {**attrs.asdict(self), "folder": str(self.folder)}


def cache_folder() -> Path:
    """``HOSTCORE_ENVIRONMENTS_DIR``; else ``hostcore/environments`` in the user's cache."""
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named).absolute()
    return user_cache() / "hostcore" / "environments"


class EnvironmentCache:
    """The environments in a folder, which is made when the first is built."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder()
        self.resolutions = self.folder / "resolutions"

    def log(self) -> Path:
        """Return a new file for uv's output; the newest files are kept."""
        logs = self.folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        for old in sorted(logs.iterdir())[: -most_kept()]:
            old.unlink(missing_ok=True)
        return logs / f"{time.strftime('%Y%m%d-%H%M%S')}.{secrets.token_hex(4)}.log"

    def get(self, key: str, build: Callable[[Path], dict[str, Any]], *, wait: Callable[[], object]) -> Path:
        """Return the folder of an environment, which this process uses until it ends.

        :param build: Builds it in a folder, and returns its description; called if there is none.
        :param wait: Called every few seconds while another process is waited for that builds it.
        """
        most_bytes()  # an invalid value is reported before anything is built
        self.folder.mkdir(parents=True, exist_ok=True)
        place = self.folder / key
        with ExitStack() as unless_used:
            lock = unless_used.enter_context(self._lock_of(key))
            while True:
                _lock(lock, fcntl.LOCK_SH, wait)
                if _is_usable(place):
                    os.utime(place / _RECORD)
                    _in_use.append(lock)
                    unless_used.pop_all()
                    return place
                _lock(lock, fcntl.LOCK_EX, wait)
                if not _is_usable(place):  # another process may have built it in between
                    self._build(key, build)
                    self._trim()

    def _lock_of(self, key: str) -> IO[bytes]:
        """Opened for both: NFS gives a shared lock only to what may read, and one of its own to what may write."""
        return (self.folder / f"{key}.lock").open("a+b")

    def _build(self, key: str, build: Callable[[Path], dict[str, Any]]) -> None:
        self._set_aside(key)
        self._clear(key)
        # A name that no earlier build had: a uv may live longer than the process that was killed, and write on.
        unfinished = self.folder / f"{key}.{secrets.token_hex(4)}{BUILDING}"
        try:
            record = build(unfinished)
            write_document(unfinished / _RECORD, {**record, "built_ms": time.time_ns() // 1_000_000})
            _flush(unfinished)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        unfinished.rename(self.folder / key)

    def all(self) -> list[CachedEnvironment]:
        """Those that are there, the last used first."""
        return sorted(self._found(), key=lambda one: one.used_ms, reverse=True)

    def _found(self) -> Iterator[CachedEnvironment]:
        for record in self.folder.glob(f"*/{_RECORD}"):
            if record.parent.suffix != BUILDING:
                with suppress(FileNotFoundError):  # another process has removed it in between
                    yield self._read(record)

    def _read(self, record: Path) -> CachedEnvironment:
        told = read_document(record)
        return CachedEnvironment(
            key=record.parent.name,
            folder=record.parent,
            made_for=tuple(told["made_for"]),
            python=told["python"],
            built_ms=told["built_ms"],
            used_ms=record.stat().st_mtime_ns // 1_000_000,
            size=_size(record.parent),
        )

    def remove(self, key: str) -> bool:
        """Remove an environment; False if a run uses it."""
        with self._alone(key) as is_alone:
            if is_alone:
                self._set_aside(key)
                self._clear(key)
        return is_alone

    def clear(self) -> list[str]:
        """Remove what builds and removals that were killed have left; what is being built stays.

        :return: The names of the folders.
        """
        left = sorted(one.name for one in self.folder.glob(f"*{BUILDING}"))
        for key in dict.fromkeys(name.partition(".")[0] for name in left):
            with self._alone(key) as is_alone:
                if is_alone:
                    self._clear(key)
        return [name for name in left if not (self.folder / name).exists()]

    @contextmanager
    def _alone(self, key: str) -> Iterator[bool]:
        """Yield whether this process has an environment for itself: no other builds, uses or removes it meanwhile."""
        with self._lock_of(key) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def _set_aside(self, key: str) -> None:
        """Take an environment its name: if this process is killed while it removes it, nothing is left that is used."""
        with suppress(FileNotFoundError):
            (self.folder / key).rename(self.folder / f"{key}.{secrets.token_hex(4)}{BUILDING}")

    def _clear(self, key: str) -> None:
        """Remove what has been left of an environment."""
        for left in self.folder.glob(f"{key}.*{BUILDING}"):
            shutil.rmtree(left, ignore_errors=True)

    def _trim(self) -> None:
        """Remove what was left; and the least recently used ones, if there are too many or they are too large."""
        self.clear()
        size = 0
        for place, one in enumerate(self.all()):
            size += one.size
            if place >= most_kept() or size > most_bytes():
                self.remove(one.key)


def _is_usable(place: Path) -> bool:
    """Return whether an environment is there, and so is the Python that it was made with."""
    return (place / _RECORD).exists() and (place / _PYTHON).exists()


def _lock(lock: IO[bytes], how: int, wait: Callable[[], object]) -> None:
    """Lock a file, in place of how it was locked.

    :param wait: Called every few seconds while another process is waited for.
    """
    due = time.monotonic()
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(lock, how | fcntl.LOCK_NB)
            return
        if time.monotonic() >= due:
            wait()
            due = time.monotonic() + TOLD_SECONDS
        time.sleep(_ASKED_SECONDS)


def _flush(folder: Path) -> None:
    """Have all that is in a folder on the disk: after a power cut its name stands for the whole of it.

    An fsync for each of tens of thousands of files takes minutes, and sync(2) waits for every disk of the machine;
    syncfs(2) is for the one file system.

    :raises OSError: When something could not be written.
    """
    opened = os.open(folder, os.O_RDONLY)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "syncfs"):  # it is Linux's alone
            os.sync()
        elif libc.syncfs(opened):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder))
    finally:
        os.close(opened)


def most_kept() -> int:
    """Return the number of environments to keep.

    :raises InvalidSetting: When the variable is no such number.
    """
    return _whole_number(KEPT_VARIABLE, KEPT, "environments")


def most_bytes() -> int:
    """Return the most bytes of all environments together.

    :raises InvalidSetting: When the variable is no such number.
    """
    return _whole_number(MOST_GB_VARIABLE, MOST_GB, "gigabytes") * 10**9


def _whole_number(variable: str, default: int, what: str) -> int:
    told = os.environ.get(variable) or str(default)
    if not told.isdecimal() or int(told) < 1:
        raise InvalidSetting(f"{variable} is {told!r}", hint=f"give a number of {what}, 1 or more")
    return int(told)


def _size(folder: Path) -> int:
    seen: dict[int, int] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                status = os.lstat(os.path.join(parent, name))  # noqa: PTH118 - tens of thousands of them
                seen[status.st_ino] = status.st_blocks * 512
    return sum(seen.values())
