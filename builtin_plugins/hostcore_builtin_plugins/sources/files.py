"""Data files, and the trees that they are found in: this machine's, and those of stores."""

import glob
import io
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import attrs
import pyarrow as pa
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.cached import CachingFileSystem

from hostcore_builtin_plugins.stores.errors import ObjectMissing, StoreError, data_errors
from hostcore_builtin_plugins.stores.location import Location, last_change, plain
from hostcore_hookspecs import InvalidData

#: Parts that lie closer together are fetched as one: what lies between them costs less than another request.
_GAP_BYTES = 64 << 10
#: The time that a store has to list a folder: a bucket may need hundreds of requests for it.
_LISTING_SECONDS: Final = 900.0


def joined_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in order, those that touch or nearly touch as one.

    :param ranges: Begin and end of each, in bytes.
    """
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1] + _GAP_BYTES:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


class _SeekableFile(io.RawIOBase):
    """A file that can be read, anywhere in it."""

    def readable(self) -> bool:
        """See :class:`io.IOBase`."""
        return True

    def seekable(self) -> bool:
        """See :class:`io.IOBase`."""
        return True


class FileExcerpt(_SeekableFile):
    """A file of which only parts can be read, each where it is in the whole file.

    :param parts: Their bytes, by where they begin.
    """

    def __init__(self, parts: Mapping[int, bytes]) -> None:
        self._parts = parts
        self._position = 0

    def tell(self) -> int:
        """See :class:`io.IOBase`."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See :class:`io.IOBase`."""
        end = max(start + len(part) for start, part in self._parts.items())
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: end}[whence]
        return self._position

    def read(self, size: int = -1) -> bytes:
        """See :class:`io.RawIOBase`.

        :raises OSError: There is no part at this position.
        """
        for start, part in self._parts.items():
            if start <= self._position < start + len(part):
                first = self._position - start
                found = part[first : None if size < 0 else first + size]
                self._position += len(found)
                return found
        if size:
            raise OSError(f"byte {self._position} of the file was not fetched")
        return b""


class AnsweringFile(_SeekableFile):
    """A file of a store whose reads end: a store that stalls is an error.

    :param file: As its file system opened it.
    :param ahead: The number of bytes that it fetches beyond those of a read.
    """

    def __init__(self, file: Any, place: Location, ahead: int) -> None:
        self._file = file
        self._place = place
        self._ahead = ahead

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See :class:`io.IOBase`."""
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        """See :class:`io.IOBase`."""
        return int(self._file.tell())

    def read(self, size: int = -1) -> bytes:
        """See :class:`io.RawIOBase`.

        :raises InvalidData: The store fails, or gives no answer.
        """
        length = size if size >= 0 else getattr(self._file, "size", None) or 0
        with data_errors(self._place.uri):
            return bytes(self._place.answer(lambda: self._file.read(size), size=length + self._ahead))

    def close(self) -> None:
        """See :class:`io.IOBase`."""
        self._file.close()
        super().close()


@attrs.frozen(kw_only=True)
class DataFile:
    """One file of a dataset."""

    #: Its name in messages and shard ids: an absolute path, or a URI.
    name: str
    #: Within its file system.
    path: str
    #: In bytes; None if the store has no size.
    size: int | None
    #: Changes whenever the content does.
    version: str
    #: None for a file of this machine.
    place: Location | None = attrs.field(default=None, eq=False)
    #: Parts of the version that the store has.
    marks: Mapping[str, str] = attrs.field(factory=dict, eq=False)
    #: Equal for all names of one file of this machine (links, hard links, paths with ``..``); empty for other files.
    identity: tuple[int, ...] = attrs.field(default=(), eq=False)
    #: The folders above it whose names hold the value of a column, as Hive has it: ``label=0``.
    partitions: tuple[str, ...] = attrs.field(default=(), eq=False)

    def open(self, *, memory_map: bool = False, read_ahead: bool = True) -> pa.NativeFile:
        """Open it for reading.

        :param memory_map: Map a local file into memory instead of reading it.
        :param read_ahead: Let reads of a remote file fetch more than they ask for, as its file system does.
        :raises InvalidData: It is gone, or may not be read.
        """
        with data_errors(self.name):
            if self.place is None:
                return pa.memory_map(self.path) if memory_map else pa.OSFile(self.path)
            filesystem = self.place.filesystem
            if isinstance(filesystem, CachingFileSystem):  # it may fetch the whole file now, which takes what it takes
                return pa.PythonFile(filesystem.open(self.path, "rb"), mode="r")
            as_asked = {} if read_ahead else {"cache_type": "none"}
            opened = self.place.answer(lambda: filesystem.open(self.path, "rb", **as_asked))
            ahead = getattr(opened, "blocksize", None) or 0 if read_ahead else 0
            return pa.PythonFile(AnsweringFile(opened, self.place, ahead), mode="r")

    def open_excerpt(self, ranges: Sequence[tuple[int, int]]) -> pa.NativeFile:
        """Fetch parts of a remote file at once. Nothing else can be read from what is returned.

        :param ranges: Begin and end of each, in bytes.
        :raises InvalidData: It is gone, or may not be read.
        """
        joined = joined_ranges(ranges)
        starts, ends = zip(*joined, strict=True)
        with data_errors(self.name):
            if self.place is not None and isinstance(filesystem := self.place.filesystem, AsyncFileSystem):
                paths, size = [self.path] * len(joined), sum(ends) - sum(starts)
                fetch = partial(filesystem.cat_ranges, paths, list(starts), list(ends), on_error="raise")
                found = self.place.answer(fetch, size=size)
            else:
                with self.open(read_ahead=False) as source:
                    found = [bytes(source.read_at(end - start, start)) for start, end in joined]
        return pa.PythonFile(FileExcerpt(dict(zip(starts, found, strict=True))), mode="r")

    def head(self, length: int) -> bytes:
        """Return the first bytes; fewer if it is shorter."""
        with self.open() as source, data_errors(self.name):
            return bytes(source.read(length))

    def require_unchanged(self) -> None:
        """Compare it with the file that was found; a store is asked anew.

        :raises InvalidData: It has changed.
        """
        with data_errors(self.name):
            if self.place is None:
                changed = _local_version(Path(self.path).stat()) != self.version
            else:
                filesystem = self.place.filesystem
                filesystem.invalidate_cache(self.path)  # of listings, which would answer with what they said then
                found = _remote_marks(self.place.answer(lambda: filesystem.info(self.path)))
                # A listing may say less than what is asked about one file.
                changed = any(found[mark] != self.marks[mark] for mark in found.keys() & self.marks.keys())
        if changed:
            raise InvalidData(
                f"{self.name} changed while the run was reading it",
                file=self.name,
                hint="a dataset must stay as it is while runs read it: start a new run",
            )

    def tree(self) -> "FileTree":
        """Return the tree that it lies in."""
        return LocalFileTree() if self.place is None else RemoteFileTree(self.place)


class FileTree(Protocol):
    """A file system, as the search for files needs it. Paths have ``/``."""

    def kind(self, path: str) -> str | None:
        """Return ``file``, ``folder``, or None if there is nothing."""

    def file(self, path: str) -> DataFile:
        """Return a file that is there."""

    def name(self, path: str) -> str:
        """Return the path's name in messages."""

    def walk(self, folder: str) -> Iterator[str]:
        """Yield all files below the folder, but for those in hidden folders of this machine."""

    def glob(self, pattern: str) -> Sequence[str]:
        """Return all files and folders that match."""

    def neighbours(self, path: str) -> tuple[str, Sequence[str]]:
        """Return the nearest folder above a path that names nothing, and the names in it."""


class LocalFileTree:
    """The file system of this machine.

    fsspec has one too, but its search silently leaves out linked folders, and what it may not read.
    """

    def kind(self, path: str) -> str | None:
        """See :class:`FileTree`."""
        try:
            return "folder" if stat.S_ISDIR(Path(path).stat().st_mode) else "file"
        except (FileNotFoundError, NotADirectoryError):
            return None

    def file(self, path: str) -> DataFile:
        """See :class:`FileTree`."""
        found = Path(path).stat()
        if not stat.S_ISREG(found.st_mode):
            raise InvalidData(f"{path} is not a regular file", file=path)
        # Some network file systems give several files one number: size and time tell them apart.
        identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        return DataFile(name=path, path=path, size=found.st_size, version=_local_version(found), identity=identity)

    def name(self, path: str) -> str:
        """See :class:`FileTree`."""
        return path

    def walk(self, folder: str) -> Iterator[str]:
        """See :class:`FileTree`."""
        return (f"{current}/{name}" for current, names in _real_folders(folder) for name in names)

    def glob(self, pattern: str) -> Sequence[str]:
        """See :class:`FileTree`.

        ``**`` is not left to Python's glob: two links to a folder above them make 2^40 paths for it.
        """
        before, stars, after = f"{pattern}/".partition("/**/")
        if not stars:
            return glob.glob(pattern)  # noqa: PTH207 - Path.glob needs the fixed part apart
        while after.startswith("**/"):
            after = after.removeprefix("**/")
        found: list[str] = []
        for top in self.glob(before or "/"):
            for folder, names in _real_folders(top) if self.kind(top) == "folder" else ():
                if after.strip("/"):
                    found += self.glob(f"{glob.escape(folder)}/{after.removesuffix('/')}")
                else:
                    found += (f"{folder}/{name}" for name in names if not name.startswith("."))
        return found

    def neighbours(self, path: str) -> tuple[str, Sequence[str]]:
        """See :class:`FileTree`."""
        folder = next(parent for parent in Path(path).absolute().parents if parent.is_dir())
        return str(folder), [child.name for child in folder.iterdir()]


class RemoteFileTree:
    """A store.

    :param place: Any place in it.
    """

    def __init__(self, place: Location) -> None:
        self._place = place
        self._listed = attrs.evolve(place, answer_seconds=_LISTING_SECONDS)
        #: By path, as listings have them, so that a listed file costs no request of its own.
        self._infos: dict[str, Mapping[str, Any]] = {}

    def kind(self, path: str) -> str | None:
        """See :class:`FileTree`."""
        try:
            info = self._info(path)
        except ObjectMissing:
            return None
        return "folder" if info["type"] == "directory" else "file"

    def file(self, path: str) -> DataFile:
        """See :class:`FileTree`."""
        info = self._info(path)
        marks = _remote_marks(info)
        return DataFile(
            name=self.name(path),
            path=path,
            size=info.get("size"),
            version=marks.get("etag") or f"{info.get('size')}-{marks.get('changed', '')}",
            place=self._at(path),
            marks=marks,
        )

    def name(self, path: str) -> str:
        """See :class:`FileTree`."""
        return str(self._place.filesystem.unstrip_protocol(path))

    def walk(self, folder: str) -> Iterator[str]:
        """See :class:`FileTree`."""
        found = self._listed.answer(lambda: self._place.filesystem.find(folder, detail=True))
        self._infos.update(found)
        yield from found

    def glob(self, pattern: str) -> Sequence[str]:
        """See :class:`FileTree`."""
        found = self._listed.answer(lambda: self._place.filesystem.glob(pattern, detail=True))
        self._infos.update(found)
        return list(found)

    def neighbours(self, path: str) -> tuple[str, Sequence[str]]:
        """See :class:`FileTree`."""
        folder = path.rstrip("/").rpartition("/")[0]
        try:
            return folder, self._at(folder).names()
        except StoreError:  # not every store can list, nor has every path a folder
            return folder, []

    def _info(self, path: str) -> Mapping[str, Any]:
        if path not in self._infos:
            self._infos[path] = self._at(path).answer(lambda: self._place.filesystem.info(path))
        return self._infos[path]

    def _at(self, path: str) -> Location:
        return attrs.evolve(self._place, path=path, uri=self.name(path))


def is_hidden(name: str) -> bool:
    """Return whether a search passes over a file or folder of this name."""
    return name.startswith((".", "_"))


def _real_folders(top: str) -> Iterator[tuple[str, Sequence[str]]]:
    """List a folder and all below it, without hidden ones: their paths, and the names of the files in each.

    Linked folders are followed. A folder with several paths has one here, the same on every machine: the path without
    a link if there is one, else by the order of the links' names.
    """
    seen: set[str] = set()
    waiting = [top]
    while waiting:
        links: list[str] = []
        for start in waiting:
            for current, folders, files in os.walk(start, onerror=_raise):
                real, path = os.path.realpath(current), current.rstrip("/")
                folders[:] = [name for name in folders if not is_hidden(name)] if real not in seen else []
                if real not in seen:
                    seen.add(real)
                    links += (link for name in folders if Path(link := f"{path}/{name}").is_symlink())
                    yield path, files
        waiting = sorted(links)


def _raise(error: OSError) -> None:
    raise error


def _local_version(found: os.stat_result) -> str:
    return f"{found.st_size}-{found.st_mtime_ns}"


def _remote_marks(info: Mapping[str, Any]) -> dict[str, str]:
    """Return the size, the ETag and the time of the last change, as far as the store has them."""
    by_name = plain(info)
    marks = {"size": by_name.get("size"), "etag": by_name.get("etag"), "changed": last_change(info)[1]}
    return {mark: str(value).strip('"') for mark, value in marks.items() if value is not None}
