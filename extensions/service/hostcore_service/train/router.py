"""``/train``: the HTTP surface of the unified trainer API, as its specification has it."""

import time
from collections.abc import Collection, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Final

import anyio
from fastapi import APIRouter, Depends, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field

from hostcore.errors import Errors, all_errors
from hostcore.job.forms import json_schema
from hostcore.job.pointers import escaped
from hostcore.job.wording import did_you_mean, found, near
from hostcore.runs.summary import UnknownRun
from hostcore.supervisor.opening import RunConflict
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.policy import Principal
from hostcore_service.admission import Admission, Origin
from hostcore_service.descriptions import Descriptions
from hostcore_service.guard.server_paths import without_places
from hostcore_service.http.auth import Asker, authenticate
from hostcore_service.http.body import Body, parse_object
from hostcore_service.http.openapi import ALWAYS, CREATED, answer, problem_answer, problems
from hostcore_service.http.problems import problem
from hostcore_service.http.problems import status_of as http_status
from hostcore_service.jobs.router import IdempotencyKey
from hostcore_service.launchers import plain
from hostcore_service.services import Service, the_service
from hostcore_service.store.job import StoredJob
from hostcore_service.train.mapping import MappedJob, extra_arg_names, label, to_job
from hostcore_service.train.request import TrainingJobRequest, read_request

ROUTER = APIRouter(prefix="/train", tags=["train"], dependencies=[Depends(authenticate)], responses=ALWAYS)

The = Annotated[Service, Depends(the_service)]

#: A body, from the specification.
EXAMPLE: Final = {
    "framework": "meta",
    "model_id": "meta-llama-3-70b",
    "run_id": "meta_demo_001",
    "num_nodes": 4,
    "gpus_per_node": 8,
    "cpus_per_node": 64,
    "memory_per_node_gb": 512,
    "checkpoint_base_uri": "s3://deepfinery-training/runs",
    "dataset_uri": "s3://deepfinery-datasets/aml/v1/",
    "resume_from_checkpoint": False,
    "extra_args": {"max_steps": 6000, "lr": 2e-5, "gradient_accumulation": 16},
    "env": {"EXPERIMENT_NAME": "meta-demo"},
    "labels": {"deepfinery.com/team": "aml"},
}

_REFUSED: Final = problem_answer(
    400,
    description="The body is wrong, the job is not allowed, or there is one of its name already.",
    code="job.exists",
    detail="a job named 'meta-meta-demo-001' already exists",
    hint="choose another run_id; to go on with that job, POST /v1/jobs/meta_demo_001:resume",
    pointer="/run_id",
)
#: What the specification answers with 400.
_OF_THE_BODY: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.CONFLICT)
#: How long a request waits until it is known whether an engine has created its job, and between two looks.
_CREATE_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 0.1
_CREATED: Final = {
    "name": "meta-meta-demo-001",
    "status": "submitted",
    "detail": "PyTorchJob created",
    "framework": "meta",
    "run_id": "meta_demo_001",
}
_RUNNING: Final = {**_CREATED, "status": "running", "detail": "PyTorchJob pods active"}


class TrainingJobStatus(BaseModel):
    """Status of a job in the terms of the unified trainer API."""

    name: str = Field(description="What its engine calls it: a DNS label.", examples=["meta-meta-demo-001"])
    status: str = Field(
        description="`submitted`, `running`, `succeeded` or `failed`. Jobs that were cancelled, preempted or lost have "
        "failed, and `detail` begins with that word.",
        examples=["submitted"],
    )
    detail: str = Field(description="Why, in a sentence.", examples=["PyTorchJob created"])
    framework: str = Field(description="The trainer plugin.", examples=["meta"])
    run_id: str = Field(examples=["meta_demo_001"])


def request_body() -> dict[str, Any]:
    """The body for the OpenAPI document: it is read by :func:`read_request`, of which FastAPI knows nothing."""
    schema = {key: value for key, value in json_schema(TrainingJobRequest).items() if key != "$schema"}
    example = {"summary": "From the specification", "value": EXAMPLE}
    return {
        "required": True,
        "content": {"application/json": {"schema": schema, "examples": {"specification": example}}},
    }


@ROUTER.post(
    "",
    status_code=201,
    response_model=TrainingJobStatus,
    summary="Submit a training job",
    openapi_extra={"requestBody": request_body()},
    responses={201: answer("It is recorded.", _CREATED, CREATED), 400: _REFUSED, **problems(413, 415, 422)},
)
async def submit(
    body: Body,
    asker: Asker,
    service: The,
    *,
    response: Response,
    key: IdempotencyKey = None,
) -> Any:
    """Record a training job, which a launcher starts as soon as it can.

    On Kubernetes the answer waits for the job's object: if it cannot be created it is 500, and no job is recorded.
    Everything that is wrong with the body is answered with 400, at once, each with its JSON pointer.
    """
    origin = Origin(principal=asker, route="train", idempotency_key=key, body=body)
    job, is_new = await run_in_threadpool(service.admission.replayed, origin), False
    notes: Sequence[str] = ()
    if job is None:
        try:
            request, mapped = await run_in_threadpool(_read, body, service)
        except HostcoreError as error:
            return problem(HTTPStatus.BAD_REQUEST, all_errors(error))
        try:
            await _ask_its_trainer(mapped, service.admission, asker)
            mapped = await run_in_threadpool(_for_its_trainer, mapped, service.admission.descriptions)
            notes = mapped.notes
            await service.admission.prepare(mapped.document, asker)
            recorded = await run_in_threadpool(service.admission.submit, mapped.document, origin, name=mapped.name)
            job, is_new = recorded
        except HostcoreError as error:
            if error.code == "job.exists":
                error = await run_in_threadpool(_exists, error, request, mapped, service)
                return problem(HTTPStatus.BAD_REQUEST, [error])
            if http_status(all_errors(error)[0]) not in _OF_THE_BODY:
                raise
            return problem(HTTPStatus.BAD_REQUEST, mapped.as_said(error))
        if is_new:
            service.dispatcher.wake()
            job = await _created(job, service)
            if job.phase == "ended" and job.status == "failed" and job.handle is None:
                return await run_in_threadpool(_not_created, job, request, mapped, service)
    response.headers["Location"] = f"/train/{job.name}"
    if not is_new:
        response.headers["Idempotent-Replayed"] = "true"
    return status_of(job, just_created=is_new, notes=notes)


@ROUTER.get(
    "/{job_name}",
    response_model=TrainingJobStatus,
    summary="Look at a training job",
    responses={200: answer("How it goes.", _RUNNING), **problems(404)},
)
def get_status(job_name: str, service: The) -> TrainingJobStatus:
    """Return the status of a job, whichever route it was submitted by. 404 when the cluster has its object no more."""
    job = _named(job_name, service)
    if job.status == "lost" and is_object(job):
        raise UnknownRun(job.detail, hint=f"GET /v1/jobs/{job.run_id} has what is known of its run")
    return status_of(job)


def _named(name: str, service: Service) -> StoredJob:
    for spelling in dict.fromkeys((name, label(name))):
        if "\0" not in spelling and (job := service.jobs.by_name(spelling)) is not None:
            return job
    raise UnknownRun(f"there is no job named {name!r}", hint="GET /v1/jobs lists the jobs that there are")


def _read(body: bytes, service: Service) -> tuple[TrainingJobRequest, MappedJob]:
    """The request in a body, and its job."""
    request = read_request(parse_object(body))
    mapped = to_job(request, service.settings.operator.http.extra_args)
    return request, mapped.noting(request.extra_args)


async def _ask_its_trainer(mapped: MappedJob, admission: Admission, asker: Principal) -> None:
    """See that it is known what the job's trainer takes, as far as it can be asked.

    :raises HostcoreError: Nothing of a job is imported, in whatever process, before it was found to be allowed.
    """
    name = mapped.document["trainer"]
    if ":" not in name and not admission.descriptions.known("trainer", name):
        await run_in_threadpool(admission.permitted, mapped.document, asker)
        await admission.descriptions.asked("trainer", name)


async def _created(job: StoredJob, service: Service) -> StoredJob:
    """A job of an engine that has objects for jobs, once it is known whether its object was created; others at once."""
    end = time.monotonic() + (_CREATE_SECONDS if is_object(job) else 0)
    while job.phase in ("queued", "launching") and not job.failures and time.monotonic() < end:
        await anyio.sleep(_LOOK_SECONDS)
        job = await run_in_threadpool(service.job, job.run_id)
    return job


def _not_created(job: StoredJob, request: TrainingJobRequest, mapped: MappedJob, service: Service) -> Response:
    """The answer when its engine has not created a job, which is then as if it had never been asked for."""
    error = service.dispatcher.refusal(job.launch_id) or HostcoreError(job.detail, code="launch.not_started")
    service.jobs.remove(job)
    if error.code == "launch.name_taken":
        key = "job_name" if request.job_name is not None else "run_id"
        taken = HostcoreError(error.message, code="job.exists", pointer=f"/{key}", hint=f"choose another {key}")
        return problem(HTTPStatus.BAD_REQUEST, [taken])
    is_conflict = error.code == RunConflict.code  # with what its mirror has: nothing is wrong with the engine
    return problem(HTTPStatus.BAD_REQUEST if is_conflict else HTTPStatus.INTERNAL_SERVER_ERROR, mapped.as_said(error))


def _for_its_trainer(mapped: MappedJob, descriptions: Descriptions) -> MappedJob:
    """The job with ``model_id`` where its trainer looks for it."""
    name = mapped.document["trainer"]
    names = None if ":" in name else descriptions.hyperparams(name)
    if names is None:
        return mapped
    mapped = mapped if "model_id" in names else mapped.without_model_id()
    mapped = mapped if "config_path" in names else mapped.without_config_path()
    unknown = [key for key in mapped.document["hyperparams"] if key not in names]
    if unknown:
        raise Errors([_unknown(key, names, mapped.document["trainer"]) for key in unknown])
    return mapped


def _unknown(key: str, names: Collection[str], trainer: str) -> HostcoreError:
    said = extra_arg_names(names)
    return HostcoreError(
        f"the trainer {trainer!r} has no hyperparameter {found(key)}",
        code="key.unknown",
        pointer=f"/hyperparams/{escaped(key)}",
        hint=did_you_mean(near(key, said)) or f"extra_args may set {', '.join(said) or 'none of its hyperparameters'}",
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


#: What an engine's kind of job is called, by its launcher.
_NOUNS: Final = {"kubernetes-pytorchjob": "PyTorchJob", "kubernetes-trainjob": "TrainJob"}
#: Details of a job whose engine has none.
_DETAILS: Final = {"submitted": "submitted", "running": "running", "succeeded": "completed", "failed": "failed"}
_PODS_ACTIVE: Final = "pods active"


def status_of(job: StoredJob, *, just_created: bool = False, notes: Sequence[str] = ()) -> TrainingJobStatus:
    """A job as ``/train`` shows it.

    :param just_created: Whether it was recorded by this very request.
    :param notes: Notes on that request.
    """
    noun = noun_of(job)
    if just_created and not (is_object(job) and job.phase in ("queued", "launching")):
        status, detail = "submitted", "; ".join([f"{noun} created", *notes])
    elif job.status in _DETAILS:
        status, detail = job.status, job.detail or f"{noun} {_words(job.status, noun)}"
    else:
        status, detail = "failed", f"{job.status}: {job.detail}" if job.detail else job.status
    detail = without_places(detail)
    return TrainingJobStatus(name=job.name, status=status, detail=detail, framework=job.trainer, run_id=job.run_id)


def is_object(job: StoredJob) -> bool:
    """Return whether the engine has an object for the job, which is created as a whole or not at all."""
    return noun_of(job) in _NOUNS.values()


def noun_of(job: StoredJob) -> str:
    """Return the engine's term for a job."""
    return _NOUNS.get(plain(job.launcher), "Job")


def _words(status: str, noun: str) -> str:
    return _PODS_ACTIVE if status == "running" and noun in _NOUNS.values() else _DETAILS[status]
