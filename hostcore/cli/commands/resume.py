"""``hostcore resume``."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from hostcore.cli import completion
from hostcore.cli.event_options import EventOptions, event_options
from hostcore.cli.job_options import (
    JobCommand,
    JobOptions,
    devices_option,
    quiet_option,
    runs_dir_option,
    same_plugins_option,
    set_option,
    where_options,
)
from hostcore.cli.output import json_option, reports_errors, verbose_option
from hostcore.cli.server_option import server_option, service_client
from hostcore_hookspecs.errors import HostcoreError

if TYPE_CHECKING:
    from hostcore.supervisor.plan import RunPlan


@click.command("resume", cls=JobCommand, short_help="Go on with a run, or begin a new one from a checkpoint.")
@click.argument("run", metavar="[RUN|CKPT.json]", required=False, shell_complete=completion.runs_or_files)
@click.option(
    "--checkpoint",
    metavar="CKPT.json",
    help="The checkpoint to begin a new run from, in place of RUN.",
    shell_complete=completion.files,
)
@set_option
@devices_option
@where_options
@quiet_option
@runs_dir_option
@event_options
@same_plugins_option
@click.option(
    "--launched", is_flag=True, hidden=True, help="What a launcher starts: the supervisor of a submitted run."
)
@server_option
@json_option
@verbose_option
@reports_errors
def resume_command(
    run: str | None,
    *,
    checkpoint: str | None,
    in_process: bool,
    detach: bool,
    same_plugins: bool,
    launched: bool,
    runs: Path,
    events: EventOptions,
    server: str | None,
    as_json: bool,
    verbose: bool,  # noqa: ARG001 - reports_errors reads it
    options: JobOptions,
) -> None:
    """Go on with RUN from its newest checkpoint, or begin a new run from the checkpoint CKPT.json of another.

    RUN is a run id, the beginning of one, or a run directory; the job is the one that the run recorded. It goes on from
    its beginning if it has no checkpoint. CKPT.json is a commit record, such as runs/RUN/checkpoints/step-000200.json:
    the new run has the job of that run and an id of its own (--set run_id=… chooses it). Exits as `hostcore run` does.
    """
    if run and checkpoint:
        raise click.UsageError("RUN and --checkpoint exclude each other: the one goes on, the other begins a new run")
    named = run or checkpoint
    if not named:
        raise click.UsageError("Missing argument 'RUN|CKPT.json'; --checkpoint CKPT.json gives a checkpoint as well.")
    if same_plugins and (detach or server):
        raise click.UsageError(f"--same-plugins and {'--detach' if detach else '--server'} exclude each other")
    service = None if launched else server  # what was launched runs here, whatever its environment says
    from hostcore.checkpoints.find import names_checkpoint
    from hostcore.cli.planning import plan_from_checkpoint, plan_of_run
    from hostcore.cli.redacting_stream import scrub_descriptors
    from hostcore.cli.running import fail_if_awaited, run_and_leave
    from hostcore.runs.find import find_run
    from hostcore.secrets.scrub import when_known
    from hostcore.supervisor.opening import MirrorConflict, RunConflict
    from hostcore.supervisor.ranks.engine import Engine

    begins = bool(checkpoint) or names_checkpoint(named)
    if service:
        _resume_at_service(service, named, options, begins=begins, detach=detach, as_json=as_json)
    if launched:
        when_known(scrub_descriptors)  # the output goes to a file that no other process scrubs
    alone = launched and Engine.started_alone(os.environ)

    def plan(world_size: int | None) -> "RunPlan":
        where = {
            "world_size": world_size or (1 if alone else None),
            "extra_reporters": events.reporters,
            "submits": not (in_process or launched),
        }
        if begins:
            return plan_from_checkpoint(Path(named), options, runs=runs, **where)
        return attrs.evolve(plan_of_run(named, options, runs=runs, **where), same_plugins=same_plugins)

    try:
        run_and_leave(
            plan,
            runs=runs,
            in_process=in_process,
            detach=detach,
            launched=launched,
            events=events,
            as_json=as_json,
        )
    except HostcoreError as error:
        if launched and (isinstance(error, MirrorConflict) or not isinstance(error, RunConflict)):
            fail_if_awaited(find_run(named, runs), error)
        raise


def _resume_at_service(
    server: str, run: str, options: JobOptions, *, begins: bool, detach: bool, as_json: bool
) -> None:
    from hostcore.cli.submitted import run_at_service

    if options.overrides or options.added or options.devices:
        changing = ", ".join(("--set", "--devices", *sorted({*options.added.values()})))
        raise click.UsageError(f"a service goes on with the job as it was submitted: leave {changing} out")
    if begins:
        raise click.UsageError("a service begins a new run from a checkpoint by `hostcore run JOB --from CKPT`")
    client = service_client(server)
    run_at_service(lambda: client.resume(run, options), detach=detach, as_json=as_json)
