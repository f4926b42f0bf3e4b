"""``/v1/jobs/{run_id}/checkpoints`` and ``/artifacts``: what a job has made, listed and downloaded."""

from itertools import islice
from typing import Annotated, Any, Final

import attrs
from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import BaseModel, Field

from hostcore.job.load import load_job
from hostcore.scrubbing import scrubbed
from hostcore.service.http.auth import authenticate
from hostcore.service.http.query import only_known_parameters
from hostcore.service.jobs.downloads import download
from hostcore.service.jobs.mirror_files import MirrorFiles
from hostcore.service.jobs.run_files import MOST, Files, LocalFiles, no_such, require_artifact
from hostcore.service.jobs.whereabouts import is_seen
from hostcore.service.planning import directory_of
from hostcore.service.services import Service, the_service
from hostcore.supervisor.mirror.place import mirror_of

ROUTER = APIRouter(
    prefix="/v1/jobs", tags=["files"], dependencies=[Depends(authenticate), Depends(only_known_parameters)]
)

The = Annotated[Service, Depends(the_service)]
Step = Annotated[int, Path(ge=0, le=10**15, description="The step of the checkpoint.")]

_MS: Final = "Milliseconds since 1970; null if nobody knows."
_FILE: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The file, to be saved.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        "headers": {
            "ETag": {"description": "Changes with the content.", "schema": {"type": "string"}},
            "Accept-Ranges": {"description": "`bytes`", "schema": {"type": "string"}},
        },
    },
    206: {"description": "The range of it that `Range` asks for."},
    304: {"description": "It is still what `If-None-Match` names."},
    416: {"description": "It has nothing of the range that `Range` asks for."},
}


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
    epoch: int = Field(examples=[2])
    final: bool
    attempt: int = Field(examples=[1])
    files: list[CheckpointFile]


class ArtifactLine(BaseModel):
    """A file that a job has made."""

    path: str = Field(description="Below the run directory.", examples=["samples/step-000200/0/sample.png"])
    bytes: int = Field(examples=[20_480])
    modified_ms: int | None = Field(description=_MS, examples=[1_795_250_000_000])


class ArtifactList(BaseModel):
    """What a job has made beside checkpoints."""

    artifacts: list[ArtifactLine]
    truncated: bool = Field(description=f"Whether there are more than the {MOST:,} that are listed.")


@ROUTER.get("/{run_id}/checkpoints", response_model=CheckpointList, summary="List the checkpoints of a job")
def list_checkpoints(run_id: str, service: The) -> CheckpointList:
    """The committed checkpoints, as their records have them; none while there is none."""
    return CheckpointList(
        checkpoints=[
            CheckpointLine(
                step=one.record.step,
                epoch=one.record.epoch,
                final=one.record.final,
                attempt=one.record.attempt,
                bytes=one.record.size,
                saved_ms=one.saved_ms,
            )
            for one in _files(service, run_id).checkpoints()
        ]
    )


@ROUTER.get(
    "/{run_id}/checkpoints/{step}", response_model=CheckpointRecord, summary="Look at the record of a checkpoint"
)
def get_checkpoint(run_id: str, step: Step, service: The) -> CheckpointRecord:
    """The commit record: every file, with its size and SHA-256."""
    record = _files(service, run_id).record(step)
    return CheckpointRecord.model_validate(scrubbed(attrs.asdict(record)))


@ROUTER.get(
    "/{run_id}/checkpoints/{step}/files/{path:path}",
    summary="Download a file of a checkpoint",
    response_class=Response,
    responses=_FILE,
)
def get_checkpoint_file(request: Request, run_id: str, step: Step, path: str, service: The) -> Response:
    """A file that the commit record names; its `ETag` is its SHA-256."""
    files = _files(service, run_id)
    record = files.record(step)
    file = next((one for one in record.files if one.path == path), None)
    if file is None:
        raise no_such(path)
    content = files.open_of_checkpoint(record, path)
    return download(attrs.evolve(content, version=file.sha256), request)


@ROUTER.get("/{run_id}/artifacts", response_model=ArtifactList, summary="List what a job has made")
def list_artifacts(run_id: str, service: The) -> ArtifactList:
    """Generated samples, plots, logs, the job as it was run (`config/run.json`) and how it ended (`result.json`)."""
    found = list(islice(_files(service, run_id).artifacts(), MOST + 1))
    return ArtifactList(
        artifacts=[ArtifactLine(**attrs.asdict(one)) for one in found[:MOST]], truncated=len(found) > MOST
    )


@ROUTER.get(
    "/{run_id}/artifacts/{path:path}",
    summary="Download something that a job has made",
    response_class=Response,
    responses=_FILE,
)
def get_artifact(request: Request, run_id: str, path: str, service: The) -> Response:
    """One of the files that `artifacts` lists. Links are not followed."""
    files = _files(service, run_id)
    require_artifact(path)
    return download(files.open(path), request)


def _files(service: Service, run_id: str) -> Files:
    """Where the files of a job lie: in its run directory or, where that is not seen from here, in its mirror."""
    job = service.job(run_id)
    if not is_seen(job, service.settings):
        mirror = mirror_of(load_job(job.job))
        if mirror is not None:
            return MirrorFiles(mirror)
    return LocalFiles(directory_of(job, service.settings))
