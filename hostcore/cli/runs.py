"""``hostcore list``."""

from collections.abc import Sequence

import click

from hostcore.cli.output import json_option, reports_errors
from hostcore.cli.run_lines import is_of, print_runs
from hostcore.cli.server_option import server_option
from hostcore.runs.directory import runs_dir
from hostcore.runs.summary import STATUSES, list_runs


@click.command("list")
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
@server_option
@json_option
@reports_errors
def list_command(
    statuses: Sequence[str], trainer: str | None, limit: int | None, server: str | None, as_json: bool
) -> None:
    """List the runs in the runs folder (HOSTCORE_RUNS_DIR, or ./runs), newest first.

    DURATION is that of the newest attempt.
    """
    if server:
        from hostcore.cli.remote.listing import list_remote

        list_remote(server, statuses=statuses, trainer=trainer, limit=limit, as_json=as_json)
        return
    runs, broken = list_runs(runs_dir())
    wanted = [run for run in runs if run.status in (statuses or STATUSES) and is_of(run, trainer)][:limit]
    nothing = f"{'none of the' if runs else 'no'} runs in {runs_dir()}{' is like that' if runs else ''}"
    print_runs(wanted, as_json=as_json, nothing=nothing)
    for one in broken:
        click.echo(f"unreadable: {one['path']}: {one['error']}", err=True)
