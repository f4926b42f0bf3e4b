"""Refusals of an API server, as hostcore's errors."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import attrs

from hostcore_hookspecs import FatalError, TransientError

Object = dict[str, Any]

_BUSY: Final = frozenset({408, 425, 429})


class AlreadyExists(Exception):
    """There is an object of that name."""


class NotFound(Exception):
    """There is no such object, or nothing of that kind."""


class ServerFailed(TransientError):
    """The server has failed at a request (500), which may have been carried out all the same."""


@attrs.frozen(kw_only=True)
class ResourceKind:
    """A kind of object that an operator has brought."""

    name: str
    group: str
    version: str
    plural: str
    #: What to install for it.
    operator: str

    @property
    def api_version(self) -> str:
        """As manifests have it."""
        return f"{self.group}/{self.version}"


def checked(response: Any) -> Any:
    """A response that was not read yet, if it is none of an error: not all versions of the client look themselves."""
    if response.status >= 400:
        from kubernetes.client.exceptions import ApiException

        error = ApiException(status=response.status, reason=response.reason)
        error.body, error.headers = response.data, response.headers
        raise error
    return response


@contextmanager
def errors(what: str, kind: ResourceKind | None = None, *, not_begun: bool = False) -> Iterator[None]:
    """Translate the client's exceptions.

    :param what: The requested object, in words.
    :param kind: The kind of the object, if an operator defines it: a missing kind gets an error of its own.
    :param not_begun: Whether a bad request means that the container has not begun.
    :raises AlreadyExists, NotFound: From the server's status.
    :raises FatalError: It refuses, with its own message.
    :raises TransientError: It does not answer, or is busy; :class:`ServerFailed`: it has failed.
    """
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ApiException as error:
        raise _translated(error, what, kind, not_begun=not_begun) from error
    except HTTPError as error:
        raise TransientError(f"the API server does not answer: {error}") from error


def _translated(error: Any, what: str, kind: ResourceKind | None, *, not_begun: bool) -> Exception:
    status = int(error.status or 0)
    reason, message = _told(error)
    if status == 409 and reason != "Conflict":
        return AlreadyExists(message)
    if status == 404 and (kind is None or _is_missing_object(error, kind)):
        return NotFound(message)
    if status == 400 and not_begun:
        return NotFound(message)
    if status == 500:
        return ServerFailed(f"{what}: {message}", retry_after_seconds=_retry_after(error))
    if status in _BUSY or status >= 500 or status == 409:
        return TransientError(f"{what}: {message}", retry_after_seconds=_retry_after(error))
    hint, pointer = _advice(status, message, kind)
    return FatalError(f"{what}: {message}", hint=hint, pointer=pointer)


def _advice(status: int, message: str, kind: ResourceKind | None) -> tuple[str | None, str | None]:
    if status == 401:
        return "log in to the cluster again; `kubectl auth whoami` shows whom it takes you for", None
    if status == 403:
        return "ask an administrator for the rights that the documentation lists, or choose another namespace", None
    if status == 404 and kind is not None:
        if message.startswith("namespaces "):
            return "create the namespace, or name another", "/resources/namespace"
        return f"install {kind.operator}, which brings {kind.plural}.{kind.group}", "/launcher"
    return None, None


def _told(error: Any) -> tuple[str, str]:
    """Reason and message of the server's ``Status``."""
    body = _body(error)
    message = body.get("message") or f"{error.status} {error.reason}"
    return str(body.get("reason") or ""), " ".join(str(message).split())


def _body(error: Any) -> Object:
    try:
        body = json.loads(error.body or b"{}")
    except (TypeError, ValueError):  # a proxy's page
        return {}
    return body if isinstance(body, dict) else {}


def _is_missing_object(error: Any, kind: ResourceKind) -> bool:
    """Return whether the object is missing, and not its kind or its namespace."""
    details = _body(error).get("details") or {}
    return bool(details.get("name")) and details.get("kind") == kind.plural


def _retry_after(error: Any) -> float | None:
    text: str | None = (error.headers or {}).get("Retry-After")
    return float(text) if text and text.isdecimal() else None
