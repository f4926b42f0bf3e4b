"""``hostcore logs``."""

import sys
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hostcore.cli.job_options import runs_dir_option
from hostcore.cli.output import OutputEcho, echo, echo_json, reports_errors, style
from hostcore.cli.server_option import run_client, server_option

if TYPE_CHECKING:
    from hostcore.runs.directory import RunDirectory


@click.command("logs", short_help="Show what happened in a run; with -f, while it happens.")
@click.argument("run")
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
    from hostcore.runs.attempts import newest_attempt
    from hostcore.runs.find import find_run
    from hostcore.runs.following import follow, wait
    from hostcore.runs.output import RankOutput, require_attempt, require_rank

    if output and (as_json or since is not None):
        raise click.UsageError("--output shows what the worker printed, which is no events: leave --json, --since out")
    if rank is not None and not output:
        raise click.UsageError("--rank is for --output; the events are those of all ranks")
    if server:
        run_client(server).logs(
            run,
            follows=follows,
            lines=lines,
            attempt=attempt,
            since=since,
            output=output,
            rank=rank,
            as_json=as_json,
        )
        return
    directory = find_run(run, runs)
    _refresh(directory)
    require_attempt(directory, attempt)
    require_rank(directory, attempt, rank)
    source = (
        RankOutput(directory, rank or 0, only=attempt)
        if output
        else _Events(directory, attempt, since=since, as_json=as_json)
    )
    printed = OutputEcho()
    show: Callable[[Any], None] = printed.show if output else echo_json if as_json else partial(echo, nl=False)
    for text in source.read() if lines is None else deque(source.read(), maxlen=lines):
        show(text)
    if follows:
        for text in follow(source.read, is_over=lambda: _is_over(directory, attempt), wait=wait):
            show(text)
    if rest := source.rest():
        show(rest)
    printed.end()
    if follows and attempt in (None, newest_attempt(directory.attempts)):
        _fail_if_lost(directory)


def _is_over(directory: "RunDirectory", attempt: int | None) -> bool:
    from hostcore.runs.attempts import newest_attempt
    from hostcore.runs.following import is_over

    over = (attempt is not None and newest_attempt(directory.attempts) > attempt) or is_over(directory)
    _refresh(directory)  # after the end was seen: all of it is read then
    return over


def _refresh(directory: "RunDirectory") -> None:
    """Bring what there is of a run that goes on elsewhere, now and then."""
    if directory.launch.exists():
        from hostcore.supervisor.remote.watching import refresh_far

        refresh_far(directory)


def _fail_if_lost(directory: "RunDirectory") -> None:
    from hostcore.runs.result import FAILED
    from hostcore.runs.summary import summarize
    from hostcore.supervisor.run_status import last_sign

    summary = summarize(directory)
    if summary.status == "lost":
        lost = f"{summary.run_id} is lost: {last_sign(directory, summary)}"
        echo(f"{style('error:', fg='red', bold=True)} {lost}", err=True)
        sys.exit(FAILED)


class _Events:
    """The lines of the event log."""

    def __init__(self, directory: "RunDirectory", attempt: int | None, *, since: int | None, as_json: bool) -> None:
        from hostcore.events.reader import GrowingLog

        self._log = GrowingLog(directory.events)
        self._attempt = attempt
        self._since = since
        self._as_json = as_json

    def read(self) -> Iterator[bytes | str]:
        """What was added since the last time."""
        from hostcore.cli.event_lines import is_wanted, line_of
        from hostcore.events.codec import CorruptLog

        try:
            for line in self._log.read():
                if is_wanted(line, attempt=self._attempt, since=self._since):
                    yield line if self._as_json else f"{line_of(line)}\n"
        except CorruptLog as error:
            error.file, error.hint = str(self._log.path), "`hostcore verify RUN` says what else is wrong"
            raise

    def rest(self) -> bytes:
        """Nothing: half a line is no event."""
        return b""
