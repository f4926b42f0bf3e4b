"""A place in a store: its files and their versions, asked anew each time, in a time that has an end."""

import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from datetime import datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from hostcore_builtin_plugins.background import in_background
from hostcore_builtin_plugins.stores.errors import ObjectMissing, StoreError, store_errors
from hostcore_builtin_plugins.stores.filesystems import connect

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

T = TypeVar("T")

#: The time that a store has for an answer.
ANSWER_SECONDS: Final = 90.0
#: A read of many bytes may take longer: a store that gives fewer in a second counts as stalled.
_SLOWEST_BYTES: Final = 64 << 10


@attrs.frozen(kw_only=True)
class RemoteFile:
    """One file of a store."""

    #: Below the place that was listed, with ``/``; the place's own name if it is a file.
    name: str
    #: Within its file system.
    path: str
    #: In bytes; None if the store does not say.
    size: int | None
    #: Changes whenever the content does; empty if the store says nothing of the kind.
    version: str
    #: When it was written, in milliseconds since 1970; None if the store does not say.
    modified_ms: int | None = None


@attrs.frozen(kw_only=True)
class Listing:
    """A file, or a folder with all that is below it."""

    is_folder: bool
    #: Sorted by name.
    files: tuple[RemoteFile, ...]

    @property
    def size(self) -> int:
        """In bytes, as far as it is known."""
        return sum(file.size or 0 for file in self.files)

    @property
    def version(self) -> str:
        """Changes whenever one of the files does; empty if the store has too little for that."""
        if not all(file.version for file in self.files):
            return ""
        versions = "\n".join(f"{file.name}\t{file.size}\t{file.version}" for file in self.files)
        return hashlib.sha256(versions.encode()).hexdigest()


@attrs.frozen(kw_only=True, eq=False)
class Location:
    """A place in a store, asked anew each time: listings that a file system remembers are thrown away before."""

    filesystem: "AbstractFileSystem"
    #: Within the file system; no slash at its end.
    path: str
    #: Its name in messages.
    uri: str
    #: The place in the job that names it.
    pointer: str | None = None
    answer_seconds: float = ANSWER_SECONDS

    @classmethod
    def of(cls, uri: str, options: Mapping[str, Any] | None = None, *, pointer: str | None = None) -> "Location":
        """Return the place that a URI, or an absolute path, names.

        :param options: For the file system: fsspec's ``storage_options``.
        :raises StoreError: There is no file system for it.
        """
        filesystem, path = connect(uri, options, pointer=pointer)
        return cls(filesystem=filesystem, path=path, uri=uri.rstrip("/"), pointer=pointer)

    def below(self, name: str) -> "Location":
        """Return a place below this one.

        :param name: With ``/``.
        """
        return attrs.evolve(self, path=f"{self.path}/{name}", uri=f"{self.uri}/{name}")

    def listing(self) -> Listing:
        """List all that is here.

        :raises StoreError: :class:`ObjectMissing` when there is nothing; :class:`Unreachable` without an answer.
        """
        info = self.ask(lambda fs: fs.info(self.path))
        if info["type"] != "directory":
            return Listing(is_folder=False, files=(_remote_file(_last(self.path, self.uri), self.path, info),))
        found = self.ask(lambda fs: fs.find(self.path, detail=True))
        files = [
            _remote_file(self._name_below(path), path, one)
            for path, one in sorted(found.items())
            if not path.endswith("/")  # the mark of an empty folder in an object store
        ]
        if not files:
            raise ObjectMissing(f"the folder {self.uri} is empty", pointer=self.pointer, file=self.uri)
        return Listing(is_folder=True, files=tuple(files))

    def names(self) -> list[str]:
        """List the names right below this place; none if it is not there.

        :raises StoreError: It cannot be asked.
        """
        found = self._if_there(lambda fs: fs.ls(self.path, detail=False)) or []
        return sorted({name for path in found if (name := path.rstrip("/").rpartition("/")[2])})

    def info(self) -> Mapping[str, Any] | None:
        """Return the description that fsspec has of what is here; None if there is nothing.

        :raises StoreError: The store cannot be asked.
        """
        return self._if_there(lambda fs: fs.info(self.path))

    def file(self) -> RemoteFile | None:
        """Return the file that is here; None if there is none.

        :raises StoreError: The store cannot be asked.
        """
        info = self.info()
        if info is None or info["type"] == "directory":
            return None
        return _remote_file(_last(self.path, self.uri), self.path, info)

    def read(self, begin: int | None = None, end: int | None = None) -> bytes | None:
        """Return the content of a small file, or a part of any; None if there is none.

        :param begin: The first byte.
        :param end: Behind the last byte.
        :raises StoreError: It cannot be asked.
        """
        content = self._if_there(lambda fs: fs.cat_file(self.path, start=begin, end=end))
        return None if content is None else bytes(content)

    def _if_there(self, question: "Callable[[AbstractFileSystem], T]") -> T | None:
        try:
            return self.ask(question)
        except ObjectMissing:
            return None

    def ask(self, question: "Callable[[AbstractFileSystem], T]") -> T:
        """Ask the file system.

        :raises StoreError: It has no answer, or none in time.
        """

        def asked() -> T:
            self.filesystem.invalidate_cache()
            return question(self.filesystem)

        return self.answer(asked)

    def answer(self, call: Callable[[], T], *, size: int = 0) -> T:
        """Call something that may hang, in a thread that is left to itself then.

        :param size: The number of bytes that it reads, for which it has more time.
        :raises StoreError: It fails, or does not end in time.
        """
        seconds = self.answer_seconds + size / _SLOWEST_BYTES
        with store_errors(self.uri, pointer=self.pointer):
            answer = in_background(call, "hostcore store")
            wait([answer], seconds)
            if not answer.done():
                raise TimeoutError(f"no answer within {seconds:g} seconds")
            return answer.result()

    def _name_below(self, path: str) -> str:
        name = path[len(self.path) :].lstrip("/") if path.startswith(self.path) else path
        parts = PurePosixPath(name).parts
        if not parts or ".." in parts or "\0" in name or name.startswith("/"):
            message = f"{path} in {self.uri} has a name that no file of this machine can have"
            hint = "rename it in the store"
            raise StoreError(message, code="store.name", pointer=self.pointer, file=self.uri, hint=hint)
        return name


def _last(path: str, uri: str) -> str:
    """Return the name of a file: the last part of its path, without the query of a URL."""
    name = path.rpartition("/")[2]
    return name.partition("?")[0].partition("#")[0] if uri.startswith(("http://", "https://")) else name


def _remote_file(name: str, path: str, info: Mapping[str, Any]) -> RemoteFile:
    key, changed = last_change(info)
    return RemoteFile(
        name=name,
        path=path,
        size=info.get("size"),
        version=_checksum(info) or (f"{key}:{changed}" if changed else ""),
        modified_ms=int(changed * 1000) if isinstance(changed, int | float) else None,
    )


def plain(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file's description with names in small letters alone: every file system has its own way of writing."""
    return {key.lower().replace("_", "").replace("-", ""): value for key, value in info.items()}


def last_change(info: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the name that a file system has for the time of the last change, and the time; None if it has none."""
    by_name = plain(info)
    for key in ("mtime", "lastmodified", "updated", "modified", "created"):
        if changed := by_name.get(key):
            return key, changed.timestamp() if isinstance(changed, datetime) else changed
    return "", None


def _checksum(info: Mapping[str, Any]) -> str:
    by_name = plain(info)
    for key in ("etag", "md5hash", "contentmd5", "crc32c", "checksum", "sha256", "blobid"):
        if by_name.get(key):
            return f"{key}:{str(by_name[key]).strip(chr(34))}"
    return ""
