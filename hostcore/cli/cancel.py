"""``hostcore cancel``."""

from pathlib import Path

import click

from hostcore.cli.cancellation import Waiting, report_cancellation
from hostcore.cli.output import json_option, reports_errors, verbose_option
from hostcore.cli.report import report_result
from hostcore.cli.runs_dir_option import runs_dir_option
from hostcore.cli.server_option import server_option
from hostcore.runs.find import find_run
from hostcore.supervisor.cancelling import REASON, cancel


@click.command("cancel")
@click.argument("run")
@click.option("--reason", metavar="TEXT", default=REASON, show_default=True, help="Recorded with the end of the run.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the run has ended, and say how.")
@click.option("--force", is_flag=True, help="Kill the worker at once: what came after the last checkpoint is lost.")
@runs_dir_option
@server_option
@json_option
@verbose_option
@reports_errors
def cancel_command(
    run: str,
    *,
    reason: str,
    wait: bool,
    force: bool,
    runs: Path,
    server: str | None,
    as_json: bool,
    verbose: bool,  # noqa: ARG001 - reports_errors reads it
) -> None:
    """Cancel RUN, a run id, the beginning of one, or a run directory.

    A running run writes a checkpoint first, from which it can be resumed. A submitted run ends before it has begun, a
    lost one is recorded as cancelled, and one that has ended stays as it is: all that exits 0. Works from every machine
    that sees the run directory.
    """
    if server:
        from hostcore.cli.remote.cancelling import cancel_remote

        if force:
            raise click.UsageError("a service ends by force what does not end by itself: leave --force out")
        cancel_remote(server, run, reason=reason, wait=wait, as_json=as_json)
        return
    directory = find_run(run, runs)
    with Waiting(directory.run_id) as waiting:
        done = cancel(directory, reason=reason, force=force, wait=wait, watch=waiting.show)
    report_cancellation(
        done,
        lambda result, note: report_result(result, directory, as_json=False, note=note),
        waited=wait,
        as_json=as_json,
    )
