"""Events in the shape of the ``trn`` command line: ``job_submitted`` first, with ``config_path``.

Each is one flat object with ``event``, ``timestamp`` and ``job_id``. The events that ``trn`` had no name for keep the
name that they have here, so that nothing of a run is left out.
"""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

import attrs

from hostcore_hookspecs import Event, ReporterContext
from hostcore_hookspecs.events import CheckpointSaved, Metrics, RunFailed, RunSubmitted

#: What ``trn`` calls an event.
NAMES: Final[Mapping[str, str]] = {
    "run_submitted": "job_submitted",
    "run_started": "session_start",
    "metrics": "step",
    "checkpoint_saved": "checkpoint",
    "run_succeeded": "job_completed",
    "run_failed": "job_failed",
    "run_cancelled": "job_cancelled",
    "run_preempted": "job_preempted",
}


def timestamp(time_ms: int) -> str:
    """A moment as RFC 3339 has it, in UTC.

    :param time_ms: Milliseconds since 1970.
    """
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@attrs.frozen(kw_only=True)
class TrnSubmission:
    """A job's submission, in the words of ``trn``."""

    config_path: str
    weights: str | None
    profile: str | None
    log_path: str

    @classmethod
    def of(cls, ctx: ReporterContext, *, config_path: Path | None = None, profile: str | None = None) -> Self:
        """Return the submission of a run.

        :param config_path: The job file; without it, the job as the run directory has it.
        """
        return cls(
            config_path=str(config_path or Path(ctx.run_dir, "config", "run.json")),
            weights=ctx.job.weights,
            profile=profile,
            log_path=str(Path(ctx.run_dir, "logs", "events.jsonl")),
        )


def in_trn_shape(event: Event, submission: TrnSubmission, *, run_dir: str) -> dict[str, Any]:
    """Return an event in the shape of ``trn``."""
    place = {"step": event.step, "epoch": event.epoch}
    return {
        "event": NAMES.get(event.name, event.name),
        "timestamp": timestamp(event.time_ms),
        "job_id": event.run_id,
        **_details(event, submission, run_dir),
        "attempt": event.attempt,
        "seq": event.seq,
        **{name: value for name, value in place.items() if value is not None},
    }


def _details(event: Event, submission: TrnSubmission, run_dir: str) -> dict[str, Any]:
    payload = event.payload
    if isinstance(payload, RunSubmitted):
        return {
            "config_path": submission.config_path,
            "devices": list(payload.devices),
            "weights": submission.weights,
            "profile": submission.profile,
            "log_path": submission.log_path,
            "submitted_at": timestamp(event.time_ms),
        }
    if isinstance(payload, Metrics):
        loss = {"loss": payload.metrics["train/loss"]} if "train/loss" in payload.metrics else {}
        return {**loss, **attrs.asdict(payload)}
    if isinstance(payload, CheckpointSaved):
        record = os.path.normpath(Path(run_dir, payload.path))
        return {"meta": f"{record}.json", **attrs.asdict(payload)}
    if isinstance(payload, RunFailed):
        return {"error": f"{payload.error.type}: {payload.error.message}"}
    return attrs.asdict(payload)
