"""Errors of answers of a service, as local commands show them."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import orjson

from hostcore.errors import Errors
from hostcore_hookspecs.errors import HostcoreError, TransientError

_PROBLEM: Final = "application/problem+json"
_URL_HINT: Final = "is that the URL that `hostcore serve` has printed?"
_TOKEN_HINT: Final = "export TRAINER_API_TOKEN=…  (the operator of the service knows its value)"  # noqa: S105 - no value


#: What a service answers, or what stands before it, that another try may change.
_RETRYABLE: Final = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)


class ServiceUnreachable(HostcoreError):
    """The service does not answer."""

    code = "service.unreachable"


class Unavailable(ServiceUnreachable, TransientError):
    """No answer, or an answer that another try may change. Its code is that of the answer, if that has one.

    :param after_seconds: The wait that the service requests.
    """

    def __init__(self, message: str, *, after_seconds: float = 0.0, **more: Any) -> None:
        super().__init__(message, **more)
        self.after_seconds = after_seconds


class ForeignAnswer(HostcoreError):
    """Something answers, and it is not the service."""

    code = "service.foreign"


def error_of(url: str, status: int, headers: Mapping[str, str], body: bytes) -> HostcoreError:
    """Return the error of an answer.

    :param url: Of the service.
    :param status: Not one of the 200s.
    """
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        to = headers.get("Location", "elsewhere")
        return ForeignAnswer(f"{url} redirects to {to}", hint="redirects are not followed: name the service's own URL")
    errors = _problems_in(headers, body)
    if not errors:
        return _without_problem(url, status, headers)
    if status == HTTPStatus.UNAUTHORIZED:
        return HostcoreError(
            f"the service wants a token: {errors[0].message}", code="request.unauthorized", hint=_TOKEN_HINT
        )
    if errors[0].code == "request.not_found":
        told = f"{url} does not know what was asked: {errors[0].message}"
        return ForeignAnswer(told, code="request.not_found", hint=_URL_HINT)
    error = errors[0] if len(errors) == 1 else Errors(errors)
    if status in _RETRYABLE:
        after = _retry_after_seconds(headers)
        return Unavailable(error.message, code=errors[0].code, hint=errors[0].hint, after_seconds=after)
    return error


def _problems_in(headers: Mapping[str, str], body: bytes) -> list[HostcoreError]:
    """Read the errors of a problem document; none if there is no such document."""
    if headers.get("Content-Type", "").partition(";")[0].strip() != _PROBLEM:
        return []
    try:
        problem: dict[str, Any] = orjson.loads(body)
        code = str(problem.get("type", "")).removeprefix("urn:hostcore:problem:") or "service.problem"
        details = problem.get("errors") or [{"detail": problem["detail"], "code": code}]
        return [
            HostcoreError(str(one["detail"]), code=one["code"], pointer=one.get("pointer"), hint=one.get("hint"))
            for one in details
        ]
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return []


def _without_problem(url: str, status: int, headers: Mapping[str, str]) -> HostcoreError:
    try:
        said = f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        said = str(status)
    hint = "what stands before the service may know more"
    if status in _RETRYABLE:
        return Unavailable(f"{url} answers {said}", hint=hint, after_seconds=_retry_after_seconds(headers))
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ServiceUnreachable(f"{url} answers {said}", hint=hint)
    kind = headers.get("Content-Type", "") or "no content"
    return ForeignAnswer(f"{url} is no hostcore service: it answers {said}, {kind}", hint=_URL_HINT)


def _retry_after_seconds(headers: Mapping[str, str]) -> float:
    from hostcore_builtin_plugins.http_exchange import retry_after_seconds

    return retry_after_seconds(headers.get("Retry-After")) or 0.0


def no_json(url: str) -> ForeignAnswer:
    """Return the error of an answer that is no JSON."""
    return ForeignAnswer(f"{url} is no hostcore service: its answer is not JSON", hint=_URL_HINT)
