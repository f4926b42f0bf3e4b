"""``hostcore cancel``."""

from pathlib import Path

import click

from hostcore.cli.job_options import runs_dir_option
from hostcore.cli.output import json_option, reports_errors, verbose_option
from hostcore.cli.server_option import run_client, server_option


@click.command("cancel", short_help="Stop a run, whatever has become of it.")
@click.argument("run")
@click.option(
    "--reason",
    metavar="TEXT",
    default="cancelled by the user",
    show_default=True,
    help="Recorded with the end of the run.",
)
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
    from hostcore.cli.cancellation import Waiting, report_cancellation
    from hostcore.cli.report import report_result
    from hostcore.runs.find import find_run
    from hostcore.supervisor.cancelling import cancel

    if server:
        if force:
            raise click.UsageError("a service ends by force what does not end by itself: leave --force out")
        run_client(server).cancel(run, reason=reason, wait=wait, as_json=as_json)
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
