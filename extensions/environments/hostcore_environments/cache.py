"""The environments of this machine, each under a key that says all that is in it.

::

    <folder>/<key>/                a virtual environment, complete: it was renamed to this name when it was
    <folder>/<key>/environment.json    what it is
    <folder>/<key>.<…>.building/   one that is built now, or that a killed process has left; used by no run
    <folder>/<key>.lock            held alone while it is built or removed, and shared by the runs that use it
    <folder>/resolutions/          what requirements were resolved to, for a while
    <folder>/logs/                 what uv said

An environment is never changed. The kernel gives locks back when a process ends, however that is.
"""

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, Final

import attrs

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
#: The ending of what is not complete.
BUILDING: Final = ".building"

#: The locks of the environments that this process uses, open until it ends.
_in_use: list[IO[bytes]] = []


class InvalidSetting(HostcoreError):
    """A variable of the environment says what makes no sense."""

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
    """``HOSTCORE_ENVIRONMENTS_DIR``; else ``hostcore/environments`` in the user's cache (XDG_CACHE_HOME)."""
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named).absolute()
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "hostcore" / "environments"


class EnvironmentCache:
    """The environments in a folder, which is made when the first is built."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder()
        self.resolutions = self.folder / "resolutions"

    def log(self) -> Path:
        """A file for what uv says, of which the newest are kept."""
        logs = self.folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        for old in sorted(logs.iterdir())[: -most_kept()]:
            old.unlink(missing_ok=True)
        return logs / f"{time.strftime('%Y%m%d-%H%M%S')}.{os.getpid()}.log"

    def get(self, key: str, build: Callable[[Path], dict[str, Any]], *, wait: Callable[[], object]) -> Path:
        """The folder of an environment, which this process uses until it ends.

        :param build: Builds it in a folder, and says what it is; called if there is none.
        :param wait: Called before another process is waited for that builds it.
        """
        most_bytes()  # what is wrong with it is told before anything is built
        self.folder.mkdir(parents=True, exist_ok=True)
        place = self.folder / key
        with ExitStack() as unless_used:
            lock = unless_used.enter_context((self.folder / f"{key}.lock").open("ab"))
            while True:
                _lock(lock, fcntl.LOCK_SH, wait)
                if (place / _RECORD).exists():
                    os.utime(place / _RECORD)
                    _in_use.append(lock)
                    unless_used.pop_all()
                    return place
                _lock(lock, fcntl.LOCK_EX, wait)
                if not (place / _RECORD).exists():  # another process may have built it in between
                    self._build(key, build)
                    self._trim()

    def _build(self, key: str, build: Callable[[Path], dict[str, Any]]) -> None:
        self._clear(key)
        # A name that no earlier build had: a uv may live longer than the process that was killed, and write on.
        unfinished = self.folder / f"{key}.{secrets.token_hex(4)}{BUILDING}"
        try:
            record = build(unfinished)
            write_document(unfinished / _RECORD, {**record, "built_ms": time.time_ns() // 1_000_000})
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        os.sync()
        unfinished.rename(self.folder / key)

    def all(self) -> list[CachedEnvironment]:
        """Those that are there, the last used first."""
        return sorted(map(self._read, self._records()), key=lambda one: one.used_ms, reverse=True)

    def _records(self) -> list[Path]:
        return [one for one in self.folder.glob(f"*/{_RECORD}") if one.parent.suffix != BUILDING]

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
        with (self.folder / f"{key}.lock").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            with suppress(FileNotFoundError):
                # A removal that is killed leaves nothing that is used either.
                (self.folder / key).rename(self.folder / f"{key}.{secrets.token_hex(4)}{BUILDING}")
            self._clear(key)
        return True

    def _clear(self, key: str) -> None:
        """Remove what killed processes have left of an environment."""
        for left in self.folder.glob(f"{key}.*{BUILDING}"):
            shutil.rmtree(left, ignore_errors=True)

    def _trim(self) -> None:
        """Remove the least recently used ones, if there are more than are kept, or they are larger together."""
        size = 0
        for place, one in enumerate(self.all()):
            size += one.size
            if place >= most_kept() or size > most_bytes():
                self.remove(one.key)


def _lock(lock: IO[bytes], how: int, wait: Callable[[], object]) -> None:
    """Lock a file, in place of how it was locked.

    :param wait: Called before another process is waited for.
    """
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        wait()
        fcntl.flock(lock, how)


def most_kept() -> int:
    """How many environments are kept.

    :raises InvalidSetting: When the variable is no such number.
    """
    return _whole_number(KEPT_VARIABLE, KEPT, "environments")


def most_bytes() -> int:
    """How many bytes they may have together.

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
