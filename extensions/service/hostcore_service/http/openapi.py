"""Additions to FastAPI's OpenAPI document: bodies that are read by hand, and problems."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import attrs
from fastapi import FastAPI
from pydantic import BaseModel

from hostcore.job.schema import job_schema
from hostcore_service.http.body import MAX_BYTES
from hostcore_service.http.problems import MEDIA_TYPE, Problem, ProblemDetail

_COMPONENTS: Final = "#/components/schemas/"
_JOB: Final = "hostcore.job"
_PROBLEM: Final = Problem.__name__
#: FastAPI's schemas for 422 responses: such requests are answered with 400 here.
_FASTAPIS: Final = ("HTTPValidationError", "ValidationError")

#: For ``responses``, by status.
Answers = dict[int | str, dict[str, Any]]
Headers = dict[str, dict[str, Any]]


def header(name: str, description: str, *, schema: str = "string") -> Headers:
    """A header of an answer."""
    return {name: {"description": description, "schema": {"type": schema}}}


def answer(description: str, example: Any, headers: Headers | None = None) -> dict[str, Any]:
    """An answer in JSON."""
    return {"description": description, "content": {"application/json": {"example": example}}, "headers": headers or {}}


CREATED: Final[Headers] = {
    **header("Location", "Where it is looked at."),
    **header("Idempotent-Replayed", "`true`, if the same request was made before and has made this job."),
}
_WAIT: Final = header("Retry-After", "After so many seconds.", schema="integer")


@attrs.frozen
class _ErrorExample:
    """Reason for an error response, with an example of its problem."""

    description: str
    code: str
    detail: str
    hint: str | None = None
    pointer: str | None = None
    headers: Headers = attrs.field(factory=dict)


_REFUSALS: Final[Mapping[int, _ErrorExample]] = {
    400: _ErrorExample(
        "The body or a parameter is wrong, or the job has something that is not allowed.",
        "value.type",
        'expected an integer of at least 0, found "ten"',
        pointer="/max_steps",
    ),
    401: _ErrorExample(
        "The token is missing or wrong.",
        "request.unauthorized",
        "the token is not the right one",
        "send the value of the service's TRAINER_API_TOKEN in X-TRAINER-TOKEN",
        headers=header("WWW-Authenticate", "`Bearer`; the token may come in `X-TRAINER-TOKEN` as well."),
    ),
    403: _ErrorExample(
        "A policy denies the job; or, where no token is needed, another site's page asks.",
        "policy.denied",
        "the image is not on the list",
    ),
    404: _ErrorExample(
        "There is no such job, or nothing of that name in it.", "run.unknown", "there is no job 'digits-1'"
    ),
    409: _ErrorExample(
        "There is such a job already.", "job.exists", "there is a job 'digits-1' already", pointer="/run_id"
    ),
    413: _ErrorExample("The body is too long.", "request.too_large", f"the body is longer than {MAX_BYTES:,} bytes"),
    415: _ErrorExample(
        "The body is not JSON.",
        "request.media_type",
        "the body is 'text/plain', not JSON",
        "send it as Content-Type: application/json",
    ),
    416: _ErrorExample(
        "The file has nothing of the range that `Range` asks for.",
        "request.range",
        "the file has 1,796 bytes, and none of this range",
        headers=header("Content-Range", "`bytes */<size>`"),
    ),
    422: _ErrorExample(
        "The `Idempotency-Key` was used before, for another request.",
        "request.key_reused",
        "the Idempotency-Key was used before, for another request: it has made the job 'digits-1'",
        "use a new key for a new job",
    ),
    429: _ErrorExample(
        "Too many requests, or too many jobs.",
        "request.too_many",
        "more than 600 requests a minute",
        "try again in 2 s",
        headers=_WAIT,
    ),
    500: _ErrorExample(
        "The service has failed, or cannot read what a run has written.",
        "service.defect",
        "the service has failed at this request; its log has the reason",
    ),
    502: _ErrorExample(
        "The job's launcher, or the store with its mirror, refuses to answer.",
        "service.launcher",
        "the launcher cannot return the job's output",
    ),
    503: _ErrorExample(
        "The database, or a store, does not answer; or the service is busy.",
        "service.database",
        "the database of the service does not answer",
        "try again in a moment",
        headers=_WAIT,
    ),
}


def problems(*statuses: int) -> Answers:
    """Refusals, each with an example."""
    return {status: problem_answer(status) for status in statuses}


def problem_answer(status: int, **other: Any) -> dict[str, Any]:
    """A refusal.

    :param other: What differs from others of the status: ``description``, ``code``, ``detail``, ``hint``, ``pointer``.
    """
    why = attrs.evolve(_REFUSALS[status], **other)
    detail = ProblemDetail(pointer=why.pointer, code=why.code, detail=why.detail, hint=why.hint)
    example = Problem(
        type=f"urn:hostcore:problem:{why.code}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=why.detail,
        errors=[detail],
    )
    content = {MEDIA_TYPE: {"schema": {"$ref": f"{_COMPONENTS}{_PROBLEM}"}, "example": example.model_dump()}}
    return {"description": why.description, "content": content, "headers": why.headers}


#: What every route but ``/healthz`` may answer; for the ``responses`` of a router.
ALWAYS: Final = problems(401, 403, 429, 500, 503)
#: And every one that reads a body.
BODY_PROBLEMS: Final = problems(400, 413, 415)


def body_of(schema: dict[str, Any], example: Any, *, required: bool = True) -> dict[str, Any]:
    """For ``openapi_extra``: the body is JSON of a schema."""
    description = f"JSON in UTF-8, at most {MAX_BYTES:,} bytes."
    content = {"application/json": {"schema": schema, "example": example}}
    return {"requestBody": {"required": required, "description": description, "content": content}}


def body_of_job(example: Any) -> dict[str, Any]:
    """For ``openapi_extra``: the body is a whole job, as in ``job.json``."""
    return body_of({"$ref": f"{_COMPONENTS}{_JOB}"}, example)


def body_of_model(model: type[BaseModel], example: Any) -> dict[str, Any]:
    """For ``openapi_extra``: the body may be empty, or a model."""
    return body_of(model.model_json_schema(), example, required=False)


def describe(app: FastAPI) -> None:
    """Add the schemas of jobs and problems to the OpenAPI document of an application."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = make()
            known = document.setdefault("components", {}).setdefault("schemas", {})
            for name, schema in ((_JOB, job_schema({})), (_PROBLEM, Problem.model_json_schema())):
                own = _at_home(schema)
                own.pop("$schema", None)
                known |= {**own.pop("$defs", {}), name: own}
            _correct(document)
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign] # from FastAPI's documentation


def _correct(document: dict[str, Any]) -> None:
    """Take out FastAPI's own 422, and put in again what it leaves out of examples: null."""
    answers = [operation["responses"] for path in document["paths"].values() for operation in path.values()]
    for one in answers:
        if "422" in one and MEDIA_TYPE not in one["422"]["content"]:
            del one["422"]
        for answered in one.values():
            if (problem := answered.get("content", {}).get(MEDIA_TYPE)) is not None:
                errors = problem["example"]["errors"]
                errors[:] = [{**dict.fromkeys(ProblemDetail.model_fields), **error} for error in errors]
    for name in _FASTAPIS:
        document["components"]["schemas"].pop(name, None)


def _at_home(schema: Any) -> Any:
    """A JSON Schema whose definitions are the document's components."""
    if isinstance(schema, dict):
        moved = {key: _at_home(value) for key, value in schema.items()}
        if isinstance(reference := moved.get("$ref"), str):
            moved["$ref"] = reference.replace("#/$defs/", _COMPONENTS)
        return moved
    return [_at_home(item) for item in schema] if isinstance(schema, list) else schema
