"""``hostcore cancel``."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hostcore.cli import completion
from hostcore.cli.job_options import runs_dir_option
from hostcore.cli.output import echo, json_option, print_json, redraw, reports_errors, verbose_option
from hostcore.cli.server_option import run_client, server_option

if TYPE_CHECKING:
    from hostcore.cli.run_client import RunHandle
    from hostcore.runs.summary import RunSummary
    from hostcore.supervisor.cancelling import Cancellation

_REDRAW_SECONDS: Final = 1.0


@click.command("cancel", short_help="Stop a run, whatever has become of it.")
@click.argument("run", shell_complete=completion.runs)
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
) -> None:
    """Cancel RUN, a run id, the beginning of one, or a run directory.

    A running run writes a checkpoint first, from which it can be resumed. A submitted run ends before it has begun, a
    lost one is recorded as cancelled, and one that has ended stays as it is: all that exits 0. Works from every machine
    that sees the run directory.
    """
    if server and force:
        raise click.UsageError("a service ends by force what does not end by itself: leave --force out")
    found = run_client(server, runs).find(run)
    with _Waiting(found.run_id) as waiting:
        done = found.cancel(reason=reason, force=force, wait=wait, watch=waiting.show)
    if as_json:
        print_json(done.as_dict())
    else:
        _print(done, found, waited=wait)


def _print(done: "Cancellation", run: "RunHandle", *, waited: bool) -> None:
    from hostcore.cli.report import in_color, print_result

    result = done.result
    if result:
        note = "" if done.requested else "ended before: nothing to do"
        print_result(result, run, as_json=False, note=note)
        return
    state = "has ended, and the run was started again" if waited else "was asked to stop"
    echo(f"{in_color(done.status)}  {done.run_id}  (attempt {done.attempt} {state})")


class _Waiting:
    """Shows on standard error that the run is waited for: one line, which a terminal keeps up to date.

    Ctrl-C ends the command while it is entered, and the run stays asked to stop.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._since = time.monotonic()
        self._due = self._since
        self._live = sys.stderr.isatty()

    def __enter__(self) -> "_Waiting":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._live and self._due > self._since:
            redraw("")
        if kind is KeyboardInterrupt:
            echo(f"{self._run_id} is still asked to stop; `hostcore status` shows when it has", err=True)
            from hostcore.runs.result import CANCELLED

            sys.exit(CANCELLED)

    def show(self, summary: "RunSummary") -> None:
        """Show how the run is doing."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + _REDRAW_SECONDS if self._live else float("inf")
        line = f"{summary.run_id}  {summary.status}, asked to stop; Ctrl-C ends the waiting, not the request"
        if self._live:
            redraw(f"{line}, {now - self._since:.0f} s")
        else:
            echo(line, err=True)
