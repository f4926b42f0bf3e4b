"""``hostcore resume``."""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from hostcore.checkpoints.find import load_record, names_checkpoint
from hostcore.cli.adopting import ranks_of_engine
from hostcore.cli.early import stoppable_at_once
from hostcore.cli.event_options import EventOptions, event_options
from hostcore.cli.job_options import JobCommand, devices_option, planned, quiet_option, set_option, where_options
from hostcore.cli.leaving import leave
from hostcore.cli.output import json_option, plugins_print_aside, reports_errors, verbose_option
from hostcore.cli.own_output import scrub_descriptors
from hostcore.cli.run import is_launched, run_launched, run_plan, submit_plan
from hostcore.cli.runs_dir_option import runs_dir_option
from hostcore.cli.server_option import server_option
from hostcore.errors import Errors, all_errors
from hostcore.runs.directory import RunDirectory
from hostcore.runs.find import find_run
from hostcore.runs.launch import awaited_launch
from hostcore.runs.record import RunRecord
from hostcore.runs.summary import UnknownRun
from hostcore.scrubbing import when_known
from hostcore.supervisor.engine import Engine
from hostcore.supervisor.interrupts import Interrupts
from hostcore.supervisor.opening import RunConflict
from hostcore.supervisor.plan import RunPlan
from hostcore_hookspecs.errors import HostcoreError, RunError
from hostcore_hookspecs.events import RunFailed


@click.command("resume", cls=JobCommand)
@click.argument("run", metavar="[RUN|CKPT.json]", required=False)
@click.option("--checkpoint", metavar="CKPT.json", help="The checkpoint to begin a new run from, in place of RUN.")
@set_option
@devices_option
@where_options
@quiet_option
@runs_dir_option
@event_options
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
    launched: bool,
    runs: Path,
    events: EventOptions,
    server: str | None,
    as_json: bool,
    verbose: bool,  # noqa: ARG001 - reports_errors reads it
    **options: Any,
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
    begins = bool(checkpoint) or names_checkpoint(named)
    if server and not launched:  # what was launched runs here, whatever its environment says
        _resume_there(server, named, options, begins=begins, detach=detach, as_json=as_json)
        return
    if launched:
        when_known(scrub_descriptors)  # a file, which nobody else scrubs
    with (
        Interrupts() as interrupts,
        plugins_print_aside(events.on_standard_output),
        ranks_of_engine(interrupts, runs=runs, in_process=in_process, detach=detach) as ranks,
    ):
        alone = launched and Engine.started_alone(os.environ)
        where = {
            "world_size": ranks.world_size if ranks else 1 if alone else None,
            "extra_reporters": events.reporters,
        }
        try:
            with stoppable_at_once(interrupts, as_json=as_json), plugins_print_aside(as_json):
                plan = (
                    _plan_from_checkpoint(Path(named), options, runs=runs, **where)
                    if begins
                    else _plan_of_run(named, options, runs=runs, **where)
                )
            if detach:
                sys.exit(submit_plan(plan, interrupts, as_json=as_json))
            if ranks is None and not (in_process or launched) and is_launched(plan.spec):
                events.refuse_standard_output(f"the launcher {plan.spec.launcher.use}")
                leave(interrupts, run_launched(plan, interrupts, as_json=as_json))
            code = run_plan(
                plan,
                interrupts,
                ranks=ranks,
                in_process=in_process,
                launched=launched,
                events=events,
                as_json=as_json,
            )
            leave(interrupts, code)
        except HostcoreError as error:
            if launched and not isinstance(error, RunConflict):
                _fail_if_awaited(find_run(named, runs), error)
            raise


def _resume_there(
    server: str, run: str, options: Mapping[str, Any], *, begins: bool, detach: bool, as_json: bool
) -> None:
    from hostcore.cli.remote.running import resume_remote

    if options["overrides"] or options["devices"]:
        raise click.UsageError("a service goes on with the job as it was submitted: leave --set and --devices out")
    if begins:
        raise click.UsageError("a service begins a new run from a checkpoint by `hostcore run JOB --from CKPT`")
    resume_remote(server, run, detach=detach, quiet=options["quiet"], as_json=as_json)


def _plan_of_run(run: str, options: dict[str, Any], *, runs: Path, **where: Any) -> RunPlan:
    """The plan of a run that goes on.

    :raises UnknownRun: When there is no such run.
    """
    if Path(run).is_file():
        hint = "the run of a job file is gone on with by `hostcore run JOB`; `hostcore list` shows the runs there are"
        raise UnknownRun(f"{run!r} is neither a run nor a checkpoint's commit record", file=run, hint=hint)
    directory = find_run(run, runs)
    keys = {"run_id": directory.run_id, "resume_from_checkpoint": "auto"}
    plan = _planned(directory, keys, options, runs=directory.path.parent, **where)
    if plan.directory.path != directory.path:
        raise RunConflict(
            f"the run {directory.run_id!r} keeps its id when it goes on",
            pointer="/run_id",
            file="--set run_id",
            hint=f"to begin another run from where it is, name a checkpoint in {directory.checkpoints}",
        )
    return plan


def _plan_from_checkpoint(path: Path, options: dict[str, Any], **where: Any) -> RunPlan:
    """The plan of a new run that begins from a checkpoint.

    :raises CheckpointError: When it is not there.
    :raises UnknownRun: When it lies apart from its run, so that nobody knows the job.
    """
    parent = RunDirectory(load_record(path.absolute()).folder.parent.parent)
    if not parent.record.is_file():
        raise UnknownRun(
            f"the checkpoint does not lie in a run directory: there is no {parent.record}",
            file=str(path),
            hint=f"give the job as well: hostcore run JOB --from {path}",
        )
    # None: a new id is made.
    return _planned(parent, {"run_id": None, "resume_from_checkpoint": str(path.absolute())}, options, **where)


def _planned(recorded: RunDirectory, keys: dict[str, Any], options: dict[str, Any], **where: Any) -> RunPlan:
    """The plan of the job that a run recorded, with some of its keys changed."""
    record = RunRecord.read(recorded.record)
    job = {key: value for key, value in {**record.job, **keys}.items() if value is not None}
    try:
        return planned(job, options, job_dir=Path(record.job_dir), **where)
    except HostcoreError as error:
        for one in all_errors(error):
            one.file = one.file or str(recorded.record)
        raise


def _fail_if_awaited(directory: RunDirectory, error: HostcoreError) -> None:
    """Nobody watches a launched supervisor that cannot begin: the run says why it has failed."""
    launch = awaited_launch(directory)
    if launch is None:
        return
    from hostcore.supervisor.abandoned import fail_abandoned

    first = all_errors(error)[0]
    several = isinstance(error, Errors)  # whose message has the hints in it
    told = RunError(
        type="InvalidJob" if several else type(error).__name__,
        message=str(error),
        traceback=getattr(first, "traceback", None) or "",
        plugin=first.plugin,
        hint=None if several else first.hint,
    )
    with suppress(OSError, HostcoreError):  # what was wrong first is told anyway
        fail_abandoned(directory, launch.attempt, RunFailed(error=told))
