"""What came of the wish to cancel a run, and the waiting for its end, wherever it runs."""

import sys
import time
from collections.abc import Callable

from hostcore.cli.output import echo, print_json, redraw
from hostcore.cli.report import in_color
from hostcore.runs.result import CANCELLED, RunResult
from hostcore.runs.summary import RunSummary
from hostcore.supervisor.cancelling import Cancellation

_REDRAW_SECONDS = 1.0


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
        echo(f"{in_color(done.status)}  {done.run_id}  ({_without_result(done, waited=waited)})")


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
            redraw("")
        if kind is KeyboardInterrupt:
            echo(f"{self._run_id} is still asked to stop; `hostcore status` shows when it has", err=True)
            sys.exit(CANCELLED)

    def show(self, summary: RunSummary) -> None:
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
