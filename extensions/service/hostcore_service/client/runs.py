"""The client of a service: the runs of ``--server http://…``."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click

from hostcore.cli.job_options import JobOptions
from hostcore.cli.plan_lines import PRINTED, plugin_with_origin
from hostcore.cli.planning import job_with_options
from hostcore.cli.run_client import CheckedJob, InstalledPlugins, RunClient, RunList, RunRequest, StartedRun
from hostcore.cli.stopping import stoppable_at_once
from hostcore.errors import all_errors
from hostcore.job.document import blame
from hostcore.job.load import load_job
from hostcore.job.names import is_builtin
from hostcore.job.spec import JobSpec
from hostcore.plugins.listing import ShippedReport
from hostcore.runs.statuses import ALIVE
from hostcore.runs.used import Used, UseQuery
from hostcore.supervisor.interrupts import Interrupts
from hostcore.supervisor.opening import RunConflict
from hostcore.supervisor.plan import SERVING
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.kinds import KINDS
from hostcore_hookspecs.launcher import LaunchPlan
from hostcore_hookspecs.plan import PluginRef
from hostcore_service.client.answers import ForeignAnswer
from hostcore_service.client.client import Client, shown
from hostcore_service.client.jobs import RemoteJob, RemoteJobs, value_of
from hostcore_service.client.run import ServiceRun
from hostcore_service.client.watch import SubmittedJob

_UNKNOWN: Final = "before the service had answered; `hostcore list --server` shows whether it has the job"
#: A check imports plugins and opens data, perhaps after others.
_CHECK_SECONDS: Final = 300.0


class ServiceRuns(RunClient):
    """The client of a service.

    :param url: Of the service.
    """

    def __init__(self, url: str) -> None:
        self._client = Client.of(url)
        self._jobs = RemoteJobs(self._client)
        self.url = self._client.url

    @contextmanager
    def start(self, request: RunRequest, interrupts: Interrupts) -> Iterator[StartedRun]:
        """Submit or resume a job; the service holds it."""
        with stoppable_at_once(interrupts, as_json=request.as_json, so_that=_UNKNOWN):
            run = self._resumed(request) if request.job is None else self._submitted(request.job, request.options)
        yield run

    def plugins(self) -> InstalledPlugins:
        """List the plugins that are installed where the service runs."""
        found = self._client.get("/v1/plugins")
        try:
            return InstalledPlugins(
                document=found,
                plugins=[_plugin(one) for one in found["plugins"] if one["kind"] in KINDS],
                warnings=[
                    f"{one['distribution']} is broken: {one['error']} ({one['path']})" for one in found["broken"]
                ],
            )
        except (KeyError, TypeError) as error:
            raise ForeignAnswer(f"{self.url} answers what is no list of plugins: {error!r}") from error

    def list(self, *, statuses: Sequence[str], trainer: str | None, use: UseQuery, limit: int | None) -> RunList:
        """List the jobs of the service, newest first."""
        if use:
            found = self._jobs.using(use, statuses=statuses)
            jobs, unknown = found.newest_first, found.unknown
        else:
            jobs, unknown = self._jobs.newest_first(statuses=statuses), 0
        shown_jobs = list(islice((job for job in jobs if job.summary.is_of(trainer)), limit))
        try:
            used = {job.run_id: _used(job) for job in shown_jobs} if use else None
        except HostcoreError as error:
            raise ForeignAnswer(f"{self.url} answers what no run used: {error.message}") from error
        return RunList(
            runs=[job.summary for job in shown_jobs],
            nothing=f"no runs at {self.url}{' are like that' if statuses or trainer or use else ''}",
            used=used,
            unknown=unknown,
        )

    def find(self, name: str) -> ServiceRun:
        """Find a job; see :meth:`RemoteJobs.find`."""
        return ServiceRun(self._jobs, self._jobs.find(name))

    def validate(self, job: Path, options: JobOptions) -> CheckedJob:
        """Check a job file where the service would run it."""
        asked = job_with_options(job, options)
        with _naming_options(asked):
            found = self._client.post("/v1/jobs:validate", _document_of(asked), timeout_seconds=_CHECK_SECONDS)
        try:
            spec, plan = load_job(found["job"]), found["plan"]
            checked, (serving, others) = plan["checked"], _plugins_of(plan["plugins"])
            if checked is not None and (missing := PRINTED - checked.keys()):
                raise KeyError(*sorted(missing))
            return CheckedJob(
                spec=spec,
                directory=None,
                outcome=f"new, at {self.url}",
                checked=checked,
                serving=serving,
                others=others,
                launch=None if is_builtin(spec.launcher.use, "local") else LaunchPlan(**plan["launch"]),
                unchecked=plan["unchecked"],
            )
        except (KeyError, TypeError) as error:
            raise ForeignAnswer(f"{self.url} answers what is no plan: {error!r}") from error

    def _submitted(self, job: Path, options: JobOptions) -> SubmittedJob:
        """Submit a job file; a repeated request makes no second job."""
        spec = job_with_options(job, options)
        with _naming_options(spec):
            submitted = self._jobs.submit(_document_of(spec))
        return SubmittedJob(self._jobs, submitted, spec)

    def _resumed(self, request: RunRequest) -> SubmittedJob:
        """Resume a job that has ended; one that has succeeded stays as it is."""
        options = request.options
        quiet = [change for change, option in options.short.items() if option == "--quiet"]
        if options.overrides or len(options.short) > len(quiet):
            others = {*options.short.values()} - {"--quiet", "--devices"}
            changing = ", ".join(("--set", "--devices", *sorted(others)))
            raise click.UsageError(f"a service goes on with the job as it was submitted: leave {changing} out")
        if request.begins:
            raise click.UsageError("a service begins a new run from a checkpoint by `hostcore run JOB --from CKPT`")
        job = self._jobs.find(request.resume)
        if job.status in ALIVE:
            raise RunConflict(
                f"the run {job.run_id!r} is {job.status} already",
                hint=f"`{shown(self.url, 'logs', '-f', job.run_id)}` shows how it goes",
            )
        spec = load_job(job.job, overrides=quiet)
        finished = self._jobs.result(job) if job.status == "succeeded" else None
        resumed = job if finished else self._jobs.resume(job)
        return SubmittedJob(self._jobs, resumed, spec, after_attempt=job.attempt, finished=finished)


def _used(job: RemoteJob) -> Sequence[Used]:
    return [Used.of(one, file=Path(job.run_id)) for one in job.used or ()]


def _plugin(found: Mapping[str, Any]) -> tuple[PluginRef, ShippedReport | None]:
    kind, name, value, dist, version = (found[key] for key in ("kind", "name", "value", "distribution", "version"))
    return PluginRef(kind=kind, name=name, value=value, dist=dist, version=version), _report(found)


def _report(plugin: Mapping[str, Any]) -> ShippedReport | None:
    """Return its report as a table has it, without the failures."""
    if plugin["conformance"] is None:
        return None
    checked = {key: plugin[key] for key in ("kind", "name", "distribution")}
    return value_of(ShippedReport, {**plugin["conformance"], **checked, "failures": ()})


def _plugins_of(found: Sequence[Mapping[str, Any]]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return kind and name of the plugins: those that serve a run beside its workers, and the others."""
    known = [one for one in found if one["kind"] in KINDS]
    named_ones = [(one["kind"] in SERVING, (KINDS[one["kind"]].label, plugin_with_origin(one))) for one in known]
    return [line for serves, line in named_ones if serves], [line for serves, line in named_ones if not serves]


@contextmanager
def _naming_options(spec: JobSpec) -> Iterator[None]:
    """Attribute errors that the service finds in the job to the options that their values came from."""
    try:
        yield
    except HostcoreError as error:
        blame(all_errors(error), spec.origins)
        raise


def _document_of(spec: JobSpec) -> dict[str, Any]:
    """Return a job to submit: as resolved, without the defaults, which the service decides.

    Profiles have been applied, and may hold what is not for others.
    """
    default = JobSpec(trainer=spec.trainer, max_steps=1).to_json() | {"max_steps": 0}
    plain = spec.to_json()
    own = {"run_id"} if spec.generated_run_id else set()
    kept = {key: value for key, value in plain.items() if key == "trainer" or value != default.get(key, _NEVER)}
    return {key: value for key, value in kept.items() if key not in {"profiles", *own}}


_NEVER: Final = object()
