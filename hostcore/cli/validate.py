"""``hostcore validate``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import click

from hostcore.cli.job_options import JobCommand, job_argument, job_options, plan_of
from hostcore.cli.output import json_option, plugins_print_aside, print_json, reports_errors, tell_aside, verbose_option
from hostcore.cli.server_option import server_option
from hostcore.job.names import is_builtin
from hostcore.job.spec import JobSpec, job_view
from hostcore.runs.result import RunResult
from hostcore.supervisor.authorizing import authorize_here
from hostcore.supervisor.bringing import examine_surroundings
from hostcore.supervisor.check import check_job
from hostcore.supervisor.mirror.adopting import find_in_mirror
from hostcore.supervisor.opening import examine_run
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.submit import dry_run
from hostcore_builtin_plugins.progress import format_devices
from hostcore_hookspecs.launcher import LaunchPlan


@click.command("validate", cls=JobCommand)
@job_argument
@job_options
@server_option
@json_option
@verbose_option
@reports_errors
def validate_command(
    job: Path,
    server: str | None,
    as_json: bool,
    verbose: bool,  # noqa: ARG001 - reports_errors reads it
    **options: object,
) -> None:
    """Check the job in the file JOB: everything that can be known before it starts.

    Imports the plugins and opens the data in a process of its own. Shows the plan, or all errors at once (exit code 2).
    """
    if server:
        from hostcore.cli.remote.validating import validate_remote

        validate_remote(server, job, options, as_json=as_json)
        return
    with plugins_print_aside(as_json):
        plan = plan_of(job, options)
        authorize_here(plan)
        plan = examine_surroundings(plan, tell_aside)
        mirrored = find_in_mirror(plan)
    finished = None if mirrored else examine_run(plan)
    checked = check_job(plan)
    checked = {**checked, "deprecated": [*checked["deprecated"], *plan.deprecated]}
    launch = None if is_builtin(plan.spec.launcher.use, "local") else dry_run(plan)
    if as_json:
        launched = {"launch": attrs.asdict(launch)} if launch else {}
        print_json({"job": plan.spec.to_json(), "directory": str(plan.directory.path), **checked, **launched})
    else:
        here = [*plan.reporters, *plan.uploaders, *plan.resolvers]
        serving = [(one.kind.label, one.ref.provenance) for one in here]
        print_plan(plan.spec, checked, _fate(plan, finished, mirrored), serving=serving)
        if launch is not None:
            print_launch(launch)


def print_plan(spec: JobSpec, checked: Mapping[str, Any], fate: str, *, serving: Sequence[tuple[str, str]]) -> None:
    """Print what was found out about a job.

    :param checked: See :func:`hostcore.supervisor.check.check_job`.
    :param fate: What would come of the run.
    :param serving: Kind and name of the plugins that serve it beside its workers.
    """
    lines = [("run", fate), _devices(checked["devices"], spec.precision)]
    for plugin in checked["plugins"]:
        lines.append((plugin["kind"].replace("_", " "), named(plugin)))
    lines += serving
    if checked["num_rows"] and spec.dataset:
        order = "shuffled" if spec.dataset.shuffle else "in file order"
        lines.append(
            (
                "data",
                f"{checked['num_rows']:,} rows in {checked['num_shards']:,} shards, {order}, "
                f"batches of {spec.dataset.batch_size:,}",
            )
        )
        lines.append(("columns", ", ".join(checked["data"]["columns"])))
    if checked["feed_bytes"]:
        lines.append(("memory", f"about {checked['feed_bytes'] / 1e6:,.0f} MB for the feed, beside the trainer's own"))
    per_epoch = f" ({checked['steps_per_epoch']:,} an epoch)" if checked["steps_per_epoch"] else ""
    lines.append(("steps", f"{checked['total_steps']:,}{per_epoch}"))
    lines.append(("cadence", _cadence(spec)))
    print_valid(spec.run_id, lines)
    for warning in (*checked["warnings"], *checked["deprecated"]):
        click.echo(f"{click.style('warning:', fg='yellow', bold=True)} {warning}", err=True)


def print_valid(run_id: str, lines: Sequence[tuple[str, str]]) -> None:
    """Say that a job is valid, and print names and values below that."""
    click.echo(f"{click.style('valid', fg='green', bold=True)}  {run_id}")
    for name, value in lines:
        click.echo(f"  {name:<12}{value}")


def print_launch(launch: LaunchPlan) -> None:
    """Print what a launcher would do."""
    click.echo(f"\n{click.style('launch', bold=True)}  {launch.summary}\n\n{launch.document.rstrip()}")


def _devices(devices: Sequence[str], precision: str) -> tuple[str, str]:
    separator = "; " if len(devices) > 1 else ", "
    return "devices" if len(devices) > 1 else "device", f"{format_devices(devices)}{separator}{precision}"


def _fate(plan: RunPlan, finished: RunResult | None, mirrored: str) -> str:
    if mirrored:
        return f"is brought here from {mirrored}, and goes on in {plan.directory.path}"
    if finished:
        return f"finished already at step {finished.step:,}: nothing would be done"
    if plan.directory.path.exists():
        return f"goes on in {plan.directory.path}"
    return f"new, in {plan.directory.path}"


def named(plugin: Mapping[str, Any]) -> str:
    """A plugin with where it comes from: ``flight_delay (hostcore-flight-delay 0.1.0)``."""
    origin = f" ({plugin['distribution']} {plugin['version']})" if plugin["distribution"] else ""
    return f"{plugin['name']}{origin}"


def _cadence(spec: JobSpec) -> str:
    job = job_view(spec)
    metrics = f"metrics every {job.metric_every:,}" if job.metric_every else "no metrics"
    often = f"every {job.checkpoint_every:,} and " if job.checkpoint_every else ""
    return f"{metrics}, a checkpoint {often}at the end"
