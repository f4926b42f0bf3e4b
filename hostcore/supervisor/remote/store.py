"""A place in a store: what is there, in which version; and what stores answer, in errors that say what to do."""

import errno
import hashlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager
from datetime import datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from hostcore.background import in_background
from hostcore.job.paths import is_uri
from hostcore_hookspecs.errors import HostcoreError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

T = TypeVar("T")

#: How long a store may take to answer a question.
ANSWER_SECONDS: Final = 90.0


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
    """What there is at a place: a file, or a folder with all that is below it."""

    is_folder: bool
    #: Sorted by name.
    files: tuple[RemoteFile, ...]

    @property
    def size(self) -> int:
        """In bytes, as far as it is known."""
        return sum(file.size or 0 for file in self.files)

    @property
    def version(self) -> str:
        """Changes whenever one of the files does; empty if the store says too little to tell."""
        if not all(file.version for file in self.files):
            return ""
        told = "\n".join(f"{file.name}\t{file.size}\t{file.version}" for file in self.files)
        return hashlib.sha256(told.encode()).hexdigest()


@attrs.frozen(kw_only=True, eq=False)
class Location:
    """A place in a store, asked anew each time: listings that a file system remembers are thrown away before."""

    filesystem: "AbstractFileSystem"
    #: Within the file system; no slash at its end.
    path: str
    #: How messages name it.
    uri: str
    #: Where the job names it.
    pointer: str | None = None
    answer_seconds: float = ANSWER_SECONDS

    @classmethod
    def of(
        cls, uri: str, options: Mapping[str, Any] | None = None, *, pointer: str | None = None, trusted: bool = True
    ) -> "Location":
        """The place that a URI, or an absolute path, names.

        :param options: For the file system: fsspec's ``storage_options``.
        :param trusted: Whether links below a folder of this machine are followed, and pipes are read.
        :raises StoreError: When there is no file system for it.
        """
        from fsspec.core import url_to_fs
        from fsspec.implementations.local import LocalFileSystem

        try:
            # A path of this machine is no URI, whatever its name has in it: ``::`` alone would chain file systems.
            given = options or {}
            filesystem, path = url_to_fs(uri, **given) if is_uri(uri) else (LocalFileSystem(**given), uri)
            path = path.rstrip("/")
            if isinstance(filesystem, LocalFileSystem) and not trusted:
                from hostcore.supervisor.remote.regular_files import RegularFiles

                filesystem = RegularFiles(path, **given)
        except Exception as error:
            raise scheme_error(error, uri, pointer) from error
        return cls(filesystem=filesystem, path=path, uri=uri.rstrip("/"), pointer=pointer)

    def below(self, name: str) -> "Location":
        """A place below this one.

        :param name: With ``/``.
        """
        return attrs.evolve(self, path=f"{self.path}/{name}", uri=f"{self.uri}/{name}")

    def listing(self) -> Listing:
        """What is here.

        :raises StoreError: ``store.missing`` when there is nothing; ``store.unreachable`` without an answer.
        """
        info = self._ask(lambda fs: fs.info(self.path))
        if info["type"] != "directory":
            return Listing(is_folder=False, files=(_remote_file(_last(self.path, self.uri), self.path, info),))
        found = self._ask(lambda fs: fs.find(self.path, detail=True))
        files = [
            _remote_file(self._name_below(path), path, one)
            for path, one in sorted(found.items())
            if not path.endswith("/")  # what stands for an empty folder in an object store
        ]
        if not files:
            raise StoreError(
                f"the folder {self.uri} is empty", code="store.missing", pointer=self.pointer, file=self.uri
            )
        return Listing(is_folder=True, files=tuple(files))

    def names(self) -> list[str]:
        """The names right below this place; none if it is not there.

        :raises StoreError: When it cannot be asked.
        """
        found = self._if_there(lambda fs: fs.ls(self.path, detail=False)) or []
        return sorted({name for path in found if (name := path.rstrip("/").rpartition("/")[2])})

    def file(self) -> RemoteFile | None:
        """The file that is here; None if there is none.

        :raises StoreError: When the store cannot be asked.
        """
        info = self._if_there(lambda fs: fs.info(self.path))
        if info is None or info["type"] == "directory":
            return None
        return _remote_file(_last(self.path, self.uri), self.path, info)

    def read(self, begin: int | None = None, end: int | None = None) -> bytes | None:
        """The content of a small file, or a part of any; None if there is none.

        :param begin: The first byte.
        :param end: Behind the last byte.
        :raises StoreError: When it cannot be asked.
        """
        content = self._if_there(lambda fs: fs.cat_file(self.path, start=begin, end=end))
        return None if content is None else bytes(content)

    def _if_there(self, question: "Callable[[AbstractFileSystem], T]") -> T | None:
        try:
            return self._ask(question)
        except StoreError as error:
            if error.code == "store.missing":
                return None
            raise

    def _ask(self, question: "Callable[[AbstractFileSystem], T]") -> T:
        def asked() -> T:
            self.filesystem.invalidate_cache()
            return question(self.filesystem)

        with store_errors(self.uri, pointer=self.pointer):
            return _answered(asked, self.answer_seconds)

    def _name_below(self, path: str) -> str:
        name = path[len(self.path) :].lstrip("/") if path.startswith(self.path) else path
        parts = PurePosixPath(name).parts
        if not parts or ".." in parts or "\0" in name or name.startswith("/"):
            raise StoreError(
                f"{path} in {self.uri} has a name that no file of this machine can have",
                code="store.name",
                pointer=self.pointer,
                file=self.uri,
                hint="rename it in the store",
            )
        return name


def _answered(call: Callable[[], T], seconds: float) -> T:
    """Call something that may hang, in a thread that is left to itself then."""
    answer = in_background(call, "hostcore store")
    wait([answer], seconds)
    if not answer.done():
        raise TimeoutError(f"no answer within {seconds:g} seconds")
    return answer.result()


def _last(path: str, uri: str) -> str:
    """The name of a file: the last part of its path, without what a web server was asked."""
    name = path.rpartition("/")[2]
    return name.partition("?")[0].partition("#")[0] if uri.startswith(("http://", "https://")) else name


def _remote_file(name: str, path: str, info: Mapping[str, Any]) -> RemoteFile:
    return RemoteFile(
        name=name, path=path, size=info.get("size"), version=_version(info), modified_ms=_modified_ms(info)
    )


def _plain(info: Mapping[str, Any]) -> dict[str, Any]:
    """What a file system says, by names in small letters alone: every one has its own way of writing them."""
    return {key.lower().replace("_", "").replace("-", ""): value for key, value in info.items()}


def _modified_ms(info: Mapping[str, Any]) -> int | None:
    by_name = _plain(info)
    for key in ("mtime", "lastmodified", "updated", "modified", "created"):
        changed = by_name.get(key)
        if isinstance(changed, datetime):
            return int(changed.timestamp() * 1000)
        if isinstance(changed, int | float):
            return int(changed * 1000)
    return None


def _version(info: Mapping[str, Any]) -> str:
    """The ETag, a checksum, or size and time of the last change."""
    by_name = _plain(info)
    for key in ("etag", "md5hash", "contentmd5", "crc32c", "checksum", "sha256", "blobid"):
        if by_name.get(key):
            return f"{key}:{str(by_name[key]).strip(chr(34))}"
    for key in ("mtime", "lastmodified", "updated", "modified", "created"):
        if by_name.get(key):
            changed = by_name[key]
            return f"{key}:{changed.timestamp() if isinstance(changed, datetime) else changed}"
    return ""


#: What brings the file system of a scheme: the module it needs, and how it is installed.
_PACKAGES: Final[Mapping[str, tuple[str, str]]] = {
    "s3": ("s3fs", "pip install s3fs"),
    "s3a": ("s3fs", "pip install s3fs"),
    "gs": ("gcsfs", "pip install gcsfs"),
    "gcs": ("gcsfs", "pip install gcsfs"),
    "abfs": ("adlfs", "pip install adlfs"),
    "abfss": ("adlfs", "pip install adlfs"),
    "adl": ("adlfs", "pip install adlfs"),
    "az": ("adlfs", "pip install adlfs"),
    "http": ("aiohttp", "pip install 'fsspec[http]'"),
    "https": ("aiohttp", "pip install 'fsspec[http]'"),
    "hf": ("huggingface_hub", "pip install huggingface_hub"),
    "sftp": ("paramiko", "pip install paramiko"),
    "ssh": ("paramiko", "pip install paramiko"),
    "webhdfs": ("requests", "pip install requests"),
    "oss": ("ossfs", "pip install ossfs"),
    "oci": ("ocifs", "pip install ocifs"),
    "dropbox": ("dropboxdrivefs", "pip install dropboxdrivefs"),
    "smb": ("smbprotocol", "pip install smbprotocol"),
    "github": ("requests", "pip install requests"),
}
#: A full disk, or a full quota.
NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class StoreError(HostcoreError):
    """A store cannot be opened or read."""

    code = "store.unreadable"

    @property
    def is_outage(self) -> bool:
        """Whether the store gave no answer, so that its content is unknown."""
        return self.code == "store.unreachable"


@contextmanager
def store_errors(uri: str, *, pointer: str | None = None) -> Iterator[None]:
    """Turn what a store, its library or this machine's disk says into a :class:`StoreError`.

    :param uri: What is asked for.
    :param pointer: Where the job names it.
    """
    try:
        yield
    except HostcoreError:
        raise
    except Exception as error:
        raise _told(error, uri, pointer) from error


def _told(error: Exception, uri: str, pointer: str | None) -> StoreError:
    where: dict[str, Any] = {"pointer": pointer, "file": uri}
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, FileNotFoundError) and not _is_no_answer(error.__cause__):
        return StoreError(f"there is nothing at {uri}", code="store.missing", hint=_CHECK_NAME, **where)
    if isinstance(error, OSError) and error.errno in NO_SPACE:
        where["file"] = error.filename or uri
        hint = "make room on this machine; nothing half-written was left"
        return StoreError(f"the disk is full: {uri} cannot be brought here", code="store.no_space", hint=hint, **where)
    if isinstance(error, OSError) and error.errno is not None and error.filename:  # a store gives no errno
        where["file"] = str(error.filename)
        message = f"{error.filename} cannot be used to bring {uri} here: {error.strerror}"
        return StoreError(message, code="store.local", hint=_CHECK_PATH, **where)
    if isinstance(error, PermissionError):
        message = f"{uri} may not be read: {error}"
        return StoreError(message, code="store.denied", hint=_CREDENTIALS, **where)
    if "credential" in said.lower() or getattr(error, "status", None) in (401, 403):
        return StoreError(f"{uri} may not be read: {said}", code="store.denied", hint=_CREDENTIALS, **where)
    if isinstance(error, FileNotFoundError):
        said = f"{type(error.__cause__).__name__}: {error.__cause__}"
    return StoreError(f"{uri} cannot be reached: {said}", code="store.unreachable", hint=_CHECK_STORE, **where)


def _is_no_answer(cause: BaseException | None) -> bool:
    """Whether a "not found" means that the server did not answer: fsspec raises one error for both over HTTP."""
    status = getattr(cause, "status", None)
    if isinstance(status, int):
        return status not in (404, 410)
    packages = {base.__module__.partition(".")[0] for base in type(cause).__mro__}
    return cause is not None and (isinstance(cause, ConnectionError | TimeoutError) or "aiohttp" in packages)


_CHECK_NAME: Final = "look whether the name is right, and whether the credentials belong to the right account"
_CHECK_STORE: Final = "look whether the store is up, and whether this machine gets there; then try again"
_CHECK_PATH: Final = (
    "look whether the user that runs the job may read and write there; HOSTCORE_CACHE_DIR and HOSTCORE_RUNS_DIR say "
    "where things are brought"
)
_CREDENTIALS: Final = "give credentials: in the environment, as the store's own tools take them, or in storage_options"


def scheme_error(error: Exception, uri: str, pointer: str | None) -> StoreError:
    """The error for a URI whose file system there is not, or that could not be made."""
    from fsspec.registry import available_protocols, registry

    known = {*available_protocols(), *registry}
    scheme = uri.rpartition("::")[2].partition("://")[0]
    module, install = _PACKAGES.get(scheme, ("", ""))
    if isinstance(error, ImportError) or (module and importlib.util.find_spec(module) is None):
        return StoreError(
            f"{scheme}:// URIs need a package that is not installed here: {error}",
            code="store.package",
            pointer=pointer,
            file=uri,
            hint=install or None,
        )
    if scheme not in known:
        return StoreError(
            f"{scheme}:// URIs are unknown here",
            code="store.scheme",
            pointer=pointer,
            file=uri,
            hint="did you mean " + _near(scheme, sorted(known)),
        )
    return StoreError(
        f"the file system of {uri} cannot be made: {type(error).__name__}: {error}",
        code="store.options",
        pointer=pointer,
        file=uri,
        hint="look at its storage_options",
    )


def _near(scheme: str, known: list[str]) -> str:
    import difflib

    usual = ["s3", "gs", "abfs", "https", "file"]
    near = difflib.get_close_matches(scheme, known, n=2) or usual
    return " or ".join(f"{one}://" for one in near) + "? A path of this machine has no scheme"
