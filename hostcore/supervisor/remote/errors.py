"""What stores answer, in words that say what to do."""

import errno
import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from hostcore_hookspecs.errors import HostcoreError

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
def told_of(uri: str, *, pointer: str | None = None) -> Iterator[None]:
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
