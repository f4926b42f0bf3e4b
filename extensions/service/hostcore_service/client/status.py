"""A job of a service as ``hostcore status`` shows it."""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from hostcore.runs.history import AttemptHistory
from hostcore.runs.result import RunWarning
from hostcore.runs.summary import RunSummary
from hostcore.supervisor.run_status import CommittedCheckpoint, RunStatus
from hostcore_hookspecs.errors import RunError
from hostcore_service.client.client import words_for
from hostcore_service.client.jobs import RemoteJob, path_of, value_of

#: The keys that are shown as the service sends them.
_PLAIN: Final = (
    *("metrics", "reason", "best", "processes", "eta_seconds", "samples_per_second"),
    *("devices", "plugins", "data", "parent"),
)
#: The document of a run of which nothing is known.
_NOTHING: Final[Mapping[str, Any]] = {
    **dict.fromkeys(_PLAIN),
    **dict.fromkeys(("error", "lost")),
    **dict.fromkeys(("checkpoints", "attempts", "devices", "plugins", "warnings"), ()),
    "metrics": {},
}


def status_of(job: RemoteJob, url: str) -> RunStatus:
    """Return the status of a job.

    :param url: Of its service.
    """
    sent = {**_NOTHING, **(job.run or {"reason": job.detail or None})}
    summary = _summary(job)
    attempts = [value_of(AttemptHistory, {**one, "error": _error(one.get("error"))}) for one in sent["attempts"]]
    started_ms = attempts[-1].started_ms if attempts else None
    return RunStatus(
        **{key: sent[key] for key in _PLAIN},
        summary=attrs.evolve(summary, started_ms=started_ms or summary.started_ms),
        checkpoints=[value_of(CommittedCheckpoint, one) for one in sent["checkpoints"]],
        attempts=attempts,
        error=_error(sent["error"]),
        lost=sent["lost"] or (job.detail if summary.status == "lost" else None),
        directory=None,
        warnings=[value_of(RunWarning, one) for one in sent["warnings"]],
        engine=f"{job.launcher}: {job.engine_id}" if job.engine_id else "",
        detail=job.detail if job.detail != sent["reason"] and not job.is_over else "",
        resume=["hostcore", "resume", job.run_id, *words_for(url)],
        places={"everything": url + path_of(job.run_id)},
    )


def _summary(job: RemoteJob) -> RunSummary:
    """Return what is known best: the service knows the end, its run directory the step."""
    run: Mapping[str, Any] = job.run or {}
    sent = {key: run[key] for key in ("status", "step", "max_steps", "attempt", "ended_ms") if run.get(key)}
    # A run directory that the service does not see stays as it was.
    if job.is_over or sent.get("status") in ("submitted", "lost"):
        sent = {key: value for key, value in sent.items() if key not in ("status", "ended_ms")}
    summary = attrs.evolve(job.summary, **sent)
    if job.is_over or summary.ended_ms is None:
        return summary
    return attrs.evolve(summary, seen_ms=summary.ended_ms)


def _error(found: Mapping[str, Any] | None) -> RunError | None:
    return value_of(RunError, found) if found else None
