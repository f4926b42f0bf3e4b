"""``/train``: the HTTP surface of the unified trainer API, as its specification has it."""

from collections.abc import Collection
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request, Response

from hostcore.errors import Errors, all_errors
from hostcore.job.pointers import escaped
from hostcore.job.wording import did_you_mean, found, near
from hostcore.runs.summary import UnknownRun
from hostcore.service.admission import Origin
from hostcore.service.http.auth import Asker, authenticate
from hostcore.service.http.body import Body, parse_object
from hostcore.service.http.problems import MEDIA_TYPE, Problem, problem
from hostcore.service.http.problems import status_of as http_status
from hostcore.service.jobs.router import IdempotencyKey
from hostcore.service.services import Service, the_service
from hostcore.service.store.job import StoredJob
from hostcore.service.train.mapping import MappedJob, label, to_job
from hostcore.service.train.request import TrainingJobRequest, read_request
from hostcore.service.train.schema import TrainingJobStatus, request_body
from hostcore.service.train.standing import status_of
from hostcore.service.train.trainers import Trainers
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.policy import Principal

ROUTER = APIRouter(prefix="/train", tags=["train"], dependencies=[Depends(authenticate)])

The = Annotated[Service, Depends(the_service)]

_EXISTS: Final = {
    "type": "urn:hostcore:problem:job.exists",
    "title": "Bad Request",
    "status": 400,
    "detail": "a job named 'meta-meta-demo-001' already exists",
    "errors": [
        {
            "pointer": "/run_id",
            "code": "job.exists",
            "detail": "a job named 'meta-meta-demo-001' already exists",
            "hint": "choose another run_id; to go on with that job, POST /v1/jobs/meta_demo_001:resume",
        }
    ],
}
#: What the specification answers with 400.
_OF_THE_BODY: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.CONFLICT)
_CREATED: Final = {
    "name": "meta-meta-demo-001",
    "status": "submitted",
    "detail": "PyTorchJob created",
    "framework": "meta",
    "run_id": "meta_demo_001",
}
_LOCATION: Final = {"Location": {"description": "Where its status is.", "schema": {"type": "string"}}}


def _problem(description: str, example: Any = None) -> dict[str, Any]:
    content = {"example": example} if example else {}
    return {"model": Problem, "description": description, "content": {MEDIA_TYPE: content}}


def the_trainers(request: Request) -> Trainers:
    """What is known of trainers, by the whole process."""
    trainers: Trainers = request.app.state.trainers
    return trainers


@ROUTER.post(
    "",
    status_code=201,
    response_model=TrainingJobStatus,
    summary="Submit a training job",
    openapi_extra={"requestBody": request_body()},
    responses={
        201: {"headers": _LOCATION, "content": {"application/json": {"example": _CREATED}}},
        400: _problem("The body is wrong, the job is not allowed, or there is one of its name already.", _EXISTS),
        401: _problem("The token is missing, or wrong."),
        500: _problem("The service has failed."),
    },
)
def submit(
    body: Body,
    asker: Asker,
    service: The,
    *,
    trainers: Annotated[Trainers, Depends(the_trainers)],
    response: Response,
    key: IdempotencyKey = None,
) -> Any:
    """Record a training job, which a launcher starts as soon as it can.

    Everything that is wrong with the body is answered with 400, at once, each with its JSON pointer.
    """
    origin = Origin(principal=asker, route="train", idempotency_key=key, body=body)
    job, is_new = service.admission.replayed(origin), False
    if job is None:
        try:
            request = read_request(parse_object(body))
            mapped = to_job(request, service.settings.operator.http.extra_args)
        except HostcoreError as error:
            return problem(HTTPStatus.BAD_REQUEST, all_errors(error))
        try:
            mapped = _for_its_trainer(mapped, service, trainers, asker)
            job, is_new = service.admission.submit(mapped.document, origin, name=mapped.name)
        except HostcoreError as error:
            if error.code == "job.exists":
                return problem(HTTPStatus.BAD_REQUEST, [_exists(error, request, mapped, service)])
            if http_status(all_errors(error)[0]) not in _OF_THE_BODY:
                raise
            return problem(HTTPStatus.BAD_REQUEST, mapped.as_said(error))
    response.headers["Location"] = f"/train/{job.name}"
    if is_new:
        service.dispatcher.wake()
    else:
        response.headers["Idempotent-Replayed"] = "true"
    return status_of(job, just_created=is_new)


@ROUTER.get(
    "/{job_name}",
    response_model=TrainingJobStatus,
    summary="Look at a training job",
    responses={
        401: _problem("The token is missing, or wrong."),
        404: _problem("There is no such job."),
        500: _problem("The service has failed."),
    },
)
def get_status(job_name: str, service: The) -> TrainingJobStatus:
    """How a job goes, whichever route it was submitted by."""
    return status_of(_named(job_name, service))


def _named(name: str, service: Service) -> StoredJob:
    for spelling in dict.fromkeys((name, label(name))):
        if "\0" not in spelling and (job := service.jobs.by_name(spelling)) is not None:
            return job
    raise UnknownRun(f"there is no job named {name!r}", hint="GET /v1/jobs lists the jobs that there are")


def _for_its_trainer(mapped: MappedJob, service: Service, trainers: Trainers, asker: Principal) -> MappedJob:
    """The job with ``model_id`` where its trainer looks for it.

    :raises HostcoreError: Nothing of a job is imported, in whatever process, before it was found to be allowed.
    """
    name = mapped.document["trainer"]
    if not trainers.known(name):
        service.admission.plan(mapped.document, asker)
    names = None if ":" in name else trainers.hyperparams(name, job_dir=service.settings.runs)
    if names is None:
        return mapped
    mapped = mapped if "model_id" in names else mapped.without_model_id()
    unknown = [key for key in mapped.document["hyperparams"] if key not in names]
    if unknown:
        raise Errors([_unknown(key, names, mapped.document["trainer"]) for key in unknown])
    return mapped


def _unknown(key: str, names: Collection[str], trainer: str) -> HostcoreError:
    return HostcoreError(
        f"the trainer {trainer!r} has no hyperparameter {found(key)}",
        code="key.unknown",
        pointer=f"/hyperparams/{escaped(key)}",
        hint=did_you_mean(near(key, names)) or f"it has {', '.join(sorted(names)) or 'none'}",
    )


def _exists(error: HostcoreError, request: TrainingJobRequest, mapped: MappedJob, service: Service) -> HostcoreError:
    """That there is such a job already, in the words of the request."""
    same = service.jobs.by_name(mapped.name)
    if same is None and service.jobs.get(request.run_id) is None:
        return error  # a run that was not submitted here
    what = f"a job named {mapped.name!r}" if same is not None else f"a job with the run_id {request.run_id!r}"
    run_id = same.run_id if same is not None else request.run_id
    key = "job_name" if run_id != request.run_id and request.job_name is not None else "run_id"
    return HostcoreError(
        f"{what} already exists",
        code="job.exists",
        pointer=f"/{key}",
        hint=f"choose another {key}; to go on with that job, POST /v1/jobs/{run_id}:resume",
    )
