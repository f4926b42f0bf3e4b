"""State of a launched job, from its launcher and its run directory together."""

import logging
from pathlib import Path
from typing import Final

import attrs

from hostcore.events.writer import now_ms
from hostcore.plugins.installed import Discovered
from hostcore.plugins.launching import JobLauncher
from hostcore.runs.attempts import proven_held
from hostcore.runs.documents import CorruptDocument, UnreadableDocument
from hostcore.runs.launch import Launch, launch_seconds
from hostcore.runs.result import RunResult
from hostcore.runs.statuses import ALIVE
from hostcore.runs.summary import RunSummary, UnknownRun, summarize
from hostcore.supervisor.cancelling import ask_to_end
from hostcore.supervisor.remote.watching import refresh
from hostcore.supervisor.writable import RunUnwritable
from hostcore_hookspecs.errors import FatalError
from hostcore_hookspecs.launcher import LaunchHandle, LaunchStatus
from hostcore_service.dispatch.launching import ended_as
from hostcore_service.planning import directory_of, launcher_for, plan_stored_job
from hostcore_service.settings import Settings
from hostcore_service.store.job import StoredJob
from hostcore_service.store.uses import kept

LOG: Final = logging.getLogger("hostcore_service")

#: The error of a launcher of processes, about one of another machine.
_ELSEWHERE: Final = "launch.elsewhere"
#: How long a process of another machine may take to begin its attempt.
_STARTING_SECONDS: Final = 600.0
#: How often the rest of a far job's mirror is asked for in vain, once the job has ended.
_MOST_LOOKS: Final = 5
#: How long an engine may take to end a job by force, in seconds.
_FORCE_SECONDS: Final = 5.0


def look(job: StoredJob, settings: Settings, discovered: Discovered) -> StoredJob:
    """Poll a job, and cancel it if that was requested.

    :return: The job, as far as it is known now.
    :raises HostcoreError: When its state cannot be read now.
    """
    launcher = launcher_for(job, settings, discovered)
    assert job.handle is not None  # it is written with the phase
    status = _polled(launcher, job, job.handle, settings)
    if job.cancel_ms is not None and status.status in ALIVE:
        _cancel(job, job.handle, launcher, settings, status)
    if not launcher.sees_run_dir:
        plan = plan_stored_job(job, settings, discovered)
        over = status.status not in ALIVE
        before = _size(plan.directory.events)
        is_all_here = refresh(plan.spec, plan.directory, at_once=over)
        grows = _size(plan.directory.events) > before
        if over and not is_all_here and (grows or job.failures < _MOST_LOOKS):  # an ended job is not looked at again
            detail = f"{status.message or status.status}; what its mirror has of it is being brought"
            if grows:
                return attrs.evolve(job, failures=0, detail=detail)
            ended = _put_together(job, status, settings, sees_run_dir=False)  # whether or not the mirror is readable
            return attrs.evolve(job, status=ended.status, failures=job.failures + 1, detail=detail)
    return _put_together(job, status, settings, sees_run_dir=launcher.sees_run_dir)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _polled(launcher: JobLauncher, job: StoredJob, handle: LaunchHandle, settings: Settings) -> LaunchStatus:
    """Poll the launcher; for a handle of another machine, derive the status from the run directory.

    A process of a machine that is gone, or is another service's, has its lease on the file system that they share.
    """
    try:
        return launcher.poll(handle)
    except FatalError as error:
        if error.code != _ELSEWHERE or not launcher.sees_run_dir:
            raise
        directory = directory_of(job, settings)
        launch = Launch.read(directory.launch)
        waits = launch is not None and launch_seconds(directory) < _STARTING_SECONDS
        found = summarize(directory, told=LaunchStatus(status="submitted" if waits else "lost"))
        unproven = found.status == "lost" and proven_held(directory) is None  # a later look knows more
        status = "running" if unproven else found.status
        return LaunchStatus(status=status, message=f"seen by its run directory alone: {error.message}")


def _put_together(job: StoredJob, status: LaunchStatus, settings: Settings, *, sees_run_dir: bool) -> StoredJob:
    summary = _summary(job, settings, status)
    seen = attrs.evolve(job, failures=0, detail=status.message)
    if summary is not None:
        seen = attrs.evolve(
            seen,
            attempt=summary.attempt or job.attempt,
            step=summary.step or job.step,
            max_steps=summary.max_steps or job.max_steps,
            seen_ms=summary.seen_ms or job.seen_ms,
            started_ms=summary.started_ms or job.started_ms,  # at first it may be that of an earlier attempt
            used=kept(summary.used) or job.used,
        )
    if status.status in ALIVE:
        begun_ms = now_ms() if status.status == "running" and not sees_run_dir else None  # no other source has it
        return attrs.evolve(seen, status=status.status, started_ms=seen.started_ms or begun_ms)
    result = _result_of_this_launch(job, settings)
    if result is not None and result.status == status.status:
        return ended_as(seen, result, status.message or result.reason or "")
    wanted = job.cancel_ms is not None and status.status in ("failed", "lost")
    ended = seen.ended("cancelled" if wanted else status.status, status.message, ended_ms=now_ms())
    return attrs.evolve(ended, exit_code=status.exit_code)


def _result_of_this_launch(job: StoredJob, settings: Settings) -> RunResult | None:
    directory = directory_of(job, settings)
    try:
        launch, result = Launch.read(directory.launch), RunResult.read(directory.result)
    except (CorruptDocument, UnreadableDocument):
        return None
    return result if result and launch and result.attempt >= launch.attempt else None


def _summary(job: StoredJob, settings: Settings, told: LaunchStatus) -> RunSummary | None:
    """Summarize the run directory; None if it cannot be read: the job writes it, and its launcher still counts."""
    try:
        return summarize(directory_of(job, settings), told=told)
    except UnknownRun:
        return None
    except (CorruptDocument, UnreadableDocument) as error:
        LOG.warning("%s: %s", job.run_id, error)
        return None


def _cancel(
    job: StoredJob, handle: LaunchHandle, launcher: JobLauncher, settings: Settings, status: LaunchStatus
) -> None:
    """Ask the run to end; cancel by the launcher if the run cannot be asked or its grace period is over."""
    grace = settings.operator.service.cancel_grace_seconds
    waited = (now_ms() - (job.cancel_ms or 0)) / 1000
    summary = _summary(job, settings, status) if launcher.sees_run_dir else None
    if summary is not None and summary.status == "running" and waited < grace:
        try:
            ask_to_end(directory_of(job, settings), summary.attempt, reason=job.cancel_reason or "cancelled")
        except RunUnwritable as error:
            LOG.warning("%s: %s", job.run_id, error)
        else:
            return
    if status.status in ALIVE:
        launcher.cancel(handle, _FORCE_SECONDS if launcher.sees_run_dir else grace)
