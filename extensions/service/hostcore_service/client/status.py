"""A job of a service as ``hostcore status`` shows it."""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from hostcore.checkpoints.names import folder_name
from hostcore.cli.run_client import CheckpointLine, RunView
from hostcore.runs.history import AttemptHistory
from hostcore.runs.result import RunWarning
from hostcore.runs.summary import RunSummary
from hostcore_hookspecs.errors import RunError
from hostcore_service.client.answers import ForeignAnswer
from hostcore_service.client.client import words_for
from hostcore_service.client.jobs import RemoteJob, path_of, value_of


def _document_of(job: RemoteJob) -> dict[str, Any]:
    """What ``hostcore status --json`` prints; the directory, which is the service's, is null."""
    nothing: dict[str, Any] = {
        "metrics": {},
        "checkpoints": [],
        "attempts": [],
        **dict.fromkeys(("reason", "error", "best", "lost", "processes", "eta_seconds", "samples_per_second")),
        "devices": [],
        "plugins": [],
        "data": None,
        "parent": None,
        "directory": None,
        "warnings": [],
    }
    known = {**nothing, **(job.run or {"reason": job.detail or None})}
    return {**_summary(job).as_dict(), **{key: known[key] for key in known if key not in _SUMMARY}}


_SHOWN_AS_TOLD: Final = (
    *("metrics", "plugins", "devices", "parent", "reason", "best"),
    *("samples_per_second", "eta_seconds"),
)
_SUMMARY: Final = frozenset(field.name for field in attrs.fields(RunSummary))


def _summary(job: RemoteJob) -> RunSummary:
    """What is known best: the service knows how it ended, its run directory how far it is."""
    run: Mapping[str, Any] = job.run or {}
    told = {key: run[key] for key in ("status", "step", "max_steps", "attempt", "ended_ms") if run.get(key)}
    # A run directory that the service does not see stays as it was.
    if job.is_over or told.get("status") in ("submitted", "lost"):
        told = {key: value for key, value in told.items() if key not in ("status", "ended_ms")}
    summary = attrs.evolve(job.summary, **told)
    if job.is_over or summary.ended_ms is None:
        return summary
    return attrs.evolve(summary, seen_ms=summary.ended_ms)


def view_of(job: RemoteJob, url: str) -> RunView:
    """What is shown of a job of a service.

    :param url: Of the service.
    """
    told, summary = _document_of(job), _summary(job)
    attempts = [value_of(AttemptHistory, {**one, "error": _error(one.get("error"))}) for one in told["attempts"]]
    try:
        checkpoints = [_checkpoint(one) for one in told["checkpoints"]]
    except (KeyError, TypeError) as error:
        raise ForeignAnswer(f"{url} tells of a checkpoint what is none: {error!r}") from error
    return RunView(
        document=told,
        summary=attrs.evolve(summary, started_ms=_started_ms(attempts) or summary.started_ms),
        engine=f"{job.launcher}: {job.engine_id}" if job.engine_id else "",
        detail=job.detail if job.detail != told["reason"] and not job.is_over else "",
        **{key: told[key] for key in _SHOWN_AS_TOLD},
        attempts=attempts,
        checkpoints=checkpoints,
        lost=told["lost"] or (job.detail if summary.status == "lost" else None),
        warnings=[value_of(RunWarning, one) for one in told["warnings"]],
        error=_error(told["error"]),
        resume=["hostcore", "resume", job.run_id, *words_for(url)],
        places={"everything": url + path_of(job.run_id)},
    )


def _error(found: Mapping[str, Any] | None) -> RunError | None:
    return value_of(RunError, found) if found else None


def _started_ms(attempts: list[AttemptHistory]) -> int | None:
    return attempts[-1].started_ms if attempts else None


def _checkpoint(found: Mapping[str, Any]) -> CheckpointLine:
    return CheckpointLine(
        name=folder_name(found["step"]),
        **{key: found[key] for key in ("epoch", "bytes", "attempt", "saved_ms", "final")},
    )
