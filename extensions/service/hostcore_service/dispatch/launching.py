"""One job is launched, at most once for each launch id."""

import attrs

from hostcore.errors import all_errors
from hostcore.events.bounds import bounded
from hostcore.plugins.installed import Discovered
from hostcore.runs.result import RunResult
from hostcore.secrets.scrub import scrub
from hostcore.supervisor.submit import submit
from hostcore_hookspecs.errors import HostcoreError, TransientError
from hostcore_service.planning import launcher_for, plan_stored_job
from hostcore_service.recovery import record_of
from hostcore_service.settings import Settings
from hostcore_service.store.job import StoredJob


def launch(job: StoredJob, settings: Settings, discovered: Discovered) -> StoredJob:
    """Have the launcher of a job start it.

    To be called again, with the same job, when it is not known what came of it.

    :return: The job, as far as it is known now.
    :raises HostcoreError: Its launcher, or what has to be done before, has failed.
    """
    lines: list[str] = []
    done = submit(
        plan_stored_job(job, settings, discovered),
        total_steps=0,
        tell=lines.append,
        name=_engine_name(job),
        launch_id=job.launch_id,
        launcher=launcher_for(job, settings, discovered),
        recorded=record_of(job),
    )
    if isinstance(done, RunResult):
        return ended_as(job, done, done.reason or "finished before: nothing to do")
    return attrs.evolve(job, phase="launched", handle=done.handle, detail=lines[-1] if lines else "", failures=0)


def _engine_name(job: StoredJob) -> str:
    """The engine may remember what it ran under the same name, and a number could make it another job's name."""
    return job.name if job.launches == 1 else f"{job.name[:54].rstrip('-')}-{job.launch_id[-8:]}"


def is_transient(error: HostcoreError) -> bool:
    """Return whether a retry may succeed."""
    return isinstance(error, TransientError)


def detail_of(error: HostcoreError) -> str:
    """One line for people about an error, with hints, scrubbed of secrets."""
    told = "; ".join(f"{one.message} ({one.hint})" if one.hint else one.message for one in all_errors(error))
    return bounded(scrub(told))


def ended_as(job: StoredJob, result: RunResult, detail: str) -> StoredJob:
    """Return a job with the end that its run recorded."""
    return attrs.evolve(
        job.ended(result.status, detail, ended_ms=result.ended_ms),
        exit_code=result.exit_code,
        attempt=result.attempt,
        step=result.step,
    )
