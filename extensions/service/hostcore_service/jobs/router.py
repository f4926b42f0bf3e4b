"""``/v1/jobs``: submit, list, look, cancel, resume."""

import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final, Literal

import orjson
from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from hostcore.errors import all_errors
from hostcore.events.codec import CorruptLog
from hostcore.events.writer import now_ms
from hostcore.job.wording import found
from hostcore.runs.documents import CorruptDocument, UnreadableDocument
from hostcore.runs.summary import UnknownRun
from hostcore.runs.used import UseQuery
from hostcore.secrets.scrub import scrubbed
from hostcore.supervisor.run_status import inspect_run
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.launcher import LaunchStatus
from hostcore_hookspecs.policy import Principal
from hostcore_service.admission import Origin, new_launch_id
from hostcore_service.guard.server_paths import all_without_places
from hostcore_service.http.auth import Asker, authenticate
from hostcore_service.http.body import Body, parse_model, parse_object
from hostcore_service.http.openapi import ALWAYS, BODY_PROBLEMS, CREATED, answer, body_of_job, body_of_model, problems
from hostcore_service.http.problems import RequestError
from hostcore_service.http.query import only_known_parameters
from hostcore_service.jobs import examples
from hostcore_service.jobs.histories import Histories
from hostcore_service.jobs.schema import CancelRequest, Job, JobDetail, JobPage, ResumeRequest
from hostcore_service.jobs.visibility import is_visible
from hostcore_service.planning import directory_of
from hostcore_service.services import Service, the_service
from hostcore_service.settings import Settings
from hostcore_service.store.job import ListedJob, StoredJob
from hostcore_service.store.jobs import Filter, ListPosition

ROUTER = APIRouter(
    prefix="/v1/jobs",
    tags=["jobs"],
    dependencies=[Depends(authenticate), Depends(only_known_parameters)],
    responses=ALWAYS,
)

The = Annotated[Service, Depends(the_service)]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="The same request with the same key makes one job, however often it is sent.",
    ),
]
Status = Literal["submitted", "running", "succeeded", "failed", "cancelled", "preempted", "lost"]
#: PostgreSQL keeps no text with U+0000, which no job can have.
_TEXT: Final = r"^[^\x00]*$"
_LABEL: Final = r"^[^\x00=]*=[^\x00]*$"
_MOST_LABELS: Final = 16


def _as_label(text: str) -> str:
    if not re.fullmatch(_LABEL, text):
        raise PydanticCustomError("label", "expected KEY=VALUE, found {found}", {"found": found(text)})
    return text


Label = Annotated[str, AfterValidator(_as_label), Field(json_schema_extra={"pattern": _LABEL})]
Versions = Annotated[str, Field(max_length=256, pattern=_TEXT)]
Cursor = Annotated[str | None, Query(max_length=512, description="`next` of the page before.")]


@ROUTER.post(
    "",
    status_code=201,
    response_model=Job,
    responses={
        201: answer("It is recorded.", examples.SUBMITTED, CREATED),
        **BODY_PROBLEMS,
        **problems(409, 422),
    },
    summary="Submit a job",
    openapi_extra=body_of_job(examples.BODY),
)
async def submit(body: Body, asker: Asker, service: The, response: Response, key: IdempotencyKey = None) -> Job:
    """Record a whole job (`job.json`), which a launcher starts as soon as it can.

    Problems that `hostcore validate` would find in its plugins and its data are found when it starts, and are in its
    status; `POST /v1/jobs:validate` finds them before.
    """
    origin = Origin(principal=asker, route="jobs", idempotency_key=key, body=body)
    document = await run_in_threadpool(parse_object, body)
    await service.admission.prepare(document, asker)
    job, is_new = await run_in_threadpool(service.admission.submit, document, origin)
    response.headers["Location"] = f"/v1/jobs/{job.run_id}"
    if is_new:
        service.dispatcher.wake()
    else:
        response.headers["Idempotent-Replayed"] = "true"
    return Job.of(job)


@ROUTER.get(
    "",
    response_model=JobPage,
    responses={200: answer("A page of them.", examples.PAGE), **problems(400)},
    summary="List jobs",
)
def list_jobs(
    service: The,
    *,
    status: Annotated[list[Status] | None, Query(description="Repeatable.")] = None,
    trainer: Annotated[str | None, Query(max_length=256, pattern=_TEXT)] = None,
    owner: Annotated[str | None, Query(max_length=256, pattern=_TEXT)] = None,
    label: Annotated[
        list[Label] | None,
        Query(max_length=_MOST_LABELS, description="`key=value`; repeatable, all must hold."),
    ] = None,
    plugin: Annotated[
        list[Versions] | None,
        Query(
            max_length=_MOST_LABELS,
            description="`digits`, or with versions `digits>=0.1,<0.2`; repeatable, all must hold.",
        ),
    ] = None,
    distribution: Annotated[
        list[Versions] | None,
        Query(max_length=_MOST_LABELS, description="Of a plugin: `my-trainer==1.2`; repeatable, all must hold."),
    ] = None,
    data: Annotated[
        str | None,
        Query(max_length=64, description="The fingerprint of the training data, or at least its first 8 digits."),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    cursor: Cursor = None,
) -> JobPage:
    """Jobs, newest first. A page that was begun stays as it is while jobs are added.

    `plugin`, `distribution` and `data` find jobs with an attempt that used all of it, whatever a later one used.
    Versions are specifiers of PEP 440.
    """
    with _naming_parameters():
        use = UseQuery.parse(plugins=plugin or (), distributions=distribution or (), data=data)
        wanted = Filter(statuses=status or (), trainer=trainer, owner=owner, labels=_labels(label), use=use)
        jobs = service.jobs.page(wanted, after=_place(cursor) if cursor else None, limit=limit + 1)
        unknown = service.jobs.unknown(wanted) if use and not cursor else None
    more = len(jobs) > limit
    return JobPage(
        jobs=[Job.of(job, use) for job in jobs[:limit]],
        next=_cursor(jobs[limit - 1]) if more else None,
        unknown=unknown,
    )


@ROUTER.get(
    "/{run_id}",
    response_model=JobDetail,
    responses={200: answer("The job.", examples.DETAIL), **problems(400, 404)},
    summary="Look at a job",
)
def get_job(run_id: str, service: The) -> JobDetail:
    """A job, and everything that is known of its run."""
    job = service.job(run_id)
    return JobDetail(
        **Job.of(job).model_dump(),
        sees_run_dir=is_visible(job, service.settings),
        job=dict(job.job),
        run=status_of_run(job, service.settings, service.histories),
    )


@ROUTER.post(
    "/{run_id}:cancel",
    status_code=202,
    response_model=Job,
    responses={
        200: {"model": Job, **answer("It has ended.", examples.CANCELLED)},
        202: answer("It is going to end.", examples.CANCELLING),
        **BODY_PROBLEMS,
        **problems(404),
    },
    summary="Cancel a job",
    openapi_extra=body_of_model(CancelRequest, {"reason": "not needed"}),
)
def cancel_job(run_id: str, service: The, response: Response, body: Body) -> Job:
    """Ask that a job ends; it writes a checkpoint first. Legal in every state, and as often as one likes.

    Answers 202 while the job runs, and 200 when it has ended. The body may be empty, or `{"reason": "…"}`.
    """
    asked = parse_model(CancelRequest, body) if body.strip() else CancelRequest()
    service.job(run_id)
    job = service.jobs.request_cancel(run_id, asked.reason, now=now_ms()) or service.job(run_id)
    service.dispatcher.wake()
    if job.phase == "ended":
        response.status_code = 200
    return Job.of(job)


@ROUTER.post(
    "/{run_id}:resume",
    status_code=202,
    response_model=Job,
    responses={
        200: {
            "model": Job,
            **answer(
                "There is nothing to do: it waits, runs, has succeeded or was launched meanwhile.", examples.RUNNING
            ),
        },
        202: answer("It is going to be launched.", examples.RESUMED),
        **BODY_PROBLEMS,
        **problems(404),
    },
    summary="Resume a job",
    openapi_extra=body_of_model(ResumeRequest, {"launches": 1}),
)
async def resume_job(run_id: str, asker: Asker, service: The, response: Response, body: Body) -> Job:
    """Launch a job that has ended once more; it continues from its newest checkpoint.

    The limits of `[http]` and the policies apply again; its launcher is the operator's as it is now. A job
    that waits, runs or has succeeded stays as it is, which answers 200; so does one that was launched more often than
    than `launches`. The body may be empty.
    """
    asked = parse_model(ResumeRequest, body) if body.strip() else ResumeRequest()
    job = await run_in_threadpool(service.job, run_id)
    as_seen = asked.launches in (None, job.launches)
    if job.phase == "ended" and job.status != "succeeded" and as_seen:
        await service.admission.prepare_again(job, asker)
        again = await run_in_threadpool(_relaunched, job, asker, service)
        if again is not None:
            return Job.of(again)
        job = await run_in_threadpool(service.job, run_id)
    response.status_code = 200
    return Job.of(job)


def _relaunched(job: StoredJob, asker: Principal, service: Service) -> StoredJob | None:
    """Return a job that is launched once more; None if another request has resumed it."""
    again = job.queued_again(service.admission.again(job, asker), new_launch_id(job.run_id), now=now_ms())
    if not service.jobs.relaunch(job, again, most_open=service.settings.operator.http.max_submitted):
        return None
    service.dispatcher.wake()
    return again


@contextmanager
def _naming_parameters() -> Iterator[None]:
    """Locate errors at query parameters instead of command line options."""
    try:
        yield
    except HostcoreError as error:
        for one in all_errors(error):
            if one.file and one.file.startswith("--"):
                one.pointer, one.file = f"/query/{one.file.removeprefix('--')}", None
        raise


def _labels(given: list[str] | None) -> list[tuple[str, str]]:
    pairs = [one.partition("=") for one in given or ()]
    return [(key, value) for key, _, value in pairs]


def _cursor(job: ListedJob) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([job.submitted_ms, job.run_id])).decode().rstrip("=")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value


def _place(cursor: str) -> ListPosition:
    try:
        submitted_ms, run_id = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if not isinstance(submitted_ms, int) or abs(submitted_ms) >= 2**63 or not _is_text(run_id):
            raise ValueError(cursor)
    except (ValueError, TypeError):
        raise RequestError(
            "this is no cursor", pointer="/query/cursor", hint="pass `next` of the page before"
        ) from None
    return ListPosition(submitted_ms=submitted_ms, run_id=run_id)


def status_of_run(job: StoredJob, settings: Settings, histories: Histories) -> dict[str, Any] | None:
    """The status of the run of a job; None while there is nothing of it, or it cannot be read."""
    directory = directory_of(job, settings)
    told = LaunchStatus(status=job.status, message=job.detail)  # the dispatcher has asked its launcher
    try:
        with histories.of(directory) as history:
            found = inspect_run(directory, history, told=told, checkpoints=directory.checkpoints)
            status: dict[str, Any] = scrubbed(found.as_dict())
    except (UnknownRun, CorruptDocument, UnreadableDocument, CorruptLog):
        return None
    status.pop("directory", None)  # a place of the service's machine
    shown: dict[str, Any] = all_without_places(status)
    return shown
