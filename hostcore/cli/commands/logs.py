"""``hostcore logs``."""

import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hostcore.cli import completion
from hostcore.cli.job_options import runs_dir_option
from hostcore.cli.output import OutputEcho, echo, echo_json, reports_errors, style, tell_aside
from hostcore.cli.server_option import run_client, server_option

if TYPE_CHECKING:
    from hostcore.cli.run_client import RunLog


@click.command("logs", short_help="Show what happened in a run; with -f, while it happens.")
@click.argument("run", shell_complete=completion.runs)
@click.option("-f", "--follow", "follows", is_flag=True, help="Go on until the run is over.")
@click.option("-n", "--lines", type=click.IntRange(min=0), metavar="N", help="Begin with the last N lines.")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Show one attempt alone.")
@click.option("--since", type=click.IntRange(min=0), metavar="SEQ", help="Show the events after this number alone.")
@click.option("--output", is_flag=True, help="Show what the worker printed, of the newest attempt, instead.")
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="With --output: of this rank, in place of 0.")
@runs_dir_option
@server_option
@click.option("--json", "as_json", is_flag=True, help="Print the lines of events.jsonl.")
@reports_errors
def logs_command(
    run: str,
    *,
    follows: bool,
    lines: int | None,
    attempt: int | None,
    since: int | None,
    output: bool,
    rank: int | None,
    runs: Path,
    server: str | None,
    as_json: bool,
) -> None:
    """Show what happened in RUN: a line for each of its events.

    RUN is a run id, the beginning of one, or a run directory. Exits 0 whatever happened, 2 if there is no such run or
    attempt and, with -f, 1 if its supervisor died without writing a result; Ctrl-C ends the command, not the run.
    """
    if output and (as_json or since is not None):
        raise click.UsageError("--output shows what the worker printed, which is no events: leave --json, --since out")
    if rank is not None and not output:
        raise click.UsageError("--rank is for --output; the events are those of all ranks")
    from hostcore.runs.result import FAILED

    found = run_client(server, runs).find(run)
    log = found.output(attempt=attempt, rank=rank) if output else found.events(attempt=attempt, since=since)
    printer = _Printer(log, output=output, as_json=as_json)
    printer.print(log.history(), last=lines)
    if follows:
        printer.print(log.follow())
    printer.end(log.rest())
    if printer.is_empty and lines != 0 and (why := log.empty_because()):
        tell_aside(why)
    if follows and (why := log.lost_because()):
        echo(f"{style('error:', fg='red', bold=True)} {found.run_id} is lost: {why}", err=True)
        sys.exit(FAILED)


class _Printer:
    """Prints the events of a run, or what one of its ranks printed."""

    def __init__(self, log: "RunLog", *, output: bool, as_json: bool) -> None:
        self._log = log
        self._output = OutputEcho()
        self._shown: Callable[[bytes], str | bytes] = bytes if output or as_json else _line_of
        self._print: Callable[[Any], None] = self._output.show if output else echo_json if as_json else echo
        #: Whether nothing was printed.
        self.is_empty = True

    def print(self, lines: Iterator[bytes], *, last: int | None = None) -> None:
        """Print lines.

        :param last: So many alone; None for all.
        """
        from hostcore.events.codec import CorruptLog

        try:
            for line in lines if last is None else deque(lines, maxlen=last):
                self._print(self._shown(line))
                self.is_empty = False
        except CorruptLog as error:
            if self._log.file:
                error.file, error.hint = self._log.file, "`hostcore verify RUN` says what else is wrong"
            raise

    def end(self, rest: bytes) -> None:
        """Print a last line without an end."""
        self.print(iter([rest] if rest else []))
        self._output.end()


def _line_of(line: bytes) -> str:
    from hostcore.cli.event_lines import line_of

    return line_of(line)
