"""``hostcore gc``."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from hostcore.cli.commands.rm import remove_runs, yes_option
from hostcore.cli.job_options import runs_dir_option
from hostcore.cli.output import json_option, reports_errors
from hostcore.runs.statuses import ALIVE, STATUSES

_REMOVABLE: Final = tuple(status for status in STATUSES if status not in ALIVE)
#: Without ``--status``: runs that are over for their users; preempted and lost ones are about to go on.
_OVER: Final = ("succeeded", "failed", "cancelled")


@click.command("gc", short_help="Remove the runs that ended long ago.")
@click.option("--older-than", metavar="TIME", required=True, help="Ended so long ago: 30d, 12h, 90m.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(_REMOVABLE),
    default=_OVER,
    metavar="STATUS",
    help=f"Runs of a status alone, repeatable: {', '.join(_REMOVABLE)}. Without it: {', '.join(_OVER)}.",
)
@yes_option
@runs_dir_option
@json_option
@reports_errors
def gc_command(*, older_than: str, statuses: Sequence[str], yes: bool, runs: Path, as_json: bool) -> None:
    """Remove the directories of runs that ended long ago, as `hostcore rm` does.

    Lists what would be removed, unless --yes is given. Runs that are running, or about to, are never among them.
    """
    from hostcore.job.names import is_period, seconds_of
    from hostcore.runs.directory import RunDirectory
    from hostcore.runs.summary import list_runs

    if not is_period(older_than):
        raise click.BadParameter("give a time such as 30d, 12h or 90m", param_hint="--older-than")
    before = time.time_ns() // 1_000_000 - seconds_of(older_than) * 1000
    found, _ = list_runs(runs)
    chosen = [
        (RunDirectory(runs / run.run_id), run)
        for run in found
        if run.status in statuses and (run.ended_ms or run.seen_ms or run.submitted_ms) < before
    ]
    remove_runs([pair for pair in chosen if not pair[0].path.is_symlink()], yes=yes, as_json=as_json)
