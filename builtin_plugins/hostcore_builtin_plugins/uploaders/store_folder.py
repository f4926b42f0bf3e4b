"""A place below which artifacts are kept: a folder of any file system of fsspec."""

import errno
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import fsspec
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from hostcore_builtin_plugins.uploaders.copying import PIECE_BYTES, Content, Store
from hostcore_builtin_plugins.uploaders.failures import is_denied
from hostcore_builtin_plugins.uploaders.puts import put_by_rename, put_on_disk, remove_left_files, way_to_put

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

T = TypeVar("T")

#: Tries of s3fs: every failure reaches the host, which checks what is there, and decides when to retry.
_S3_TRIES: Final = 1


class StoreFolder(Store):
    """A folder, and the client that reaches it.

    :param uri: The folder.
    :param options: For the file system; they win over the defaults that are set here.
    :param timeout_seconds: How long a server may be silent.
    """

    def __init__(self, uri: str, options: Mapping[str, Any], timeout_seconds: float) -> None:
        self._uri = uri
        self._options = _options(uri, options, timeout_seconds)
        self._of_thread = threading.local()
        filesystem, self._root = self._connect()
        # Clients that wait for one request at a time are not made for several threads.
        is_shared = isinstance(filesystem, AsyncFileSystem | LocalFileSystem | MemoryFileSystem)
        self._shared = filesystem if is_shared else None
        self._put = way_to_put(filesystem)

    def _connect(self) -> "tuple[AbstractFileSystem, str]":
        if "://" in self._uri:
            filesystem, path = fsspec.core.url_to_fs(self._uri, **self._options)
        else:  # ``::`` in the name of a folder would chain file systems
            filesystem = LocalFileSystem(**self._options)
            path = filesystem._strip_protocol(self._uri)
        _limit_retries(filesystem)
        return filesystem, str(path).rstrip("/")

    @property
    def _filesystem(self) -> "AbstractFileSystem":
        if self._shared is not None:
            return self._shared
        if not hasattr(self._of_thread, "filesystem"):
            self._of_thread.filesystem, _ = self._connect()
        return self._of_thread.filesystem

    def _at(self, path: str) -> str:
        """As the file system takes it."""
        return f"{self._root}/{path}"

    def uri(self, path: str) -> str:
        """See :class:`Store`."""
        return str(self._filesystem.unstrip_protocol(self._at(path)))

    def size(self, path: str) -> int | None:
        """See :class:`Store`.

        :raises IsADirectoryError: There is a folder of that name, where that excludes a file.
        """
        filesystem, there = self._filesystem, self._at(path)
        filesystem.invalidate_cache(there)
        try:
            info = filesystem.info(there)
        except FileNotFoundError:
            return None
        if info["type"] == "file":
            return int(info["size"])
        if self._put in (put_on_disk, put_by_rename):
            raise IsADirectoryError(errno.EISDIR, "there is a folder of that name", there)
        return None

    def pieces(self, path: str, size: int, content: Content) -> Iterator[bytes]:
        """See :class:`Store`."""
        filesystem, there = self._filesystem, self._at(path)
        if isinstance(filesystem, AsyncFileSystem):
            for start in range(0, size, PIECE_BYTES):
                content.go_on()
                yield filesystem.cat_file(there, start=start, end=min(start + PIECE_BYTES, size))
            return
        with filesystem.open(there, "rb") as file:
            while piece := file.read(PIECE_BYTES):
                content.go_on()
                yield piece

    def put(self, content: Content, path: str) -> None:
        """See :class:`Store`."""
        self._put(self._filesystem, content, self._at(path))

    def names(self, path: str) -> list[str]:
        """The names right below a folder, asked anew; none if it is not there, or may not be listed."""
        filesystem, there = self._filesystem, self._at(path)
        filesystem.invalidate_cache(there)
        found = _if_readable(lambda: filesystem.ls(there, detail=False)) or []
        return [str(one).rstrip("/").rpartition("/")[2] for one in found]

    def read(self, path: str) -> bytes | None:
        """The content of a small object; None if it is not there, or may not be read."""
        content = _if_readable(lambda: self._filesystem.cat_file(self._at(path)))
        return None if content is None else bytes(content)

    def remove_leftovers(self, path: str) -> None:
        """Remove what dead processes have left below a folder of the place."""
        if self._put in (put_on_disk, put_by_rename):
            remove_left_files(self._filesystem, self._at(path))


def _if_readable(ask: Callable[[], T]) -> T | None:
    """The answer; None if there is nothing, or who may write may not look."""
    try:
        return ask()
    except FileNotFoundError:
        return None
    except Exception as error:
        if is_denied(error):
            return None
        raise


def _limit_retries(filesystem: "AbstractFileSystem") -> None:
    """Report a failure to the host soon: it retries itself, and knows when the run is ending."""
    if hasattr(filesystem, "call_s3"):
        filesystem.retries = _S3_TRIES
    # gcsfs tries for half a minute, and takes no setting for that: what it wraps in retries is one request.
    if request := getattr(getattr(type(filesystem), "_request", None), "__wrapped__", None):
        filesystem._request = partial(request, filesystem)


def _options(uri: str, options: Mapping[str, Any], timeout_seconds: float) -> dict[str, Any]:
    """What the file system is made with: no listing is cached, and every wait for a server has a limit."""
    protocol = uri.partition("://")[0] if "://" in uri else "file"
    defaults = _DEFAULTS[protocol](options, timeout_seconds) if protocol in _DEFAULTS else {}
    return {"skip_instance_cache": True, "use_listings_cache": False, **defaults, **options}


def _s3_defaults(options: Mapping[str, Any], timeout_seconds: float) -> dict[str, Any]:
    # The library below never retries on its own: a write whose answer was lost may have been done.
    config = {
        "connect_timeout": timeout_seconds,
        "read_timeout": timeout_seconds,
        "retries": {"total_max_attempts": 1, "mode": "standard"},
        "http_session_cls": _session_without_retries(),
    }
    return {"config_kwargs": {**config, **options.get("config_kwargs", {})}}


def _session_without_retries() -> type:
    """The HTTP session of aiobotocore, without aiohttp's own second try of a PUT whose connection broke.

    aiohttp has no public setting for that; where the private one is gone, its second try is back.
    """
    from aiobotocore.httpsession import AIOHTTPSession

    class OneTry(AIOHTTPSession):  # type: ignore[misc]
        async def _get_session(self, proxy_url: str | None) -> Any:
            session = await super()._get_session(proxy_url)
            if hasattr(session, "_retry_connection"):
                session._retry_connection = False
            return session

    return OneTry


def _gcs_defaults(_options: Mapping[str, Any], timeout_seconds: float) -> dict[str, Any]:
    from aiohttp import ClientTimeout

    # It logs every failure with a traceback, which Python would print where logging is not configured.
    logging.getLogger("gcsfs").addHandler(logging.NullHandler())
    return {"requests_timeout": ClientTimeout(sock_connect=timeout_seconds, sock_read=timeout_seconds)}


def _azure_defaults(_options: Mapping[str, Any], timeout_seconds: float) -> dict[str, Any]:
    seconds = max(1, round(timeout_seconds))
    return {"connection_timeout": seconds, "read_timeout": seconds}


def _sftp_defaults(_options: Mapping[str, Any], timeout_seconds: float) -> dict[str, Any]:
    return {"timeout": timeout_seconds, "banner_timeout": timeout_seconds, "auth_timeout": timeout_seconds}


_Defaults = Callable[[Mapping[str, Any], float], dict[str, Any]]
_DEFAULTS: Final[Mapping[str, _Defaults]] = {
    **dict.fromkeys(("s3", "s3a"), _s3_defaults),
    **dict.fromkeys(("gs", "gcs"), _gcs_defaults),
    **dict.fromkeys(("abfs", "abfss", "az"), _azure_defaults),
    **dict.fromkeys(("sftp", "ssh"), _sftp_defaults),
}
