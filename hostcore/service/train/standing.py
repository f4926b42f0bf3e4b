"""How a job goes, in the four words of the unified trainer API."""

from typing import Final

from hostcore.job.names import BUILTIN
from hostcore.service.store.job import StoredJob
from hostcore.service.train.schema import TrainingJobStatus

#: What an engine's kind of job is called, by its launcher.
_NOUNS: Final = {"kubernetes-pytorchjob": "PyTorchJob", "kubernetes-trainjob": "TrainJob"}
#: What is said of a job whose engine says nothing.
_DETAILS: Final = {"submitted": "submitted", "running": "running", "succeeded": "completed", "failed": "failed"}
_PODS_ACTIVE: Final = "pods active"


def status_of(job: StoredJob, *, just_created: bool = False) -> TrainingJobStatus:
    """A job as ``/train`` shows it.

    :param just_created: Whether it was recorded by this very request.
    """
    noun = noun_of(job)
    if just_created:
        status, detail = "submitted", f"{noun} created"
    elif job.status in _DETAILS:
        status, detail = job.status, job.detail or f"{noun} {_words(job.status, noun)}"
    else:
        status, detail = "failed", f"{job.status}: {job.detail}" if job.detail else job.status
    return TrainingJobStatus(name=job.name, status=status, detail=detail, framework=job.trainer, run_id=job.run_id)


def noun_of(job: StoredJob) -> str:
    """What the job's engine calls it."""
    return _NOUNS.get(job.launcher.removeprefix(BUILTIN), "Job")


def _words(status: str, noun: str) -> str:
    return _PODS_ACTIVE if status == "running" and noun in _NOUNS.values() else _DETAILS[status]
