"""What a service answers when it does not give what was asked for: as the errors that local commands show."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import orjson

from hostcore.errors import Errors
from hostcore_hookspecs.errors import HostcoreError

_PROBLEM: Final = "application/problem+json"
_URL_HINT: Final = "is that the URL that `hostcore serve` has printed?"
_TOKEN_HINT: Final = "export TRAINER_API_TOKEN=…  (the operator of the service knows its value)"  # noqa: S105 - no value


class ServiceUnreachable(HostcoreError):
    """The service does not answer, or not now."""

    code = "service.unreachable"


class ForeignAnswer(HostcoreError):
    """Something answers, and it is not the service."""

    code = "service.foreign"


def error_of(url: str, status: int, headers: Mapping[str, str], body: bytes) -> HostcoreError:
    """The error behind an answer.

    :param url: Of the service.
    :param status: Not one of the 200s.
    """
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        to = headers.get("Location", "elsewhere")
        return ForeignAnswer(f"{url} redirects to {to}", hint="redirects are not followed: name the service's own URL")
    errors = _told(headers, body)
    if not errors:
        return _without_words(url, status, headers)
    if status == HTTPStatus.UNAUTHORIZED:
        return HostcoreError(
            f"the service wants a token: {errors[0].message}", code="request.unauthorized", hint=_TOKEN_HINT
        )
    if errors[0].code == "request.not_found":
        told = f"{url} does not know what was asked: {errors[0].message}"
        return ForeignAnswer(told, code="request.not_found", hint=_URL_HINT)
    return errors[0] if len(errors) == 1 else Errors(errors)


def _told(headers: Mapping[str, str], body: bytes) -> list[HostcoreError]:
    """What a problem document tells; nothing if there is none."""
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


def _without_words(url: str, status: int, headers: Mapping[str, str]) -> HostcoreError:
    try:
        said = f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        said = str(status)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ServiceUnreachable(f"{url} answers {said}", hint="what stands before the service may know more")
    kind = headers.get("Content-Type", "") or "no content"
    return ForeignAnswer(f"{url} is no hostcore service: it answers {said}, {kind}", hint=_URL_HINT)


def no_json(url: str) -> ForeignAnswer:
    """The error behind an answer that is no JSON."""
    return ForeignAnswer(f"{url} is no hostcore service: its answer is not JSON", hint=_URL_HINT)
