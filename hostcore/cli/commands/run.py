"""``hostcore run``."""

from pathlib import Path

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
    where_options,
)
from hostcore.cli.output import json_option, plugins_print_aside, reports_errors, verbose_option
from hostcore.cli.server_option import server_option, service_client


@click.command("run", cls=JobCommand, short_help="Run a job, watch it, report how it ended.")
@job_argument
@job_options
@where_options
@quiet_option
@runs_dir_option
@event_options
@click.option("--trace-hooks", is_flag=True, help="Write down every call of a hook, in the run's logs.")
@server_option
@json_option
@verbose_option
@reports_errors
def run_command(
    job: Path,
    *,
    in_process: bool,
    detach: bool,
    trace_hooks: bool,
    runs: Path,
    events: EventOptions,
    server: str | None,
    as_json: bool,
    verbose: bool,  # noqa: ARG001 - reports_errors reads it
    options: JobOptions,
) -> None:
    """Run the job in the file JOB (JSON or YAML), watch it, and report how it ended.

    Exits 0 when the run succeeded, 1 when it failed, 2 when the job is invalid (nothing was started then), 3 when a
    policy refused it, 75 when it was preempted and 130 when it was cancelled; both can be resumed. With --detach it
    exits 0 as soon as the run is on its way.
    """
    from hostcore.cli.adopting import ranks_of_engine
    from hostcore.cli.planning import plan_of
    from hostcore.cli.running import carry_out
    from hostcore.cli.stopping import leave, stoppable_at_once
    from hostcore.cli.submitted import run_at_service
    from hostcore.supervisor.interrupts import Interrupts

    if trace_hooks and (detach or server):
        raise click.UsageError(f"--trace-hooks and {'--detach' if detach else '--server'} exclude each other")
    if server:
        client = service_client(server)
        run_at_service(lambda: client.submit(job, options), detach=detach, as_json=as_json)
    with (
        Interrupts() as interrupts,
        plugins_print_aside(events.on_standard_output),
        ranks_of_engine(interrupts, runs=runs, in_process=in_process, detach=detach) as ranks,
    ):
        events = events.about(job, profile=options.profile)
        with stoppable_at_once(interrupts, as_json=as_json), plugins_print_aside(as_json):
            world_size = ranks.world_size if ranks else None
            plan = plan_of(job, options, world_size=world_size, runs=runs, extra_reporters=events.reporters)
            plan = attrs.evolve(plan, trace_hooks=trace_hooks)
        code = carry_out(
            plan, interrupts, ranks=ranks, in_process=in_process, detach=detach, events=events, as_json=as_json
        )
        leave(interrupts, code)
