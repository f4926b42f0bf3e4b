"""Errors of stores: one class for each thing that a store can mean.

Every client of a store has errors of its own, and wraps those of the libraries below it. What they have in common is an
HTTP status somewhere in the chain of causes; what they do not, is known here by name, so that no client is imported.
"""

import errno
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from hostcore_builtin_plugins.http_exchange import is_transient_status, retry_after_seconds
from hostcore_hookspecs import FatalError, HostcoreError, InvalidData, TransientError


class StoreError(HostcoreError):
    """A store cannot be opened, read or written.

    :param is_transient: True if another try may succeed.
    :param retry_after_seconds: The pause that the server asked for; None if it asked for none.
    """

    code = "store.unreadable"

    def __init__(
        self, message: str, *, is_transient: bool = False, retry_after_seconds: float | None = None, **where: Any
    ) -> None:
        super().__init__(message, **where)
        self.is_transient = is_transient
        self.retry_after_seconds = retry_after_seconds


class ObjectMissing(StoreError):
    """There is nothing of that name."""

    code = "store.missing"


class AccessDenied(StoreError):
    """The credentials do not allow the request, or there are none."""

    code = "store.denied"


class StoreFull(StoreError):
    """The disk or the quota has no room."""

    code = "store.no_space"


class LocalPathError(StoreError):
    """A path of this machine cannot be used."""

    code = "store.local"


class WrongContent(StoreError):
    """The content is not what it should be."""

    code = "store.content"


class Unreachable(StoreError):
    """No answer, or none about the content, which is unknown."""

    code = "store.unreachable"


#: S3's names for an upload that did not arrive as it was sent, or that another process has aborted.
_TRANSIENT_CODES: Final = frozenset(
    {"BadDigest", "IncompleteBody", "InvalidPart", "NoSuchUpload", "RequestTimeout", "XAmzContentSHA256Mismatch"}
)
#: Exceptions of clients that did not get as far as a server: it does not know who asks.
_WITHOUT_CREDENTIALS: Final = frozenset(
    {
        "NoCredentialsError",  # botocore
        "PartialCredentialsError",
        "ProfileNotFound",
        "DefaultCredentialsError",  # google.auth
        "ClientAuthenticationError",  # azure.core
        "CredentialUnavailableError",  # azure.identity
    }
)
#: Of wrapped exceptions, their text alone is left. A URL may have the word as well.
_NO_CREDENTIALS: Final = re.compile(r"(unable to locate|could not (find|determine|load)|no|missing) credentials", re.I)
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_PERMANENT_ERRNOS: Final = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.EISDIR,
        errno.ENOTDIR,
        errno.ENAMETOOLONG,
        errno.EINVAL,
        errno.ENOSYS,
    }
)
#: Libraries that speak to a server: everything that they raise, but bugs, is the network's.
_CLIENTS: Final = frozenset(
    {
        *("aiohttp", "azure", "botocore", "aiobotocore", "ftplib", "gcsfs", "google", "httpx", "httpx2"),
        *("paramiko", "requests", "smbprotocol", "urllib3"),
    }
)
#: Where clients keep the HTTP status.
_STATUS_ATTRIBUTES: Final = ("status_code", "status", "code")

_CHECK_NAME: Final = "look whether the name is right, and whether the credentials belong to the right account"
_CHECK_STORE: Final = "look whether the store is up, and whether this machine gets there; then try again"
_CHECK_PATH: Final = "give the user that runs the job the right to use it"
_CHECK_FOLDERS: Final = f"{_CHECK_PATH}; HOSTCORE_CACHE_DIR and HOSTCORE_RUNS_DIR name the folders of this machine"
_CHECK_OPTIONS: Final = "see the documentation of fsspec for the store's options"
_CREDENTIALS: Final = (
    "give credentials that allow this: in the environment, as the store's own tools take them, or in storage_options"
)


def meaning(error: Exception, uri: str, pointer: str | None = None) -> HostcoreError | None:
    """Return the error to raise for an exception of a store's client; None for an unknown exception, perhaps a bug.

    :param uri: Of the object.
    :param pointer: The place in the job that names it.
    """
    if isinstance(error, HostcoreError):
        return error
    if isinstance(error, FileNotFoundError) and (unanswered := _unanswered(error.__cause__)) is not None:
        return meaning(unanswered, uri, pointer)
    status, retry_after = _answer(error)
    where: dict[str, Any] = {"pointer": pointer, "file": uri}
    if (status is not None and is_transient_status(status)) or error_code(error) in _TRANSIENT_CODES:
        where.update(is_transient=True, retry_after_seconds=retry_after, hint=_CHECK_STORE)
        return Unreachable(f"{uri} cannot be reached: {_text(error)}", **where)
    if isinstance(error, FileNotFoundError):
        return ObjectMissing(f"there is nothing at {uri}", is_transient=status is None, hint=_CHECK_NAME, **where)
    return _of_this_machine(error, uri, where) or _of_the_way(error, uri, where, status)


def _of_this_machine(error: Exception, uri: str, where: dict[str, Any]) -> StoreError | None:
    """Return the error for a disk or a path; a server gives no error number."""
    if not isinstance(error, OSError) or error.errno is None:
        return None
    file = str(error.filename or uri)
    if is_no_space(error):
        where = {**where, "file": file, "hint": "make room; nothing half-written was left", "is_transient": True}
        return StoreFull(f"the disk is full: there is no room for {uri}", **where)
    if not error.filename or isinstance(error, FileNotFoundError | TimeoutError | ConnectionError):
        return None
    message = f"{file} cannot be used{'' if file in uri else f' for {uri}'}: {str(error.strerror).lower()}"
    transient = error.errno not in _PERMANENT_ERRNOS
    return LocalPathError(message, is_transient=transient, hint=_CHECK_FOLDERS, **{**where, "file": file})


def _of_the_way(error: Exception, uri: str, where: dict[str, Any], status: int | None) -> StoreError | None:
    """Return the error for a server, or for the network before it."""
    text = _text(error)
    is_silent = isinstance(error, TimeoutError | ConnectionError | EOFError)
    if is_denied(error) or status == 401 or (not is_silent and _lacks_credentials(error)):
        return AccessDenied(f"{uri}: permission denied: {text}", hint=_CREDENTIALS, **where)
    if isinstance(error, ValueError | ImportError | TypeError):
        return Unreachable(f"{uri} cannot be used: {text}", hint=_CHECK_OPTIONS, **where)
    is_refused = status in range(400, 500)
    is_remote = is_silent or is_refused or is_of_a_client(error)
    if not is_remote and not isinstance(error, OSError):
        return None
    is_transient = is_silent or not (is_refused or getattr(error, "errno", None) in _PERMANENT_ERRNOS)
    message = f"{uri} cannot be {'reached' if is_remote else 'used'}: {text}"
    return Unreachable(message, is_transient=is_transient, hint=_CHECK_STORE, **where)


@contextmanager
def store_errors(uri: str, *, pointer: str | None = None) -> Iterator[None]:
    """Turn exceptions of a store's client, and of this machine's disk, into :class:`StoreError`, unknown ones too.

    :param uri: Of the object.
    :param pointer: The place in the job that names it.
    """
    try:
        yield
    except HostcoreError:
        raise
    except Exception as error:
        found = meaning(error, uri, pointer)
        if found is None:
            message = f"{uri} cannot be reached: {_text(error)}"
            found = Unreachable(message, pointer=pointer, file=uri, hint=_CHECK_STORE, is_transient=True)
        raise found from error


@contextmanager
def upload_errors(uri: str) -> Iterator[None]:
    """Turn exceptions of a store's client into the errors of the uploaders' contract; an unknown one stays as it is."""
    try:
        yield
    except Exception as error:
        found = meaning(error, uri)
        if isinstance(found, StoreError):
            where = {"file": found.file, "hint": found.hint}
            if found.is_transient:
                after = found.retry_after_seconds
                raise TransientError(found.message, retry_after_seconds=after, **where) from error
            raise FatalError(found.message, **where) from error
        raise


@contextmanager
def data_errors(uri: str, pointer: str | None = None) -> Iterator[None]:
    """Turn exceptions of the operating system and of a store's client into :class:`InvalidData`.

    :param uri: The file, or the entry of the job that led to it.
    :param pointer: The place in the job that names it.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, StoreError | OSError) and not is_of_a_client(error):
            raise  # such as a value that the reader of a format refuses
        found = meaning(error, str(getattr(error, "filename", None) or uri), pointer)
        assert found is not None
        is_local = isinstance(error, OSError) and "://" not in str(found.file)
        hint = _CHECK_PATH if is_local and not isinstance(found, ObjectMissing) else found.hint
        raise InvalidData(found.message, pointer=pointer, file=found.file, hint=hint) from error


def is_no_space(error: Exception) -> bool:
    """Return True if the disk or the quota is full."""
    return isinstance(error, OSError) and error.errno in _NO_SPACE


def is_denied(error: Exception) -> bool:
    """Return True if the store does not let these credentials do this."""
    if isinstance(error, AccessDenied | PermissionError) or isinstance(error.__cause__, PermissionError):
        return True
    return _answer(error)[0] == 403 or str(error).startswith("Forbidden")  # gcsfs has no status for it


def error_code(error: BaseException) -> str | None:
    """Return the name that S3 gave to an error, such as ``NoSuchUpload``; None if it gave none."""
    for one in _chain(error):
        response = getattr(one, "response", None)
        if isinstance(response, Mapping):
            return str(response.get("Error", {}).get("Code"))
    return None


def is_of_a_client(error: Exception) -> bool:
    """Return True for an exception of a library that speaks to a server."""
    return not _CLIENTS.isdisjoint(_packages(error))


def _packages(error: BaseException | None) -> set[str]:
    return {base.__module__.partition(".")[0] for base in type(error).__mro__}


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _lacks_credentials(error: Exception) -> bool:
    names = {type(one).__name__ for one in _chain(error)}
    # A role or a program that gives credentials may fail for a moment; the text would count as none at all.
    has_text = _NO_CREDENTIALS.search(str(error)) is not None and "CredentialRetrievalError" not in names
    return has_text or not _WITHOUT_CREDENTIALS.isdisjoint(names)


def _unanswered(cause: BaseException | None) -> Exception | None:
    """Return the cause of a "not found" that is no answer of the server: over HTTP, fsspec has one error for both."""
    is_network = isinstance(cause, ConnectionError | TimeoutError) or "aiohttp" in _packages(cause)
    if not isinstance(cause, Exception) or not is_network or getattr(cause, "status", None) in (404, 410):
        return None
    return cause


def _answer(error: BaseException) -> tuple[int | None, float | None]:
    """Return the HTTP status, and the pause that the server asked for."""
    for one in _chain(error):
        if _is_broken_off(one):
            continue
        response = getattr(one, "response", None)
        if isinstance(response, Mapping):  # botocore
            metadata = response.get("ResponseMetadata", {})
            found, headers = metadata.get("HTTPStatusCode"), metadata.get("HTTPHeaders", {})
        else:
            attributes = (getattr(one, name, None) for name in _STATUS_ATTRIBUTES)
            found = next((value for value in map(_status, attributes) if value), None)
            headers = getattr(response, "headers", None) or getattr(one, "headers", None) or {}
        if found:
            asked = headers.get("retry-after") or headers.get("Retry-After") if isinstance(headers, Mapping) else None
            return int(found), retry_after_seconds(asked)
    return None, None


def _is_broken_off(error: BaseException) -> bool:
    """Return True for aiohttp's errors of an answer that was cut short, whose ``code`` is no server's."""
    return any(
        (base.__module__, base.__name__) == ("aiohttp.client_exceptions", "ClientPayloadError")
        or base.__module__ == "aiohttp.http_exceptions"
        for base in type(error).__mro__
    )


def _status(value: Any) -> int | None:
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    return int(text) if len(text) == 3 and text.isascii() and text.isdigit() else None


def _text(error: BaseException) -> str:
    """Return the first message in the chain, with its class; some exceptions have none, such as fsspec's timeout."""
    texts = ((type(one).__name__, " ".join(str(one).split())) for one in _chain(error))
    return next((f"{name}: {text}" for name, text in texts if text), type(error).__name__)
