"""``hostcore run --server`` and ``hostcore resume --server``."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

from hostcore.cli.output import echo
from hostcore.cli.planning import job_of
from hostcore.cli.stopping import leave, stoppable_at_once
from hostcore.cli.watching import Screen
from hostcore.errors import all_errors
from hostcore.job.layers import mark
from hostcore.job.load import load_job
from hostcore.job.spec import JobSpec
from hostcore.runs.statuses import ALIVE
from hostcore.supervisor.interrupts import Interrupts
from hostcore.supervisor.opening import RunConflict
from hostcore_hookspecs.errors import HostcoreError
from hostcore_service.client.address import shown
from hostcore_service.client.client import Client
from hostcore_service.client.following import Watch
from hostcore_service.client.jobs import RemoteJob, RemoteJobs
from hostcore_service.client.telling import report_remote_result, report_remote_submission

_UNKNOWN: Final = "before the service had answered; `hostcore list --server` shows whether it has the job"
_FINISHED_BEFORE: Final = "finished before: nothing to do"


def run_remote(server: str, job: Path, options: Mapping[str, Any], *, detach: bool, as_json: bool) -> None:
    """Have a service run a job file, watch it, and report how it ended."""
    with Interrupts() as interrupts, Client.of(server) as client:
        jobs = RemoteJobs(client)
        with stoppable_at_once(interrupts, as_json=as_json, so_that=_UNKNOWN):
            spec = job_of(job, options)
            with naming_options(spec):
                submitted = jobs.submit(document_of(spec))
        if detach:
            report_remote_submission(submitted.run_id, client.url, as_json=as_json)
            return
        echo(f"{submitted.run_id}  submitted to {client.url}", err=True)
        _watch(jobs, submitted, spec, interrupts, as_json=as_json)


def resume_remote(server: str, run: str, *, detach: bool, quiet: bool, as_json: bool) -> None:
    """Have a service go on with a job that has ended, watch it, and report how it ended.

    :param quiet: Show nothing meanwhile; the job stays as it was submitted.
    """
    with Interrupts() as interrupts, Client.of(server) as client:
        jobs = RemoteJobs(client)
        with stoppable_at_once(interrupts, as_json=as_json, so_that=_UNKNOWN):
            job = jobs.find(run)
            if job.status in ALIVE:
                raise RunConflict(
                    f"the run {job.run_id!r} is {job.status} already",
                    hint=f"`{shown(client.url, 'logs', '-f', job.run_id)}` shows how it goes",
                )
            if job.status == "succeeded":
                report_remote_result(jobs.result(job), client.url, as_json=as_json, note=_FINISHED_BEFORE)
                return
            spec = load_job(job.job, overrides=["terminal=false"] if quiet else [])
            resumed = jobs.resume(job)
        if detach:
            report_remote_submission(resumed.run_id, client.url, as_json=as_json)
            return
        _watch(jobs, resumed, spec, interrupts, after_attempt=job.attempt, as_json=as_json)


def _watch(
    jobs: RemoteJobs,
    job: RemoteJob,
    spec: JobSpec,
    interrupts: Interrupts,
    *,
    after_attempt: int = 0,
    as_json: bool,
) -> NoReturn:
    watch = Watch(jobs, job.run_id, interrupts)
    with Screen(spec, run_id=job.run_id, after_attempt=after_attempt) as screen:
        ended = watch.to_the_end(screen.show)
    result = jobs.result(ended)
    report_remote_result(result, jobs.client.url, as_json=as_json)
    leave(interrupts, result.exit_code)


@contextmanager
def naming_options(spec: JobSpec) -> Iterator[None]:
    """While it is entered: an error that the service finds in the job names the option that the value came from."""
    try:
        yield
    except HostcoreError as error:
        mark(all_errors(error), spec.origins)
        raise


def document_of(spec: JobSpec) -> dict[str, Any]:
    """A job as it travels: as resolved, without what the service decides where the job says nothing.

    Profiles have been applied, and may hold what is not for others.
    """
    default = JobSpec(trainer=spec.trainer, max_steps=1).to_json() | {"max_steps": 0}
    plain = spec.to_json()
    own = {"run_id"} if spec.generated_run_id else set()
    kept = {key: value for key, value in plain.items() if key == "trainer" or value != default.get(key, _NEVER)}
    return {key: value for key, value in kept.items() if key not in {"profiles", *own}}


_NEVER: Final = object()
