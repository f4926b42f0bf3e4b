"""The client that ``--server http://…`` finds: the commands for the jobs of a service."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from hostcore.cli.cancellation import Waiting, report_cancellation
from hostcore.cli.output import print_json, warn
from hostcore.cli.plan_lines import named, print_launch, print_plan, print_valid
from hostcore.cli.planning import job_of
from hostcore.cli.plugin_lines import conformance_cell, print_plugins
from hostcore.cli.run_lines import is_of, print_runs
from hostcore.job.load import load_job
from hostcore.job.names import is_builtin
from hostcore.job.spec import JobSpec
from hostcore.plugins.listing import ShippedReport
from hostcore.supervisor.cancelling import Cancellation
from hostcore.supervisor.plan import SERVING
from hostcore_hookspecs.kinds import KINDS
from hostcore_hookspecs.launcher import LaunchPlan
from hostcore_hookspecs.plan import PluginRef
from hostcore_service.client.answers import ForeignAnswer
from hostcore_service.client.client import Client
from hostcore_service.client.jobs import RemoteJobs, value_of
from hostcore_service.client.looking import show_remote_status
from hostcore_service.client.reading import show_remote_logs
from hostcore_service.client.running import document_of, naming_options, resume_remote, run_remote
from hostcore_service.client.telling import report_remote_result


class ServiceRuns:
    """A ``hostcore.cli.server_option.RunClient``.

    :param url: Of the service.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def run(self, job: Path, options: Mapping[str, Any], *, detach: bool, as_json: bool) -> None:
        """``hostcore run``."""
        run_remote(self._url, job, options, detach=detach, as_json=as_json)

    def resume(self, run: str, *, detach: bool, quiet: bool, as_json: bool) -> None:
        """``hostcore resume``."""
        resume_remote(self._url, run, detach=detach, quiet=quiet, as_json=as_json)

    def validate(self, job: Path, options: Mapping[str, Any], *, as_json: bool) -> None:
        """``hostcore validate``."""
        validate_remote(self._url, job, options, as_json=as_json)

    def list(self, *, statuses: Sequence[str], trainer: str | None, limit: int | None, as_json: bool) -> None:
        """``hostcore list``."""
        list_remote(self._url, statuses=statuses, trainer=trainer, limit=limit, as_json=as_json)

    def status(self, run: str, *, follow: bool, as_json: bool, verbose: bool) -> None:
        """``hostcore status``."""
        show_remote_status(self._url, run, follow=follow, as_json=as_json, verbose=verbose)

    def logs(self, run: str, **how: Any) -> None:
        """``hostcore logs``."""
        show_remote_logs(self._url, run, **how)

    def cancel(self, run: str, *, reason: str, wait: bool, as_json: bool) -> None:
        """``hostcore cancel``."""
        cancel_remote(self._url, run, reason=reason, wait=wait, as_json=as_json)

    def plugins(self, *, as_json: bool) -> None:
        """``hostcore plugins``."""
        list_remote_plugins(self._url, as_json=as_json)


_LOOK_SECONDS: Final = 0.5


def cancel_remote(server: str, run: str, *, reason: str, wait: bool, as_json: bool) -> None:
    """Cancel a job of a service. One that has ended stays as it is."""
    with Client.of(server) as client:
        jobs = RemoteJobs(client)
        job = jobs.find(run)
        requested = not job.is_over
        if requested:
            job = jobs.cancel(job.run_id, reason)
            with Waiting(job.run_id) as waiting:
                while wait and not job.is_over:
                    waiting.show(job.summary)
                    client.sleep(_LOOK_SECONDS)
                    job = jobs.look_patiently(job.run_id)
        done = Cancellation(
            run_id=job.run_id,
            status=job.status,
            attempt=job.attempt,
            requested=requested,
            result=jobs.result(job) if job.is_over else None,
        )
        report_cancellation(
            done,
            lambda result, note: report_remote_result(result, client.url, as_json=False, note=note),
            waited=wait,
            as_json=as_json,
        )


def list_remote_plugins(server: str, *, as_json: bool) -> None:
    """List the plugins that are installed where a service runs."""
    with Client.of(server) as client:
        found = client.get("/v1/plugins")
        if as_json:
            print_json(found)
            return
        try:
            rows = [_row(one) for one in found["plugins"] if one["kind"] in KINDS]
            broken = [f"{one['distribution']} is broken: {one['error']} ({one['path']})" for one in found["broken"]]
        except (KeyError, TypeError) as error:
            raise ForeignAnswer(f"{client.url} answers what is no list of plugins: {error!r}") from error
    print_plugins(rows)
    for warning in broken:
        warn(warning)


def _row(plugin: Mapping[str, Any]) -> tuple[str, ...]:
    kind, name, value, dist, version = (plugin[key] for key in ("kind", "name", "value", "distribution", "version"))
    ref = PluginRef(kind=kind, name=name, value=value, dist=dist, version=version)
    return (KINDS[kind].label, name, f"{dist} {version}", conformance_cell(ref, _report(plugin)), value)


def _report(plugin: Mapping[str, Any]) -> ShippedReport | None:
    """What its report says in a table, where no failure is told."""
    if plugin["conformance"] is None:
        return None
    checked = {key: plugin[key] for key in ("kind", "name", "distribution")}
    return value_of(ShippedReport, {**plugin["conformance"], **checked, "failures": ()})


def list_remote(server: str, *, statuses: Sequence[str], trainer: str | None, limit: int | None, as_json: bool) -> None:
    """List the jobs of a service as the runs of this machine are listed."""
    with Client.of(server) as client:
        jobs = RemoteJobs(client).newest_first(statuses=statuses)
        wanted = list(islice((job.summary for job in jobs if is_of(job.summary, trainer)), limit))
        chosen = bool(statuses or trainer)
        print_runs(wanted, as_json=as_json, nothing=f"no runs at {client.url}{' are like that' if chosen else ''}")


#: A check imports plugins and opens data, perhaps after others.
_PATIENCE_SECONDS: Final = 300.0


def validate_remote(server: str, job: Path, options: Mapping[str, Any], *, as_json: bool) -> None:
    """Check a job file where a service would run it."""
    with Client.of(server) as client:
        asked = job_of(job, options)
        with naming_options(asked):
            found = client.post("/v1/jobs:validate", document_of(asked), patience_seconds=_PATIENCE_SECONDS)
        try:
            spec, plan = load_job(found["job"]), found["plan"]
            _print(spec, plan, client.url, as_json=as_json)
        except (KeyError, TypeError) as error:
            raise ForeignAnswer(f"{client.url} answers what is no plan: {error!r}") from error


def _print(spec: JobSpec, plan: Mapping[str, Any], url: str, *, as_json: bool) -> None:
    checked = plan["checked"]
    launch = None if is_builtin(spec.launcher.use, "local") else LaunchPlan(**plan["launch"])
    if as_json:
        launched = {"launch": plan["launch"]} if launch else {}
        print_json({"job": spec.to_json(), "directory": None, **(checked or {}), **launched})
    else:
        serving, others = _plugins(plan["plugins"])
        fate = ("run", f"new, at {url}")
        if checked is None:
            print_valid(spec.run_id, [fate, *others, *serving])
        else:
            print_plan(spec, checked, fate[1], serving=serving)
        if launch is not None:
            print_launch(launch)
    for sentence in plan["unchecked"]:
        warn(f"unchecked: {sentence}")


def _plugins(found: Sequence[Mapping[str, Any]]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Kind and name of the plugins: those that serve a run beside its workers, and the others."""
    known = [one for one in found if one["kind"] in KINDS]
    shown = [(one["kind"] in SERVING, (KINDS[one["kind"]].label, named(one))) for one in known]
    return [line for serves, line in shown if serves], [line for serves, line in shown if not serves]
