"""A place below which artifacts are kept: a folder of any file system of fsspec."""

import errno
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
from fsspec.asyn import AsyncFileSystem

from hostcore_builtin_plugins.stores.copying import PIECE_BYTES, Content, ObjectStore
from hostcore_builtin_plugins.stores.errors import StoreError, Unreachable, is_denied
from hostcore_builtin_plugins.stores.filesystems import is_thread_safe
from hostcore_builtin_plugins.stores.location import ANSWER_SECONDS, Location
from hostcore_builtin_plugins.stores.put import put_by_rename, put_on_disk, remove_left_files, way_to_put

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

T = TypeVar("T")

#: Tries of s3fs: every failure reaches the host, which checks what is there, and decides when to retry.
_S3_TRIES: Final = 1


class StoreFolder(ObjectStore):
    """A folder, and the client that reaches it.

    :param uri: The folder.
    :param options: For the file system; they win over the defaults that are set here.
    :param timeout_seconds: The time that a server may be silent.
    """

    def __init__(self, uri: str, options: Mapping[str, Any], timeout_seconds: float) -> None:
        self._uri = uri
        self._options = _options(uri, options, timeout_seconds)
        self._answer_seconds = max(ANSWER_SECONDS, 2 * timeout_seconds)
        self._of_thread = threading.local()
        root = self._connect()
        self._shared = root if is_thread_safe(root.filesystem) else None
        self._put = way_to_put(root.filesystem)

    def _connect(self) -> Location:
        root = Location.of(self._uri, self._options)
        _limit_retries(root.filesystem)
        return attrs.evolve(root, answer_seconds=self._answer_seconds)

    def _at(self, path: str) -> Location:
        if self._shared is not None:
            return self._shared.below(path)
        if not hasattr(self._of_thread, "root"):
            self._of_thread.root = self._connect()
        root: Location = self._of_thread.root
        return root.below(path)

    def _asked(self, question: Callable[[], T]) -> T:
        """Ask, and connect anew after a failure: a late answer would be read as that of the next question."""
        try:
            return question()
        except Unreachable:
            vars(self._of_thread).pop("root", None)
            raise

    def uri(self, path: str) -> str:
        """See :class:`ObjectStore`."""
        place = self._at(path)
        return str(place.filesystem.unstrip_protocol(place.path))

    def size(self, path: str) -> int | None:
        """See :class:`ObjectStore`.

        :raises IsADirectoryError: There is a folder of that name, where that excludes a file.
        """
        place = self._at(path)
        info = self._asked(place.info)
        if info is None or info["type"] == "file":
            return None if info is None else int(info["size"])
        if self._put in (put_on_disk, put_by_rename):
            raise IsADirectoryError(errno.EISDIR, "there is a folder of that name", place.path)
        return None

    def pieces(self, path: str, size: int, content: Content) -> Iterator[bytes]:
        """See :class:`ObjectStore`."""
        place = self._at(path)
        filesystem = place.filesystem
        if isinstance(filesystem, AsyncFileSystem):
            for start in range(0, size, PIECE_BYTES):
                content.go_on()
                yield filesystem.cat_file(place.path, start=start, end=min(start + PIECE_BYTES, size))
            return
        with filesystem.open(place.path, "rb") as file:
            while piece := file.read(PIECE_BYTES):
                content.go_on()
                yield piece

    def put(self, content: Content, path: str) -> None:
        """See :class:`ObjectStore`."""
        place = self._at(path)
        self._put(place.filesystem, content, place.path)

    def names(self, path: str) -> list[str]:
        """List the names right below a folder; none if it is not there, or may not be listed."""
        return _if_allowed(lambda: self._asked(self._at(path).names)) or []

    def read(self, path: str) -> bytes | None:
        """Return the content of a small object; None if it is not there, or may not be read."""
        return _if_allowed(lambda: self._asked(self._at(path).read))

    def remove_leftovers(self, path: str) -> None:
        """Remove the files that dead processes have left below a folder of the place."""
        if self._put in (put_on_disk, put_by_rename):
            place = self._at(path)
            remove_left_files(place.filesystem, place.path)


def _if_allowed(ask: Callable[[], T]) -> T | None:
    """Return the answer; None if these credentials may write and not look."""
    try:
        return ask()
    except StoreError as error:
        if is_denied(error):
            return None
        raise


def _limit_retries(filesystem: "AbstractFileSystem") -> None:
    """Let failures reach the host soon: it retries itself, and knows when the run is ending."""
    if hasattr(filesystem, "call_s3"):
        filesystem.retries = _S3_TRIES
    # gcsfs tries for half a minute, and takes no setting for that: what it wraps in retries is one request.
    if request := getattr(getattr(type(filesystem), "_request", None), "__wrapped__", None):
        filesystem._request = partial(request, filesystem)


def _options(uri: str, options: Mapping[str, Any], timeout_seconds: float) -> dict[str, Any]:
    """Return the options of the file system: no listing is cached, and every wait for a server has a limit."""
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
