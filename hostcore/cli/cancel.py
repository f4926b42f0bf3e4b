"""``hostcore cancel``."""

import sys
import time
from collections.abc import Callable

import click

from hostcore.cli.output import json_option, print_json, reports_errors, verbose_option
from hostcore.cli.report import in_color, report_result
from hostcore.cli.server_option import server_option
from hostcore.runs.directory import runs_dir
from hostcore.runs.find import find_run
from hostcore.runs.result import CANCELLED, RunResult
from hostcore.runs.summary import RunSummary
from hostcore.supervisor.cancelling import REASON, Cancellation, cancel

_REDRAW_SECONDS = 1.0


@click.command("cancel")
@click.argument("run")
@click.option("--reason", metavar="TEXT", default=REASON, show_default=True, help="Recorded with the end of the run.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the run has ended, and say how.")
@click.option("--force", is_flag=True, help="Kill the worker at once: what came after the last checkpoint is lost.")
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
    directory = find_run(run, runs_dir())
    with Waiting(directory.run_id) as waiting:
        done = cancel(directory, reason=reason, force=force, wait=wait, watch=waiting.show)
    report_cancellation(
        done,
        lambda result, note: report_result(result, directory, as_json=False, note=note),
        waited=wait,
        as_json=as_json,
    )


def report_cancellation(
    done: Cancellation, report: Callable[[RunResult, str], None], *, waited: bool, as_json: bool
) -> None:
    """Say what came of the wish to cancel a run.

    :param report: Tells people how it ended, with a few words behind its name.
    """
    if as_json:
        print_json(done.as_dict())
    elif done.result:
        report(done.result, "" if done.requested else "ended before: nothing to do")
    else:
        click.echo(f"{in_color(done.status)}  {done.run_id}  ({_without_result(done, waited=waited)})")


def _without_result(done: Cancellation, *, waited: bool) -> str:
    if waited:
        return f"attempt {done.attempt} has ended, and the run was started again"
    return f"attempt {done.attempt} was asked to stop"


class Waiting:
    """Shows on standard error that the run is waited for: one line, which a terminal keeps up to date.

    Ctrl-C ends the command while it is entered, and the run stays asked to stop.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._since = time.monotonic()
        self._due = self._since
        self._live = sys.stderr.isatty()

    def __enter__(self) -> "Waiting":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._live and self._due > self._since:
            click.echo("\r\x1b[K", nl=False, err=True)
        if kind is KeyboardInterrupt:
            click.echo(f"{self._run_id} is still asked to stop; `hostcore status` shows when it has", err=True)
            sys.exit(CANCELLED)

    def show(self, summary: RunSummary) -> None:
        """Show how the run is doing."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + _REDRAW_SECONDS if self._live else float("inf")
        line = f"{summary.run_id}  {summary.status}, asked to stop; Ctrl-C ends the waiting, not the request"
        if self._live:
            click.echo(f"\r\x1b[K{line}, {now - self._since:.0f} s", nl=False, err=True)
        else:
            click.echo(line, err=True)
