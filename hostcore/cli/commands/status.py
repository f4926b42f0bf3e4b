"""``hostcore status``."""

import sys
from pathlib import Path

import click

from hostcore.cli.job_options import runs_dir_option
from hostcore.cli.output import echo, json_option, print_json, reports_errors, verbose_option
from hostcore.cli.server_option import run_client, server_option


@click.command("status", short_help="Show how a run is doing, or how it ended.")
@click.argument("run")
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
    from hostcore.cli.status_lines import follow_status, page_of, sight_of
    from hostcore.runs.find import find_run
    from hostcore.runs.following import is_over, wait
    from hostcore.runs.history import History
    from hostcore.supervisor.run_status import inspect_run

    if server:
        run_client(server).status(run, follow=follow, as_json=as_json, verbose=verbose)
        return
    directory = find_run(run, runs)
    history = History(directory)
    if follow:
        follow_status(
            is_over=lambda: is_over(directory),
            look=lambda: sight_of(inspect_run(directory, history)),
            wait=wait,
            draw=sys.stdout.isatty() and not as_json,
        )
    run_status = inspect_run(directory, history)
    if as_json:
        print_json(run_status.as_dict())
    else:
        echo(page_of(sight_of(run_status), verbose=verbose))
