"""A database that has lost jobs has them again: every launch notes in its run directory what was recorded of the job.

A run directory is its job's to write. So a launch that has to be made again is admitted like a new job, and of a run
that was launched only its launcher, which is the operator's, is asked how it goes.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from hostcore.events.writer import now_ms
from hostcore.runs.directory import RunDirectory
from hostcore.runs.documents import CorruptDocument, UnreadableDocument, from_document
from hostcore.runs.launch import Launch
from hostcore.runs.record import RunRecord
from hostcore.runs.result import RunResult
from hostcore.runs.used import Used, used_by
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.policy import Principal
from hostcore_service.admission import Admission
from hostcore_service.store.job import StoredJob
from hostcore_service.store.jobs import JobExists
from hostcore_service.store.uses import kept

LOG: Final = logging.getLogger("hostcore_service")

#: What comes of values that no service has written: the directory is a job's to write.
_OF_CONTENT: Final = (AttributeError, OSError, OverflowError, TypeError, ValueError)


@attrs.frozen(kw_only=True)
class RecordedJob:
    """Fields of a job's row that ``launch.json`` keeps; see :mod:`.store.tables`."""

    job: Mapping[str, Any]
    name: str
    launcher: str
    principal: str
    route: str
    idempotency_key: str | None = None
    request_sha256: str | None = None
    launches: int = 1
    submitted_ms: int


def record_of(job: StoredJob) -> Mapping[str, Any]:
    """Return the fields of a job to keep in its run directory."""
    return {field.name: getattr(job, field.name) for field in attrs.fields(RecordedJob)}


def recover(admission: Admission) -> list[str]:
    """Record the jobs again whose runs are there, and which the database does not know.

    :return: Their run ids.
    """
    jobs, runs = admission.jobs, admission.settings.runs
    known = jobs.run_ids()
    found = []
    for directory in _directories(runs, known):
        try:
            job = _job_of(directory, admission)
            if job is not None:
                jobs.add(job)
                found.append(job.run_id)
        except JobExists:  # another service that has started at the same time was first; or another job has its name
            LOG.warning("the run %s is recorded already, or another job has its name", directory.run_id)
        except OperationalError:
            raise  # the database does not answer, which is not for the run to blame
        except (HostcoreError, SQLAlchemyError, *_OF_CONTENT) as error:
            LOG.warning("the run %s cannot be recorded again: %s", directory.run_id, error)
    if found:
        LOG.warning("%s runs are recorded again that the database did not know: %s", len(found), _some(found))
    return found


def _directories(runs: Path, known: set[str]) -> Iterator[RunDirectory]:
    for name in sorted(set(os.listdir(runs)) - known):  # noqa: PTH208 - a path of each run is slow to make and to sort
        path = runs / name
        if not name.startswith(".") and path.is_dir() and not path.is_symlink():
            yield RunDirectory(path)


def _job_of(directory: RunDirectory, admission: Admission) -> StoredJob | None:
    """The job of a run that a service has launched; None for any other run.

    :raises CorruptDocument, UnreadableDocument: A document of the directory cannot be read.
    """
    launch = Launch.read(directory.launch)
    if launch is None or launch.recorded is None:
        return None
    recorded = from_document(RecordedJob, launch.recorded, file=directory.launch)
    document = recorded.job
    if not isinstance(document, Mapping) or document.get("run_id") != directory.run_id:
        raise CorruptDocument("what was recorded of the job is of another run", file=str(directory.launch))
    job = StoredJob(
        run_id=directory.run_id,
        **attrs.asdict(recorded, recurse=False),
        trainer=str(document.get("trainer")),
        owner=document.get("owner"),
        max_steps=steps if isinstance(steps := document.get("max_steps"), int) else 0,
        launch_id=launch.launch_id,
        handle=launch.handle,
        phase="launching" if launch.handle is None else "launched",
        detail="found again by its run directory",
        updated_ms=now_ms(),
    )
    result = RunResult.read(directory.result)
    if result is not None and result.attempt >= launch.attempt:
        ended = job.ended(result.status, result.reason or "", ended_ms=result.ended_ms)
        used = _used(directory, result.attempt)  # of others, what watches them reads it
        return attrs.evolve(ended, exit_code=result.exit_code, attempt=result.attempt, step=result.step, used=used)
    return job if launch.handle is not None else _admitted(job, admission)


def _used(directory: RunDirectory, attempt: int) -> tuple[Used, ...] | None:
    """Return the uses that a run's record lists; None if it has none."""
    try:
        return kept(used_by(RunRecord.read(directory.record), attempt=attempt, file=directory.record)) or None
    except (FileNotFoundError, CorruptDocument, UnreadableDocument):
        return None


def _admitted(job: StoredJob, admission: Admission) -> StoredJob:
    try:
        admission.again(job, Principal(name=job.principal))
    except HostcoreError as error:
        why = f"it was found again, and is not allowed to be launched: {error.message}"
        return job.ended("lost", why, ended_ms=now_ms())
    return job


def _some(run_ids: list[str]) -> str:
    more = f", and {len(run_ids) - 10} more" if len(run_ids) > 10 else ""
    return ", ".join(run_ids[:10]) + more
