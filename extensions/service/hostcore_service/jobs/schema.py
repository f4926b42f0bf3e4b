"""Responses of ``/v1/jobs``."""

from typing import Any

import attrs
from pydantic import BaseModel, ConfigDict, Field

from hostcore.runs.used import UseQuery
from hostcore_service.guard.server_paths import without_places
from hostcore_service.store.job import ListedJob, StoredJob

_MS = "Milliseconds since 1970."


class PluginUse(BaseModel):
    """A plugin that a run used."""

    kind: str = Field(examples=["trainer"])
    name: str = Field(examples=["digits"])
    distribution: str | None = Field(default=None, examples=["hostcore-digits"])
    version: str | None = Field(default=None, examples=["0.1.0"])


class JobUse(BaseModel):
    """Plugins and data that a run used from an attempt on."""

    attempt: int = Field(examples=[1])
    plugins: list[PluginUse] = Field(description="Those that were asked for.")
    data: str | None = Field(
        default=None, description="The fingerprint of the training data; empty: they have none; null: it is not known."
    )


class Job(BaseModel):
    """A job, and how its run goes."""

    run_id: str = Field(description="Names the job and its run.", examples=["flight-delay-20261121-090000-4f1a"])
    name: str = Field(
        description="What its engine is asked to call it; see `engine_id`.",
        examples=["flight-delay-20261121-090000-4f1a"],
    )
    status: str = Field(
        description="`submitted`, `running`, `succeeded`, `failed`, `cancelled`, `preempted` or `lost`.",
        examples=["running"],
    )
    detail: str = Field(description="Why it is as it is, in a sentence.", examples=["3 of 4 pods are running"])
    cancelling: bool = Field(description="Whether it was asked to end, and has not ended yet.")
    trainer: str = Field(examples=["flight_delay"])
    launcher: str = Field(examples=["kubernetes-pytorchjob"])
    engine_id: str | None = Field(
        default=None,
        description="What its launcher calls the newest launch: the name of a PyTorchJob, the number of a Slurm job or "
        "of a process. Null before it was launched.",
        examples=["flight-delay-20261121-090000-4f1a"],
    )
    owner: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    submitted_by: str = Field(examples=["token"])
    step: int = Field(description="Finished steps.", examples=[1200])
    max_steps: int = Field(description="Steps after which it is complete; 0: not known.", examples=[6000])
    attempt: int = Field(description="How often it was begun; 0: not yet.", examples=[1])
    launches: int = Field(description="How often it was launched.", examples=[1])
    exit_code: int | None = Field(default=None, description="Of its supervisor, once it has ended and that is known.")
    submitted_ms: int = Field(description=_MS)
    started_ms: int | None = Field(default=None, description=_MS)
    ended_ms: int | None = Field(default=None, description=_MS)
    seen_ms: int | None = Field(default=None, description=f"Its last sign of life. {_MS}")
    used: list[JobUse] | None = Field(
        default=None,
        description="In lists that were asked for a plugin, a distribution or data: what each attempt used of it that "
        "used all of it. Else null.",
    )

    @classmethod
    def of(cls, job: StoredJob | ListedJob, use: UseQuery | None = None) -> "Job":
        """A stored job as others see it.

        :param use: What its attempts were asked for.
        """
        same = {name: getattr(job, name) for name in cls.model_fields if hasattr(job, name)}
        same["used"] = [attrs.asdict(one) for one in use.answer(job.used or ())] if use else None
        same["detail"] = without_places(job.detail) or ("waits to be launched" if job.phase == "queued" else "")
        return cls(
            **same,
            engine_id=job.handle.id if job.handle else None,
            cancelling=job.cancel_ms is not None and job.phase != "ended",
            submitted_by=job.principal,
        )


class JobPage(BaseModel):
    """Jobs, newest first."""

    jobs: list[Job]
    next: str | None = Field(default=None, description="Pass as `cursor` for the next page; null: this is the last.")
    unknown: int | None = Field(
        default=None,
        description="With the first page, if a plugin, a distribution or data was asked for: how many other jobs may "
        "be meant as well. They have not begun, or have no record of what all their attempts used.",
    )


class JobDetail(Job):
    """A job with everything that is known of its run."""

    sees_run_dir: bool = Field(
        description="Whether what runs the job writes into the run directory that the service sees. If not, what its "
        "ranks print cannot be had, and `logs` has what its launcher knows. True while nothing has run it."
    )
    job: dict[str, Any] = Field(description="The job as resolved. Secrets are references.")
    run: dict[str, Any] | None = Field(
        default=None,
        description="What `hostcore status --json` prints: metrics, checkpoints, attempts, error, devices, plugins, "
        "`eta_seconds`. Null before the run has a directory.",
    )


class ResumeRequest(BaseModel):
    """Guard of a resume request: the number of launches that the client has seen."""

    model_config = ConfigDict(extra="forbid", strict=True)

    launches: int | None = Field(
        default=None,
        ge=1,
        description="How often it was launched. If that is more by now, it is left as it is: the same request, sent "
        "again because no answer came, launches it once.",
    )


class CancelRequest(BaseModel):
    """Reason for cancelling a job."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reason: str = Field(default="cancelled by the user", max_length=1000)
