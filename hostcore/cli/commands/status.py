"""``hostcore status``."""

import sys
from pathlib import Path

import click

from hostcore.cli import completion
from hostcore.cli.job_options import runs_dir_option
from hostcore.cli.output import echo, json_option, print_json, reports_errors, verbose_option
from hostcore.cli.server_option import run_client, server_option


@click.command("status", short_help="Show how a run is doing, or how it ended.")
@click.argument("run", shell_complete=completion.runs)
@click.option("-f", "--follow", is_flag=True, help="Wait until the run is over; on a terminal, show it meanwhile.")
@runs_dir_option
@server_option
@json_option
@verbose_option
@reports_errors
def status_command(run: str, *, follow: bool, runs: Path, server: str | None, as_json: bool, verbose: bool) -> None:
    """Show how RUN is doing, or how it ended.

    RUN is a run id, the beginning of one, or a run directory. Exits 0 however the run ended, and 2 if there is no such
    run.
    """
    from hostcore.cli.status_lines import follow_status, page_of

    found = run_client(server, runs).find(run)
    if follow:
        follow_status(found, draw=sys.stdout.isatty() and not as_json)
    shown = found.status()
    if as_json:
        print_json(shown.as_dict())
    else:
        echo(page_of(shown, verbose=verbose))
