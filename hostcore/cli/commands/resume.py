"""``hostcore resume``."""

from functools import partial
from pathlib import Path

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
from hostcore.cli.server_option import run_client, server_option


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
    from hostcore.checkpoints.find import names_checkpoint
    from hostcore.cli.follow import start_and_follow
    from hostcore.cli.redacting_stream import scrub_descriptors
    from hostcore.cli.run_client import RunRequest
    from hostcore.secrets.scrub import when_known

    client = run_client(None if launched else server, runs)  # a launched run is here, whatever its environment names
    if launched:
        when_known(scrub_descriptors)  # the output goes to a file that no other process scrubs
    request = RunRequest(
        resume=named,
        begins=bool(checkpoint) or names_checkpoint(named),
        options=options,
        events=events,
        in_process=in_process,
        detach=detach,
        launched=launched,
        same_plugins=same_plugins,
        as_json=as_json,
    )
    start_and_follow(partial(client.start, request), detach=detach, as_json=as_json)
