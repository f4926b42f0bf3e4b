"""The cache of inputs: every version of everything that was ever fetched, for all runs of this user.

::

    <cache>/inputs/<place>/<version>/content/<name>     the file or folder
                                     source.json        where it came from; without it, the rest does not count
                          .<version>.<pid>.tmp/         being fetched
                          .lock                         held by who fetches

A version appears by a rename, whole. Nothing is ever removed but what a killed process has left; clear the folder by
hand when it is too large.
"""

import errno
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore.checkpoints.durable import fsync_folder
from hostcore.runs.directory import cache_dir
from hostcore.runs.documents import CorruptDocument, UnreadableDocument, from_document, read_document, write_document

_POLL_SECONDS: Final = 0.2
_KEY_LENGTH: Final = 24


@attrs.frozen(kw_only=True)
class CachedFile:
    """One file of a cached input."""

    #: Below ``content``, with ``/``.
    path: str
    #: In bytes.
    size: int
    sha256: str
    #: When it was written here; another time means that it was changed since.
    mtime_ns: int


@attrs.frozen(kw_only=True)
class Cached:
    """``source.json``: one version of one input."""

    uri: str
    version: str
    #: The name of what the input is, in ``content``.
    name: str
    files: Sequence[CachedFile]
    #: In milliseconds since 1970.
    fetched_ms: int

    @property
    def sha256(self) -> str:
        """Of the content, if it is a single file; empty for a folder."""
        return self.files[0].sha256 if len(self.files) == 1 and self.files[0].path == self.name else ""


@attrs.frozen
class Shelf:
    """The versions of what was fetched from one place."""

    path: Path

    @classmethod
    def of(cls, uri: str, endpoint: str) -> "Shelf":
        """The shelf of a place.

        :param endpoint: Where a store of that kind is asked for; the same URI is something else elsewhere.
        """
        key = hashlib.sha256(f"{uri}\n{endpoint}".encode()).hexdigest()[:_KEY_LENGTH]
        return cls(cache_dir() / "inputs" / key)

    def version(self, version: str) -> Path:
        """The folder of a version."""
        return self.path / hashlib.sha256(version.encode()).hexdigest()[:_KEY_LENGTH]

    def temporary(self, version: str) -> Path:
        """Return the folder that this process fetches a version into."""
        return self.path / f".{self.version(version).name}.{os.getpid()}.tmp"

    def find(self, version: str) -> tuple[Cached, Path] | None:
        """A version that is here and whole, and the path of its content."""
        return _whole(self.version(version))

    def newest(self, *, sha256: str = "") -> tuple[Cached, Path] | None:
        """The version that was fetched last.

        :param sha256: What its content must have; empty: anything.
        """
        folders = self.path.iterdir() if self.path.is_dir() else iter(())
        found = [whole for folder in folders if not folder.name.startswith(".") and (whole := _whole(folder))]
        fitting = [one for one in found if not sha256 or one[0].sha256 == sha256]
        return max(fitting, key=lambda one: one[0].fetched_ms, default=None)

    @contextmanager
    def locked(self, tell: Callable[[str], object], what: str) -> Iterator[None]:
        """Hold the shelf: of all processes, one fetches, and the others wait for it."""
        self.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if _lock(descriptor, tell, what):
                for left in self.path.glob(".*.tmp"):  # of a killed process: under the lock, no other writes here
                    shutil.rmtree(left, ignore_errors=True)
            yield
        finally:
            os.close(descriptor)

    def keep(self, temporary: Path, cached: Cached) -> Path:
        """Make a fetched version appear, whole; the path of its content."""
        write_document(temporary / "source.json", attrs.asdict(cached))
        target = self.version(cached.version)
        sync_folders(temporary)
        put_in_place(temporary, target, lambda: _whole(target) is not None)
        return target / "content" / cached.name


def cached_file(path: Path, name: str, sha256: str) -> CachedFile:
    """A file as it was just fetched."""
    found = path.stat()
    return CachedFile(path=name, size=found.st_size, sha256=sha256, mtime_ns=found.st_mtime_ns)


def put_in_place(temporary: Path, target: Path, is_whole: Callable[[], bool]) -> None:
    """Give a fetched folder its name, unless a whole one has it, as when another process was first.

    :param is_whole: Returns True if the folder that has the name is whole; a damaged folder gives way.
    """
    try:
        temporary.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if not is_whole():
            aside = temporary.with_suffix(".old.tmp")
            with suppress(FileNotFoundError):  # another process has just moved it away
                target.rename(aside)
            try:
                temporary.rename(target)
            except OSError as second:
                if second.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # else that process was first
                    raise
            finally:
                shutil.rmtree(aside, ignore_errors=True)
        shutil.rmtree(temporary, ignore_errors=True)
    fsync_folder(target.parent)


def sync_folders(folder: Path) -> None:
    """Bring the names in a folder, and in those below it, to the disk."""
    for current, _, _ in os.walk(folder):
        fsync_folder(Path(current))


def _lock(descriptor: int, tell: Callable[[str], object], what: str) -> bool:
    """Wait for the lock; False where the file system has none."""
    told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not told:
                tell(f"another process is fetching {what}: waiting for it")
                told = True
            time.sleep(_POLL_SECONDS)
        except OSError:
            return False
        else:
            return True


def _whole(folder: Path) -> tuple[Cached, Path] | None:
    """A version, if every file is there as it was fetched."""
    try:
        found: dict[str, Any] = read_document(folder / "source.json")
        path = folder / "source.json"
        files = [from_document(CachedFile, one, file=path) for one in found.get("files", ())]
        cached = from_document(Cached, {**found, "files": files}, file=path)
    except (FileNotFoundError, CorruptDocument, UnreadableDocument):
        return None
    content = folder / "content"
    return (cached, content / cached.name) if all(_is_unchanged(content, one) for one in files) else None


def _is_unchanged(content: Path, file: CachedFile) -> bool:
    try:
        found = (content / file.path).stat()
    except OSError:
        return False
    return (found.st_size, found.st_mtime_ns) == (file.size, file.mtime_ns)
