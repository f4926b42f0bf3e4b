"""``hostcore evaluate``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from hostcore.cli import completion
from hostcore.cli.job_options import (
    JobCommand,
    JobOptions,
    devices_option,
    job_argument,
    profile_option,
    runs_dir_option,
    set_option,
)
from hostcore.cli.output import (
    OutputEcho,
    echo,
    json_option,
    plugins_print_aside,
    print_json,
    print_table,
    reports_errors,
    style,
    tell_aside,
    verbose_option,
    warn,
)
from hostcore.cli.wording import figure

if TYPE_CHECKING:
    from hostcore.supervisor.evaluate import Evaluation

_STOPPED = "before the end; nothing was evaluated"


@click.command("evaluate", cls=JobCommand, short_help="Validate or test a checkpoint, and nothing else.")
@job_argument
@click.option(
    "--checkpoint",
    required=True,
    metavar="CKPT|RUN",
    shell_complete=completion.runs_or_files,
    help="A commit record or its folder; or a run, of which the newest that verifies is taken.",
)
@click.option(
    "--split", type=click.Choice(["validation", "test"]), help="The job's data to evaluate on; the test, if it has one."
)
@set_option
@profile_option
@devices_option
@runs_dir_option
@json_option
@verbose_option
@reports_errors
def evaluate_command(
    job: Path,
    *,
    checkpoint: str,
    split: str | None,
    runs: Path,
    as_json: bool,
    options: JobOptions,
) -> None:
    """Validate or test a checkpoint with the job in the file JOB, and nothing else.

    Loads the checkpoint into the job's trainer and prints the metrics. Makes no run directory and changes none; of the
    job's callbacks, only the hooks of a validation or a test are called. Runs on the first of the job's devices.

    Exits 0, 1 when the trainer fails, and 2 when the job, its data or the checkpoint is not what it should be.
    """
    from hostcore.cli.planning import plan_job
    from hostcore.cli.stopping import stoppable_at_once
    from hostcore.job.data import settled_split
    from hostcore.supervisor.evaluate import EvaluationFailed, evaluate
    from hostcore.supervisor.interrupts import Interrupts
    from hostcore.supervisor.remote.inputs import fetch_inputs

    with Interrupts() as interrupts, stoppable_at_once(interrupts, as_json=as_json, so_that=_STOPPED):
        with plugins_print_aside(as_json):
            plan = plan_job(job, options, runs=runs)
            plan = attrs.evolve(plan, inputs=fetch_inputs(plan.spec, plan.resolvers, tell_aside))
        where = _checkpoint_of(checkpoint, runs)
        if sys.stderr.isatty():
            chosen = split or settled_split(plan.spec, None)
            echo(f"evaluating the {chosen} data" if chosen else "evaluating", err=True)  # importing torch takes seconds
        printed = OutputEcho(err=True)
        try:
            found = evaluate(plan, split, where, relay=printed.show, tell=warn)
        except EvaluationFailed as failed:
            printed.end()
            if failed.error.traceback:
                echo(failed.error.traceback.rstrip("\n"), err=True)
            raise
        finally:
            printed.end()
    if as_json:
        print_json(found.as_dict())
    else:
        _print(found)


def _checkpoint_of(text: str, runs: Path) -> Path:
    """Find a checkpoint: return its commit record, or the folder of the checkpoints of a run.

    :raises CheckpointError: When there is no such checkpoint.
    :raises UnknownRun: When there is no such run.
    """
    from hostcore.checkpoints.find import load_record, names_checkpoint
    from hostcore.checkpoints.names import record_name, step_of_folder
    from hostcore.runs.attempts import newest_attempt
    from hostcore.runs.contract import artifact_folders
    from hostcore.runs.find import find_run

    path = Path(text)
    if names_checkpoint(text) or ("/" in text and step_of_folder(path.name) is not None):
        found = load_record(path.absolute())
        return found.folder.with_name(record_name(found.record.step))
    directory = find_run(text, runs)
    return artifact_folders(directory, newest_attempt(directory.attempts))[0]


def _print(found: "Evaluation") -> None:
    """Print the metrics for people."""
    from hostcore.cli.report import shown_path

    of = f"step {found.step:,} of {found.run_id} ({shown_path(found.checkpoint)})"
    echo(f"{style(found.split, fg='green', bold=True)}  {of}")
    print_table(
        ["METRIC", "VALUE"],
        [*((name, figure(value)) for name, value in found.metrics.items()), ("weight", figure(found.weight))],
    )
