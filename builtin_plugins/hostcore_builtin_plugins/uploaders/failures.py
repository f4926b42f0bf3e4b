"""What a store says, as an error that tells the host whether to try again.

Every client of a store has errors of its own, and wraps those of the libraries below it. What they have in common is an
HTTP status somewhere in the chain of causes; what they do not, is known here by name, so that no client is imported.
"""

import errno
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hostcore_builtin_plugins.http_endpoint import retry_after_seconds
from hostcore_hookspecs import FatalError, HostcoreError, TransientError

#: Refusals that a later try may not meet: a timeout, a conflict with another request, too many requests.
_TRANSIENT_REFUSALS: Final = frozenset({408, 409, 425, 429})
#: Server errors that say that the server will never do this.
_PERMANENT_FAILURES: Final = frozenset({501, 505})

#: What S3 calls an upload that did not arrive as it was sent, or that another process has aborted.
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
#: Where clients keep the HTTP status.
_STATUS_ATTRIBUTES: Final = ("status_code", "status", "code")

_CREDENTIALS_HINT: Final = (
    "put credentials into storage_options, or into the environment as the store's client takes them"
)


def is_transient_status(status: int) -> bool:
    """Whether what an HTTP server answered may be another answer when asked again."""
    return status in _TRANSIENT_REFUSALS or (status >= 500 and status not in _PERMANENT_FAILURES)


def failure_of(error: Exception, uri: str) -> HostcoreError | None:
    """What to raise for an exception of a store's client; None for one that is not known: it may be a bug.

    :param uri: Where the object is, or was to be.
    """
    if isinstance(error, HostcoreError):
        return error
    status, retry_after = _answer(error)
    text = _text(error)
    if any(type(one).__name__ in _WITHOUT_CREDENTIALS for one in _chain(error)):
        return FatalError(f"{uri}: {text}", file=uri, hint=_CREDENTIALS_HINT)
    if (status is not None and is_transient_status(status)) or error_code(error) in _TRANSIENT_CODES:
        return TransientError(f"{uri}: {text}", file=uri, retry_after_seconds=retry_after)
    if is_denied(error) or status == 401:
        hint = "the credentials must allow to read and write objects there"
        return FatalError(f"{uri}: permission denied: {text}", file=uri, hint=hint)
    if isinstance(error, TimeoutError | ConnectionError):
        return TransientError(f"{uri}: {text}", file=uri)
    if status is not None and 400 <= status < 500:
        return FatalError(f"{uri}: {text}", file=uri)
    if isinstance(error, ValueError | ImportError | TypeError):
        return FatalError(f"{uri}: {text}", file=uri, hint="see the documentation of fsspec for the store's options")
    if isinstance(error, OSError):
        kind = FatalError if error.errno in _PERMANENT_ERRNOS else TransientError
        return kind(f"{uri}: {text}", file=uri)
    if _is_of_a_client(error):
        return TransientError(f"{uri}: {text}", file=uri)
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _answer(error: BaseException) -> tuple[int | None, float | None]:
    """The HTTP status, and how long the server asked to be left alone."""
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
    """Whether it is one of aiohttp's for an answer that was cut short, whose ``code`` is no server's."""
    return any(
        (base.__module__, base.__name__) == ("aiohttp.client_exceptions", "ClientPayloadError")
        or base.__module__ == "aiohttp.http_exceptions"
        for base in type(error).__mro__
    )


def is_denied(error: Exception) -> bool:
    """Whether the store does not let these credentials do this."""
    # gcsfs says it in words alone.
    return isinstance(error, PermissionError) or _answer(error)[0] == 403 or str(error).startswith("Forbidden")


def error_code(error: BaseException) -> str | None:
    """The name that S3 gave to an error, such as ``NoSuchUpload``; None if it gave none."""
    for one in _chain(error):
        response = getattr(one, "response", None)
        if isinstance(response, Mapping):
            return str(response.get("Error", {}).get("Code"))
    return None


def _status(value: Any) -> int | None:
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    return int(text) if len(text) == 3 and text.isascii() and text.isdigit() else None


def _text(error: Exception) -> str:
    texts = (" ".join(str(one).split()) for one in _chain(error))  # fsspec's own for a timeout has none
    return next((text for text in texts if text), type(error).__name__)


def _is_of_a_client(error: Exception) -> bool:
    """Whether it comes from a library that speaks to a server: there, everything but bugs is the network's."""
    packages = {base.__module__.partition(".")[0] for base in type(error).__mro__}
    return bool(
        packages & {"aiohttp", "azure", "botocore", "aiobotocore", "gcsfs", "google", "paramiko", "requests", "urllib3"}
    )
