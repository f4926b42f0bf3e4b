"""``hostcore gc``."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from hostcore.cli.commands.rm import force_option, remove_runs, yes_option
from hostcore.cli.job_options import runs_dir_option
from hostcore.cli.output import json_option, reports_errors, warn
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
@force_option
@runs_dir_option
@json_option
@reports_errors
def gc_command(*, older_than: str, statuses: Sequence[str], yes: bool, force: bool, runs: Path, as_json: bool) -> None:
    """Remove the directories of runs that ended long ago, as `hostcore rm` does.

    Lists what would be removed, unless --yes is given. Runs that are running, or about to, are never among them; runs
    whose uploaders have not copied everything are with --force alone. What a killed removal has left goes as well.
    """
    from hostcore.job.names import is_period, seconds_of
    from hostcore.runs.directory import RunDirectory
    from hostcore.runs.summary import list_runs
    from hostcore.supervisor.removing import leftovers, require_delivered
    from hostcore_hookspecs.errors import HostcoreError

    if not is_period(older_than):
        raise click.BadParameter("give a time such as 30d, 12h or 90m", param_hint="--older-than")
    before = time.time_ns() // 1_000_000 - seconds_of(older_than) * 1000
    found, _ = list_runs(runs)
    chosen = [
        (RunDirectory(runs / run.run_id), run)
        for run in found
        if run.status in statuses and (run.ended_ms or run.seen_ms or run.submitted_ms) < before
    ]
    chosen = [pair for pair in chosen if not pair[0].path.is_symlink()]
    for pair in () if force else list(chosen):
        try:
            require_delivered(pair[0])
        except HostcoreError as error:
            chosen.remove(pair)
            warn(f"{error.message}; {error.hint}" if error.hint else error.message)
    remove_runs(chosen, yes=yes, as_json=as_json, leftovers=list(leftovers(runs, before)))
