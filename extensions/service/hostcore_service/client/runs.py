"""What ``--server http://…`` finds: the runs of a service, as commands ask about them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, Final

from hostcore.checkpoints.names import step_of_folder
from hostcore.cli.job_options import JobOptions
from hostcore.cli.plan_lines import PRINTED, named
from hostcore.cli.planning import job_of
from hostcore.cli.run_client import (
    InstalledPlugins,
    RunHandle,
    RunList,
    RunLog,
    ServiceClient,
    SubmittedRun,
    Validation,
)
from hostcore.cli.watching import Screen
from hostcore.errors import all_errors
from hostcore.job.document import blame
from hostcore.job.load import load_job
from hostcore.job.names import is_builtin
from hostcore.job.spec import JobSpec
from hostcore.plugins.listing import ShippedReport
from hostcore.runs.result import RunResult
from hostcore.runs.statuses import ALIVE
from hostcore.runs.summary import RunSummary
from hostcore.runs.used import Used, UseQuery
from hostcore.supervisor.cancelling import Cancellation
from hostcore.supervisor.interrupts import Interrupts
from hostcore.supervisor.opening import RunConflict
from hostcore.supervisor.plan import SERVING
from hostcore.supervisor.run_status import RunStatus
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.kinds import KINDS
from hostcore_hookspecs.launcher import LaunchPlan
from hostcore_hookspecs.plan import PluginRef
from hostcore_service.client.answers import ForeignAnswer
from hostcore_service.client.client import Client, shown, words_for
from hostcore_service.client.jobs import RemoteJob, RemoteJobs, path_of, value_of
from hostcore_service.client.logs import EventLog, OutputLog
from hostcore_service.client.status import status_of
from hostcore_service.client.watch import Watch

#: Between two looks at a run that is shown, or waited for.
_LOOK_SECONDS: Final = 1.0
_WAIT_SECONDS: Final = 0.5
#: A check imports plugins and opens data, perhaps after others.
_CHECK_SECONDS: Final = 300.0


class ServiceRuns(ServiceClient):
    """The client of a service.

    :param url: Of the service.
    """

    def __init__(self, url: str) -> None:
        self._client = Client.of(url)
        self._jobs = RemoteJobs(self._client)
        self.url = self._client.url

    def plugins(self) -> InstalledPlugins:
        """The plugins that are installed where the service runs."""
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
        """The jobs of the service, newest first."""
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

    def find(self, name: str) -> "ServiceRun":
        """The job that a name means; see :meth:`RemoteJobs.find`."""
        return ServiceRun(self._jobs, self._jobs.find(name))

    def validate(self, job: Path, options: JobOptions) -> Validation:
        """Check a job file where the service would run it."""
        asked = job_of(job, options)
        with _naming_options(asked):
            found = self._client.post("/v1/jobs:validate", _document_of(asked), timeout_seconds=_CHECK_SECONDS)
        try:
            spec, plan = load_job(found["job"]), found["plan"]
            checked, (serving, others) = plan["checked"], _plugins_of(plan["plugins"])
            if checked is not None and (missing := PRINTED - checked.keys()):
                raise KeyError(*sorted(missing))
            return Validation(
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

    def submit(self, job: Path, options: JobOptions) -> "SubmittedJob":
        """Submit a job file, once, however often it has to be sent."""
        spec = job_of(job, options)
        with _naming_options(spec):
            submitted = self._jobs.submit(_document_of(spec))
        return SubmittedJob(self._jobs, submitted, spec)

    def resume(self, name: str, options: JobOptions) -> "SubmittedJob":
        """Have a job that has ended go on; one that has succeeded stays as it is."""
        job = self._jobs.find(name)
        if job.status in ALIVE:
            raise RunConflict(
                f"the run {job.run_id!r} is {job.status} already",
                hint=f"`{shown(self.url, 'logs', '-f', job.run_id)}` shows how it goes",
            )
        spec = load_job(job.job, overrides=["terminal=false"] if options.quiet else [])
        finished = self._jobs.result(job) if job.status == "succeeded" else None
        resumed = job if finished else self._jobs.resume(job)
        return SubmittedJob(self._jobs, resumed, spec, after_attempt=job.attempt, finished=finished)


class ServiceRun(RunHandle):
    """A job of the service.

    :param job: As it was seen last.
    """

    def __init__(self, jobs: RemoteJobs, job: RemoteJob) -> None:
        self._jobs = jobs
        self._job = job
        self.place = jobs.client.url + path_of(job.run_id)

    @property
    def run_id(self) -> str:
        """The job's id."""
        return self._job.run_id

    def is_over(self) -> bool:
        """Whether the service says that it has ended."""
        self._job = self._jobs.get_until_answered(self.run_id)
        return self._job.is_over

    def wait(self) -> None:
        """Wait for the next look."""
        self._jobs.client.sleep(_LOOK_SECONDS)

    def status(self) -> RunStatus:
        """Return its status as of the last request."""
        return status_of(self._job, self._jobs.client.url)

    def events(self, *, attempt: int | None, since: int | None) -> RunLog:
        """Its event log."""
        return EventLog(self._jobs, self._job, attempt=attempt, since=since)

    def output(self, *, attempt: int | None, rank: int | None) -> RunLog:
        """What a rank printed, or what the engine has of it where the service sees no more."""
        return OutputLog(self._jobs, self._job, attempt=attempt, rank=rank)

    def cancel(
        self,
        *,
        reason: str,
        force: bool,  # noqa: ARG002 - a service ends by force what does not end by itself
        wait: bool,
        watch: Callable[[RunSummary], None],
    ) -> Cancellation:
        """Ask the service to end it."""
        requested = not self._job.is_over
        if requested:
            self._job = self._jobs.cancel(self.run_id, reason)
            while wait and not self.is_over():
                watch(self._job.summary)
                self._jobs.client.sleep(_WAIT_SECONDS)
        return Cancellation(
            run_id=self.run_id,
            status=self._job.status,
            attempt=self._job.attempt,
            requested=requested,
            result=self._jobs.result(self._job) if self._job.is_over else None,
        )

    def places(self, result: RunResult) -> Sequence[tuple[str, str]]:
        """Where the service has what it has left, and how to go on with it."""
        step = step_of_folder(PurePosixPath(result.final_checkpoint).name) if result.final_checkpoint else None
        lines = [("checkpoint", f"{self.place}/checkpoints/{step}")] if step is not None else []
        lines.append(("everything", self.place))
        if result.status != "succeeded" and result.final_checkpoint:
            lines.append(("to go on", shown(self._jobs.client.url, "resume", self.run_id)))
        return lines


class SubmittedJob(ServiceRun, SubmittedRun):
    """A job that the service has just taken.

    :param spec: Says what a terminal shows of it.
    :param after_attempt: The newest attempt before, whose events are not shown again; None for a new job.
    """

    def __init__(
        self,
        jobs: RemoteJobs,
        job: RemoteJob,
        spec: JobSpec,
        *,
        after_attempt: int | None = None,
        finished: RunResult | None = None,
    ) -> None:
        super().__init__(jobs, job)
        self._spec = spec
        self._after_attempt = after_attempt
        self.finished = finished
        self.words: Sequence[str] = [job.run_id, *words_for(jobs.client.url)]

    def submission(self) -> Mapping[str, Any]:
        """What is known of a run of this machine, and where it is instead."""
        known = {"run_id": self.run_id, "status": "submitted", "directory": None, "launch": None}
        return {**known, "server": self._jobs.client.url}

    def watch(self, interrupts: Interrupts) -> RunResult:
        """Follow its events to its end."""
        if self._after_attempt is None:
            self._jobs.client.tell(f"{self.run_id}  submitted to {self._jobs.client.url}")
        with Screen(self._spec, run_id=self.run_id, after_attempt=self._after_attempt or 0) as screen:
            self._job = Watch(self._jobs, self.run_id, interrupts).to_the_end(screen.show)
        return self._jobs.result(self._job)


def _used(job: RemoteJob) -> Sequence[Used]:
    return [Used.of(one, file=Path(job.run_id)) for one in job.used or ()]


def _plugin(found: Mapping[str, Any]) -> tuple[PluginRef, ShippedReport | None]:
    kind, name, value, dist, version = (found[key] for key in ("kind", "name", "value", "distribution", "version"))
    return PluginRef(kind=kind, name=name, value=value, dist=dist, version=version), _report(found)


def _report(plugin: Mapping[str, Any]) -> ShippedReport | None:
    """What its report says in a table, where no failure is told."""
    if plugin["conformance"] is None:
        return None
    checked = {key: plugin[key] for key in ("kind", "name", "distribution")}
    return value_of(ShippedReport, {**plugin["conformance"], **checked, "failures": ()})


def _plugins_of(found: Sequence[Mapping[str, Any]]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Kind and name of the plugins: those that serve a run beside its workers, and the others."""
    known = [one for one in found if one["kind"] in KINDS]
    named_ones = [(one["kind"] in SERVING, (KINDS[one["kind"]].label, named(one))) for one in known]
    return [line for serves, line in named_ones if serves], [line for serves, line in named_ones if not serves]


@contextmanager
def _naming_options(spec: JobSpec) -> Iterator[None]:
    """While it is entered: an error that the service finds in the job names the option that the value came from."""
    try:
        yield
    except HostcoreError as error:
        blame(all_errors(error), spec.origins)
        raise


def _document_of(spec: JobSpec) -> dict[str, Any]:
    """A job as it travels: as resolved, without what the service decides where the job says nothing.

    Profiles have been applied, and may hold what is not for others.
    """
    default = JobSpec(trainer=spec.trainer, max_steps=1).to_json() | {"max_steps": 0}
    plain = spec.to_json()
    own = {"run_id"} if spec.generated_run_id else set()
    kept = {key: value for key, value in plain.items() if key == "trainer" or value != default.get(key, _NEVER)}
    return {key: value for key, value in kept.items() if key not in {"profiles", *own}}


_NEVER: Final = object()
