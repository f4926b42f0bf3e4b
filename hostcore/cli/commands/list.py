"""``hostcore list``."""

from collections.abc import Sequence
from pathlib import Path

import click

from hostcore.cli.job_options import runs_dir_option
from hostcore.cli.output import echo, json_option, reports_errors
from hostcore.cli.server_option import run_client, server_option
from hostcore.runs.statuses import STATUSES


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
    from hostcore.cli.run_lines import is_of, print_runs
    from hostcore.runs.summary import list_runs
    from hostcore_builtin_plugins.control_characters import visible

    if server:
        run_client(server).list(statuses=statuses, trainer=trainer, limit=limit, as_json=as_json)
        return
    found, broken = list_runs(runs)
    wanted = [run for run in found if run.status in (statuses or STATUSES) and is_of(run, trainer)][:limit]
    nothing = f"{'none of the' if found else 'no'} runs in {runs}{' is like that' if found else ''}"
    print_runs(wanted, as_json=as_json, nothing=nothing)
    for one in broken:
        echo(f"unreadable: {visible(str(one['path']), one_line=True)}: {one['error']}", err=True)
