"""``hostcore cancel``."""

import sys
import time

import click

from hostcore.cli.output import json_option, print_json, reports_errors, verbose_option
from hostcore.cli.report import in_color, report_result
from hostcore.runs.directory import runs_dir
from hostcore.runs.find import find_run
from hostcore.runs.result import CANCELLED
from hostcore.runs.summary import RunSummary
from hostcore.supervisor.cancelling import REASON, Cancellation, cancel

_REDRAW_SECONDS = 1.0


@click.command("cancel")
@click.argument("run")
@click.option("--reason", metavar="TEXT", default=REASON, show_default=True, help="Recorded with the end of the run.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the run has ended, and say how.")
@click.option("--force", is_flag=True, help="Kill the worker at once: what came after the last checkpoint is lost.")
@json_option
@verbose_option
@reports_errors
def cancel_command(run: str, *, reason: str, wait: bool, force: bool, as_json: bool, verbose: bool) -> None:  # noqa: ARG001
    """Cancel RUN, a run id, the beginning of one, or a run directory.

    A running run writes a checkpoint first, from which it can be resumed. A submitted run ends before it has begun, a
    lost one is recorded as cancelled, and one that has ended stays as it is: all that exits 0. Works from every machine
    that sees the run directory.
    """
    directory = find_run(run, runs_dir())
    waiting = _Waiting()
    try:
        done = cancel(directory, reason=reason, force=force, wait=wait, watch=waiting.show)
    except KeyboardInterrupt:
        waiting.clear()
        click.echo(f"{directory.run_id} is still asked to stop; `hostcore status` shows when it has", err=True)
        sys.exit(CANCELLED)
    waiting.clear()
    if as_json:
        print_json(done.as_dict())
    elif done.result:
        note = "" if done.requested else "ended before: nothing to do"
        report_result(done.result, directory, as_json=False, note=note)
    else:
        click.echo(f"{in_color(done.status)}  {done.run_id}  ({_without_result(done, waited=wait)})")


def _without_result(done: Cancellation, *, waited: bool) -> str:
    if waited:
        return f"attempt {done.attempt} has ended, and the run was started again"
    return f"attempt {done.attempt} was asked to stop"


class _Waiting:
    """Shows on standard error that the run is waited for: one line, which a terminal keeps up to date."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._due = self._since
        self._live = sys.stderr.isatty()

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

    def clear(self) -> None:
        """Make room for what comes next."""
        if self._live and self._due > self._since:
            click.echo("\r\x1b[K", nl=False, err=True)
