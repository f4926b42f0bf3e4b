"""``hostcore run``."""

from functools import partial
from pathlib import Path

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
from hostcore.cli.server_option import run_client, server_option


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
    from hostcore.cli.follow import start_and_follow
    from hostcore.cli.run_client import RunRequest

    if fast_dev_run:
        from hostcore.cli.planning import for_fast_dev_run

        options = for_fast_dev_run(job, options)
    request = RunRequest(
        job=job,
        options=options,
        events=events,
        in_process=in_process,
        detach=detach,
        trace_hooks=trace_hooks,
        same_plugins=same_plugins,
        as_json=as_json,
    )
    start_and_follow(partial(run_client(server, runs).start, request), detach=detach, as_json=as_json)
