"""``hostcore list``."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hostcore.cli.job_options import runs_dir_option
from hostcore.cli.output import echo, json_option, print_json, print_table, reports_errors
from hostcore.cli.server_option import run_client, server_option
from hostcore.report.wording import ago, lasting, steps_of
from hostcore.runs.statuses import STATUSES

if TYPE_CHECKING:
    from hostcore.runs.summary import RunSummary


@click.command("list", short_help="List the runs, newest first.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(STATUSES),
    metavar="STATUS",
    help=f"Show the runs of a status alone: {', '.join(STATUSES)}.",
)
@click.option("--trainer", metavar="NAME", help="Show the runs of a trainer alone; its distribution may be left out.")
@click.option("-n", "--limit", type=click.IntRange(min=1), metavar="N", help="Show the newest N alone.")
@runs_dir_option
@server_option
@json_option
@reports_errors
def list_command(
    *, statuses: Sequence[str], trainer: str | None, limit: int | None, runs: Path, server: str | None, as_json: bool
) -> None:
    """List the runs in the runs folder, newest first.

    DURATION is that of the newest attempt.
    """
    from hostcore_builtin_plugins.control_characters import visible

    found = run_client(server, runs).list(statuses=statuses, trainer=trainer, limit=limit)
    if as_json:
        print_json({"runs": [run.as_dict() for run in found.runs]})
    elif found.runs:
        _print(found.runs)
    else:
        echo(found.nothing, err=True)
    for path, error in found.unreadable:
        echo(f"unreadable: {visible(path, one_line=True)}: {error}", err=True)


def _print(runs: "Sequence[RunSummary]") -> None:
    now = time.time_ns() // 1_000_000
    print_table(
        ["RUN", "STATUS", "TRAINER", "STEP", "ATTEMPT", "SUBMITTED", "DURATION"],
        [
            (
                *(run.run_id, run.status, run.trainer, steps_of(run.step, run.max_steps), run.attempt),
                *(ago(run.submitted_ms, now), lasting(run.seconds(now))),
            )
            for run in runs
        ],
    )
