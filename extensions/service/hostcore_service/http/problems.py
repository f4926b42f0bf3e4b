"""Errors as ``application/problem+json`` (RFC 9457), with JSON pointers for what is wrong in a body."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from hostcore.errors import all_errors
from hostcore.job.pointers import escaped
from hostcore.secrets.scrub import scrub
from hostcore_hookspecs.errors import HostcoreError
from hostcore_service.guard.server_paths import without_places
from hostcore_service.http.methods import allowed
from hostcore_service.http.wording import in_words

MEDIA_TYPE: Final = "application/problem+json"

#: The status of an error by its code; all others are what is wrong with the job: 400.
_STATUSES: Final = {
    "job.exists": HTTPStatus.CONFLICT,
    "run.conflict": HTTPStatus.CONFLICT,
    "run.corrupt": HTTPStatus.INTERNAL_SERVER_ERROR,
    "run.unknown": HTTPStatus.NOT_FOUND,
    "run.unknown_attempt": HTTPStatus.NOT_FOUND,
    "checkpoint.not_found": HTTPStatus.NOT_FOUND,
    "file.unknown": HTTPStatus.NOT_FOUND,
    "run.unknown_rank": HTTPStatus.NOT_FOUND,
    "run.unseen": HTTPStatus.NOT_FOUND,
    "run.unreadable": HTTPStatus.INTERNAL_SERVER_ERROR,
    "policy.denied": HTTPStatus.FORBIDDEN,
    "request.too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "request.media_type": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    "request.too_many": HTTPStatus.TOO_MANY_REQUESTS,
    "request.range": HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
    "request.unauthorized": HTTPStatus.UNAUTHORIZED,
    "request.forbidden": HTTPStatus.FORBIDDEN,
    "request.key_reused": HTTPStatus.UNPROCESSABLE_ENTITY,
    "service.busy": HTTPStatus.SERVICE_UNAVAILABLE,
    "service.full": HTTPStatus.TOO_MANY_REQUESTS,
    "service.database": HTTPStatus.SERVICE_UNAVAILABLE,
    "service.launcher": HTTPStatus.BAD_GATEWAY,
    "store.denied": HTTPStatus.BAD_GATEWAY,
    "store.unreachable": HTTPStatus.SERVICE_UNAVAILABLE,
}


class ProblemDetail(BaseModel):
    """One thing that is wrong."""

    pointer: str | None = Field(description="Where in the body: a JSON pointer (RFC 6901).", examples=["/max_steps"])
    code: str = Field(description="Stable; for programs.", examples=["value.type"])
    detail: str = Field(description="What is wrong, in a sentence.", examples=['expected an integer, found "ten"'])
    hint: str | None = Field(description="What to do about it.")


class Problem(BaseModel):
    """Body of every error response."""

    type: str = Field(description="Names the kind of problem.", examples=["urn:hostcore:problem:value.type"])
    title: str = Field(description="The kind of problem in words.", examples=["Bad Request"])
    status: int = Field(description="The HTTP status.", examples=[400])
    detail: str = Field(description="What is wrong, in a sentence.")
    errors: list[ProblemDetail] = Field(default_factory=list, description="Everything that is wrong, one by one.")


class RequestError(HostcoreError):
    """A request that cannot be answered, whatever the job in it."""

    code = "request.invalid"

    def __init__(self, message: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> None:
        super().__init__(message, **more)
        self.headers = dict(headers or {})


def problem(status: int, errors: Sequence[HostcoreError], headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The response for errors. It shows no secret, and no place of this machine but those in the job itself."""
    first = errors[0]
    details = [
        ProblemDetail(
            pointer=scrub(one.pointer) if one.pointer else one.pointer,
            code=one.code,
            detail=without_places(scrub(one.message)),
            hint=without_places(scrub(one.hint)) if one.hint else None,
        )
        for one in errors
    ]
    body = Problem(
        type=f"urn:hostcore:problem:{first.code}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail="; ".join(one.detail for one in details),
        errors=details,
    )
    return JSONResponse(body.model_dump(), status_code=status, media_type=MEDIA_TYPE, headers=dict(headers or {}))


def status_of(error: HostcoreError) -> int:
    """The HTTP status of an error."""
    return _STATUSES.get(error.code, HTTPStatus.BAD_REQUEST)


async def on_hostcore_error(_request: Request, error: Exception) -> JSONResponse:
    """Respond to a user's error with its status and all its problems."""
    assert isinstance(error, HostcoreError)
    errors = all_errors(error)
    return problem(status_of(errors[0]), errors, getattr(error, "headers", None))


async def on_validation_error(_request: Request, error: Exception) -> JSONResponse:
    """A query or a path that is not of its type."""
    assert isinstance(error, RequestValidationError)
    errors = [
        RequestError(in_words(one), pointer="".join(f"/{escaped(str(part))}" for part in one["loc"]))
        for one in error.errors()
    ]
    return problem(HTTPStatus.BAD_REQUEST, errors)


async def on_http_error(request: Request, error: Exception) -> JSONResponse:
    """No such route, or not with this method."""
    assert isinstance(error, HTTPException)
    code = "request.not_found" if error.status_code == HTTPStatus.NOT_FOUND else "request.refused"
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:  # of one route; others of the path take other methods
        headers["Allow"] = ", ".join(sorted(allowed(request.scope)))
    return problem(error.status_code, [RequestError(str(error.detail), code=code)], headers)


async def on_database_error(_request: Request, _error: Exception) -> JSONResponse:
    """Respond 503: the database does not answer, or is gone; ``/readyz`` distinguishes the two."""
    error = RequestError(
        "the database of the service does not answer", code="service.database", hint="try again in a moment"
    )
    return problem(HTTPStatus.SERVICE_UNAVAILABLE, [error], {"Retry-After": "5"})


async def on_defect(_request: Request, _error: Exception) -> JSONResponse:
    """Respond 500 to a defect of the service; its log has the traceback."""
    message = "the service has failed at this request; its log has the reason"
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, [RequestError(message, code="service.defect")])
