"""How a launched job goes: what its launcher says, and what its run directory says, put together."""

from typing import Any, Final

from hostcore.events.writer import now_ms
from hostcore.plugins.discover import Discovered
from hostcore.plugins.launching import Launcher
from hostcore.runs.launch import Launch
from hostcore.runs.result import RunResult
from hostcore.runs.summary import ALIVE, RunSummary, UnknownRun, summarize
from hostcore.service.dispatch.launching import Changes, ended, result_fields
from hostcore.service.planning import directory_of, launcher_for, plan_of
from hostcore.service.settings import Settings
from hostcore.service.store.job import StoredJob
from hostcore.supervisor.cancelling import cancel
from hostcore.supervisor.mirror.watching import refresh
from hostcore_hookspecs.errors import FatalError
from hostcore_hookspecs.launcher import LaunchHandle, LaunchStatus

#: How long an engine may take to end a job by force, in seconds.
_FORCE_SECONDS: Final = 5.0


def look(job: StoredJob, settings: Settings, discovered: Discovered) -> Changes:
    """Look how a job goes, and cancel it if somebody wants that.

    :raises HostcoreError: When that cannot be told now.
    """
    launcher = launcher_for(job, settings, discovered)
    assert job.handle is not None  # it is written with the phase
    status = _polled(launcher, job, job.handle, settings)
    if job.cancel_ms is not None and status.status in ALIVE:
        _cancel(job, job.handle, launcher, settings, status)
    if not launcher.sees_run_dir:
        plan = plan_of(job, settings, discovered)
        refresh(plan.spec, plan.directory, at_once=status.status not in ALIVE)
    return _put_together(job, status, settings, sees_run_dir=launcher.sees_run_dir)


def _polled(launcher: Launcher, job: StoredJob, handle: LaunchHandle, settings: Settings) -> LaunchStatus:
    """What the launcher says; or, where it can say nothing any more, what the run directory does.

    A process of a machine that is gone, or is another service's, has its lease on the file system that they share.
    """
    try:
        return launcher.poll(handle)
    except FatalError as error:
        if not launcher.sees_run_dir:
            raise
        found = summarize(directory_of(job, settings))
        return LaunchStatus(status=found.status, message=f"seen by its run directory alone: {error.message}")


def _put_together(job: StoredJob, status: LaunchStatus, settings: Settings, *, sees_run_dir: bool) -> Changes:
    summary = _summary(job, settings, status)
    seen: dict[str, Any] = {"failures": 0, "detail": status.message}
    if summary is not None:
        known = {
            "attempt": summary.attempt,
            "step": summary.step,
            "max_steps": summary.max_steps,
            "seen_ms": summary.seen_ms,
        }
        seen |= {key: value for key, value in known.items() if value}
        seen["started_ms"] = job.started_ms or summary.started_ms
    if status.status in ALIVE:
        # An engine says "running" of what has not come so far as to claim an attempt; far away nobody else can say it.
        begun = not sees_run_dir or summary is None or summary.status != "submitted"
        running = status.status == "running" and begun
        seen["status"] = "running" if running else "submitted"
        if running and seen.get("started_ms") is None:
            seen["started_ms"] = now_ms()
        return seen
    result = _result_of_this_launch(job, settings)
    if result is not None and result.status == status.status:
        return {**seen, **ended(status.status, status.message or result.reason or ""), **result_fields(result)}
    wanted = job.cancel_ms is not None and status.status in ("failed", "lost")
    final = "cancelled" if wanted else status.status
    return {**seen, **ended(final, status.message), "exit_code": status.exit_code}


def _result_of_this_launch(job: StoredJob, settings: Settings) -> RunResult | None:
    directory = directory_of(job, settings)
    launch, result = Launch.read(directory.launch), RunResult.read(directory.result)
    return result if result and launch and result.attempt >= launch.attempt else None


def _summary(job: StoredJob, settings: Settings, told: LaunchStatus) -> RunSummary | None:
    try:
        return summarize(directory_of(job, settings), told=told)
    except UnknownRun:
        return None


def _cancel(job: StoredJob, handle: LaunchHandle, launcher: Launcher, settings: Settings, status: LaunchStatus) -> None:
    """Ask the run to end; through its launcher where it cannot hear, and when it has had its time."""
    grace = settings.operator.service.cancel_grace_seconds
    waited = (now_ms() - (job.cancel_ms or 0)) / 1000
    summary = _summary(job, settings, status) if launcher.sees_run_dir else None
    if summary is not None and summary.status == "running" and waited < grace:
        cancel(directory_of(job, settings), reason=job.cancel_reason or "cancelled", wait=False)
    elif status.status in ALIVE:
        launcher.cancel(handle, _FORCE_SECONDS if launcher.sees_run_dir else grace)
