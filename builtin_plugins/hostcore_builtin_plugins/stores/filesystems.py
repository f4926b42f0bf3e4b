"""File systems of fsspec: the one of a URI, or the reason why there is none."""

import difflib
import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from hostcore_builtin_plugins.stores.errors import StoreError, is_of_a_client, meaning

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

#: The module that a scheme needs beside fsspec, and the command that installs it.
_PACKAGES: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(("s3", "s3a"), ("s3fs", "pip install s3fs")),
    **dict.fromkeys(("gs", "gcs"), ("gcsfs", "pip install gcsfs")),
    **dict.fromkeys(("abfs", "abfss", "adl", "az"), ("adlfs", "pip install adlfs")),
    **dict.fromkeys(("http", "https"), ("aiohttp", "pip install 'fsspec[http]'")),
    **dict.fromkeys(("sftp", "ssh"), ("paramiko", "pip install paramiko")),
    **dict.fromkeys(("webhdfs", "github"), ("requests", "pip install requests")),
    "hf": ("huggingface_hub", "pip install huggingface_hub"),
    "oss": ("ossfs", "pip install ossfs"),
    "oci": ("ocifs", "pip install ocifs"),
    "dropbox": ("dropboxdrivefs", "pip install dropboxdrivefs"),
    "smb": ("smbprotocol", "pip install smbprotocol"),
}
_USUAL: Final = ("s3", "gs", "abfs", "https", "file")


def connect(
    uri: str, options: Mapping[str, Any] | None = None, *, pointer: str | None = None
) -> "tuple[AbstractFileSystem, str]":
    """Return the file system of a URI or an absolute path, and the path within it, without a slash at its end.

    :param options: For the file system: fsspec's ``storage_options``.
    :param pointer: The place in the job that names it.
    :raises StoreError: There is no such file system, or it cannot be made.
    """
    from fsspec.core import url_to_fs
    from fsspec.implementations.local import LocalFileSystem

    given = options or {}
    if "protocol" in given:  # fsspec would prefer it to the scheme
        hint = 'leave out "protocol": the scheme of the URI decides which file system it is'
        message = f"the storage_options of {uri} name another file system"
        raise StoreError(message, code="store.options", hint=hint, pointer=pointer, file=uri)
    try:
        if "://" in uri:
            filesystem, path = url_to_fs(uri, **given)
        else:  # ``::`` in the name of a folder would chain file systems
            filesystem = LocalFileSystem(**given)
            path = filesystem._strip_protocol(uri)
    except Exception as error:
        raise _no_filesystem(error, uri, pointer) from error
    return filesystem, str(path).rstrip("/")


def is_thread_safe(filesystem: "AbstractFileSystem") -> bool:
    """Return True if several threads may use it at once; a client that holds one connection is for one of them."""
    from fsspec.asyn import AsyncFileSystem
    from fsspec.implementations.local import LocalFileSystem
    from fsspec.implementations.memory import MemoryFileSystem

    return isinstance(filesystem, AsyncFileSystem | LocalFileSystem | MemoryFileSystem)


def _no_filesystem(error: Exception, uri: str, pointer: str | None) -> StoreError:
    from fsspec.registry import available_protocols, registry

    known = sorted({*available_protocols(), *registry})
    scheme = uri.rpartition("::")[2].partition("://")[0]
    where: dict[str, Any] = {"pointer": pointer, "file": uri}
    module, install = _PACKAGES.get(scheme, ("", None))
    if isinstance(error, ImportError) or (module and importlib.util.find_spec(module) is None):
        message = f"{scheme}:// URIs need a package that is not installed here: {error}"
        return StoreError(message, code="store.package", hint=install, **where)
    if scheme not in known:
        near = " or ".join(f"{one}://" for one in difflib.get_close_matches(scheme, known, n=2) or _USUAL)
        hint = f"did you mean {near}? A path of this machine has no scheme"
        return StoreError(f"{scheme}:// URIs are unknown here", code="store.scheme", hint=hint, **where)
    connects = isinstance(error, OSError | EOFError) or is_of_a_client(error)  # at once, as some do
    found = meaning(error, uri, pointer) if connects else None
    if isinstance(found, StoreError):
        return found
    message = f"the file system of {uri} cannot be made: {type(error).__name__}: {error}"
    return StoreError(message, code="store.options", hint="look at its storage_options", **where)
