"""``/v1/jobs/{run_id}/checkpoints`` and ``/artifacts``: what a job has made, listed and downloaded."""

from collections.abc import Callable
from itertools import islice
from typing import Annotated, Final, TypeVar

import attrs
from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field

from hostcore.job.load import load_job
from hostcore.secrets.scrub import scrubbed
from hostcore.supervisor.remote.mirror import mirror_of
from hostcore_service.http.auth import authenticate
from hostcore_service.http.openapi import ALWAYS, Answers, answer, header, problems
from hostcore_service.http.query import only_known_parameters
from hostcore_service.jobs import examples
from hostcore_service.jobs.downloads import FileContent, download
from hostcore_service.jobs.mirror_files import MirrorFiles
from hostcore_service.jobs.run_files import MOST, LocalFiles, RunFiles, no_such, require_artifact
from hostcore_service.jobs.streams import the_streams
from hostcore_service.jobs.visibility import is_visible
from hostcore_service.planning import directory_of
from hostcore_service.services import the_service
from hostcore_service.store.job import StoredJob

ROUTER = APIRouter(
    prefix="/v1/jobs",
    tags=["files"],
    dependencies=[Depends(authenticate), Depends(only_known_parameters)],
    responses=ALWAYS,
)

T = TypeVar("T")
Step = Annotated[int, Path(ge=0, le=10**15, description="The step of the checkpoint.")]

_MS: Final = "Milliseconds since 1970; null if unknown."
_BYTES: Final = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_HEADERS: Final = {**header("ETag", "Changes with the content."), **header("Accept-Ranges", "`bytes`")}
_FILE: Final[Answers] = {
    200: {"description": "The file, to be saved.", "content": _BYTES, "headers": _HEADERS},
    206: {
        "description": "The range of it that `Range` asks for.",
        "content": _BYTES,
        "headers": {**_HEADERS, **header("Content-Range", "`bytes <first>-<last>/<size>`")},
    },
    304: {"description": "It is still what `If-None-Match` names.", "headers": _HEADERS},
    **problems(400, 404, 416, 502),
}


_LOOK: Final = problems(400, 404, 502)


class CheckpointLine(BaseModel):
    """A committed checkpoint."""

    step: int = Field(examples=[1200])
    epoch: int = Field(description="Counted from 0.", examples=[2])
    final: bool = Field(description="Whether it was written at the end of a run.")
    attempt: int = Field(description="The attempt that wrote it.", examples=[1])
    bytes: int = Field(description="Of all of its files.", examples=[4_194_304])
    saved_ms: int | None = Field(description=_MS, examples=[1_795_250_000_000])


class CheckpointList(BaseModel):
    """The checkpoints of a job, oldest first."""

    checkpoints: list[CheckpointLine]


class CheckpointFile(BaseModel):
    """A file of a checkpoint."""

    path: str = Field(description="Below the checkpoint.", examples=["state.json"])
    size: int = Field(description="In bytes.", examples=[2048])
    sha256: str = Field(examples=["5f1c9d0e" * 8])


class CheckpointRecord(BaseModel):
    """The commit record of a checkpoint."""

    step: int = Field(examples=[1200])
    epoch: int = Field(description="Counted from 0.", examples=[2])
    final: bool
    attempt: int = Field(examples=[1])
    files: list[CheckpointFile]


class ArtifactLine(BaseModel):
    """A file that a job has made."""

    path: str = Field(description="Below the run directory.", examples=["samples/step-000200/0/sample.png"])
    bytes: int = Field(examples=[20_480])
    modified_ms: int | None = Field(description=_MS, examples=[1_795_250_000_000])


class ArtifactList(BaseModel):
    """Files of a job other than checkpoints."""

    artifacts: list[ArtifactLine]
    truncated: bool = Field(description=f"Whether there are more than the {MOST:,} that are listed.")


@ROUTER.get(
    "/{run_id}/checkpoints",
    response_model=CheckpointList,
    responses={200: answer("The newest last.", examples.CHECKPOINTS), **_LOOK},
    summary="List the checkpoints of a job",
)
async def list_checkpoints(request: Request, run_id: str) -> CheckpointList:
    """The committed checkpoints, as their records have them; none while there is none."""
    return CheckpointList(
        checkpoints=[
            CheckpointLine(
                step=one.step,
                epoch=one.epoch,
                final=one.final,
                attempt=one.attempt,
                bytes=one.bytes,
                saved_ms=one.saved_ms,
            )
            for one in await _asked(request, run_id, lambda files: files.checkpoints())
        ]
    )


@ROUTER.get(
    "/{run_id}/checkpoints/{step}",
    response_model=CheckpointRecord,
    responses={200: answer("Its commit record.", examples.CHECKPOINT), **_LOOK},
    summary="Look at the record of a checkpoint",
)
async def get_checkpoint(request: Request, run_id: str, step: Step) -> CheckpointRecord:
    """The commit record: every file, with its size and SHA-256."""
    record = await _asked(request, run_id, lambda files: files.record(step))
    return CheckpointRecord.model_validate(scrubbed(attrs.asdict(record)))


@ROUTER.head("/{run_id}/checkpoints/{step}/files/{path:path}", include_in_schema=False)
@ROUTER.get(
    "/{run_id}/checkpoints/{step}/files/{path:path}",
    summary="Download a file of a checkpoint",
    response_class=Response,
    responses=_FILE,
)
async def get_checkpoint_file(request: Request, run_id: str, step: Step, path: str) -> Response:
    """A file that the commit record names; its `ETag` is its SHA-256."""

    def opened(files: RunFiles) -> FileContent:
        record = files.record(step)
        file = next((one for one in record.files if one.path == path), None)
        if file is None:
            raise no_such(path)
        return attrs.evolve(files.open_of_checkpoint(record, path), version=file.sha256)

    return download(await _asked(request, run_id, opened), request)


@ROUTER.get(
    "/{run_id}/artifacts",
    response_model=ArtifactList,
    responses={200: answer("What there is.", examples.ARTIFACTS), **_LOOK},
    summary="List what a job has made",
)
async def list_artifacts(request: Request, run_id: str) -> ArtifactList:
    """Generated samples, plots, logs, the job as it was run (`config/run.json`) and how it ended (`result.json`)."""
    found = await _asked(request, run_id, lambda files: list(islice(files.artifacts(), MOST + 1)))
    return ArtifactList(
        artifacts=[ArtifactLine(**attrs.asdict(one)) for one in found[:MOST]], truncated=len(found) > MOST
    )


@ROUTER.head("/{run_id}/artifacts/{path:path}", include_in_schema=False)
@ROUTER.get(
    "/{run_id}/artifacts/{path:path}",
    summary="Download something that a job has made",
    response_class=Response,
    responses=_FILE,
)
async def get_artifact(request: Request, run_id: str, path: str) -> Response:
    """One of the files that `artifacts` lists. Links are not followed."""
    require_artifact(path)
    return download(await _asked(request, run_id, lambda files: files.open(path)), request)


async def _asked(request: Request, run_id: str, ask: Callable[[RunFiles], T]) -> T:
    """Call ``ask`` with a job's files: of its run directory or, where that is not seen from here, of its mirror.

    A mirror, which may take long to answer, is read in threads that no other request waits for.
    """
    service = the_service(request)
    job = await run_in_threadpool(service.job, run_id)
    near = LocalFiles(directory_of(job, service.settings))
    if await run_in_threadpool(is_visible, job, service.settings):
        return await run_in_threadpool(ask, near)
    return await the_streams(request).run(lambda: ask(_mirrored(job) or near), far=True)


def _mirrored(job: StoredJob) -> RunFiles | None:
    mirror = mirror_of(load_job(job.job))
    return MirrorFiles(mirror) if mirror is not None else None
