"""``hostcore run``."""

from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from hostcore.cli.event_options import EventOptions, event_options
from hostcore.cli.job_options import (
    JobCommand,
    JobOptions,
    job_argument,
    job_options,
    quiet_option,
    runs_dir_option,
    same_plugins_option,
    where_options,
)
from hostcore.cli.output import json_option, reports_errors, verbose_option
from hostcore.cli.server_option import server_option, service_client

if TYPE_CHECKING:
    from hostcore.supervisor.plan import RunPlan


@click.command("run", cls=JobCommand, short_help="Run a job, watch it, report how it ended.")
@job_argument
@job_options
@where_options
@quiet_option
@runs_dir_option
@event_options
@click.option(
    "--fast-dev-run",
    is_flag=True,
    help="Try the job: a run of its own with 3 steps, and one validation if the job validates; it is not mirrored.",
)
@click.option("--trace-hooks", is_flag=True, help="Write down every call of a hook, in the run's logs.")
@same_plugins_option
@server_option
@json_option
@verbose_option
@reports_errors
def run_command(
    job: Path,
    *,
    in_process: bool,
    detach: bool,
    fast_dev_run: bool,
    trace_hooks: bool,
    same_plugins: bool,
    runs: Path,
    events: EventOptions,
    server: str | None,
    as_json: bool,
    verbose: bool,  # noqa: ARG001 - reports_errors reads it
    options: JobOptions,
) -> None:
    """Run the job in the file JOB (JSON, YAML or TOML), watch it, and report how it ended.

    Exits 0 when the run succeeded, 1 when it failed, 2 when the job is invalid (nothing was started then), 3 when a
    policy refused it, 75 when it was preempted and 130 when it was cancelled; both can be resumed. With --detach it
    exits 0 as soon as the run is on its way.
    """
    if (trace_hooks or same_plugins) and (detach or server):
        here = "--trace-hooks" if trace_hooks else "--same-plugins"
        raise click.UsageError(f"{here} and {'--detach' if detach else '--server'} exclude each other")
    if fast_dev_run:
        from hostcore.cli.planning import for_fast_dev_run

        options = for_fast_dev_run(job, options)
    if server:
        from hostcore.cli.submitted import run_at_service

        client = service_client(server)
        run_at_service(lambda: client.submit(job, options), detach=detach, as_json=as_json)
    from hostcore.cli.planning import plan_of
    from hostcore.cli.running import run_and_leave

    events = events.about(job, profile=options.profile)

    def plan(world_size: int | None) -> "RunPlan":
        where = {"world_size": world_size, "runs": runs, "extra_reporters": events.reporters}
        made = plan_of(job, options, submits=not in_process, **where)
        return attrs.evolve(made, trace_hooks=trace_hooks, same_plugins=same_plugins)

    run_and_leave(plan, runs=runs, in_process=in_process, detach=detach, events=events, as_json=as_json)
