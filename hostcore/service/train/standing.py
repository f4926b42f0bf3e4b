"""How a job goes, in the four words of the unified trainer API."""

from collections.abc import Sequence
from typing import Final

from hostcore.job.names import BUILTIN
from hostcore.service.guard.server_paths import without_places
from hostcore.service.store.job import StoredJob
from hostcore.service.train.schema import TrainingJobStatus

#: What an engine's kind of job is called, by its launcher.
_NOUNS: Final = {"kubernetes-pytorchjob": "PyTorchJob", "kubernetes-trainjob": "TrainJob"}
#: What is said of a job whose engine says nothing.
_DETAILS: Final = {"submitted": "submitted", "running": "running", "succeeded": "completed", "failed": "failed"}
_PODS_ACTIVE: Final = "pods active"


def status_of(job: StoredJob, *, just_created: bool = False, notes: Sequence[str] = ()) -> TrainingJobStatus:
    """A job as ``/train`` shows it.

    :param just_created: Whether it was recorded by this very request.
    :param notes: What to say of that request.
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
    """Whether its engine has an object for the job, which is created as a whole or not at all."""
    return noun_of(job) in _NOUNS.values()


def noun_of(job: StoredJob) -> str:
    """What the job's engine calls it."""
    return _NOUNS.get(job.launcher.removeprefix(BUILTIN), "Job")


def _words(status: str, noun: str) -> str:
    return _PODS_ACTIVE if status == "running" and noun in _NOUNS.values() else _DETAILS[status]
