"""``hostcore logs``."""

import sys
from collections import deque
from collections.abc import Iterator

import click
import orjson

from hostcore.cli.event_lines import line_of
from hostcore.cli.output import reports_errors
from hostcore.events.codec import CorruptLog
from hostcore.events.reader import GrowingLog
from hostcore.runs.attempts import newest_attempt
from hostcore.runs.directory import RunDirectory, runs_dir
from hostcore.runs.find import find_run
from hostcore.runs.following import follow, is_over, wait
from hostcore.runs.result import FAILED
from hostcore.runs.summary import summarize
from hostcore.supervisor.standing import last_sign
from hostcore_hookspecs.errors import HostcoreError


@click.command("logs")
@click.argument("run")
@click.option("-f", "--follow", "follows", is_flag=True, help="Go on until the run is over.")
@click.option("-n", "--lines", type=click.IntRange(min=0), metavar="N", help="Begin with the last N lines.")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Show one attempt alone.")
@click.option("--since", type=click.IntRange(min=0), metavar="SEQ", help="Show the events after this number alone.")
@click.option("--output", is_flag=True, help="Show what the worker printed, of the newest attempt, instead.")
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="With --output: of this rank, in place of 0.")
@click.option("--json", "as_json", is_flag=True, help="Print the lines of events.jsonl as they are.")
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
    as_json: bool,
) -> None:
    """Show what happened in RUN: a line for each of its events.

    RUN is a run id, the beginning of one, or a run directory. Exits 0 whatever happened, 2 if there is no such run or
    attempt and, with -f, 1 if its supervisor died without a word; Ctrl-C ends the command, not the run.
    """
    if output and (as_json or since is not None):
        raise click.UsageError("--output shows what the worker printed, which is no events: leave --json, --since out")
    if rank is not None and not output:
        raise click.UsageError("--rank is for --output; the events are those of all ranks")
    directory = find_run(run, runs_dir())
    _require_attempt(directory, attempt)
    _require_rank(directory, attempt, rank)
    source = (
        _Output(directory, attempt, rank or 0) if output else _Events(directory, attempt, since=since, as_json=as_json)
    )
    for text in source.read() if lines is None else deque(source.read(), maxlen=lines):
        click.echo(text, nl=False)
    if follows:
        for text in follow(source.read, is_over=lambda: _is_over(directory, attempt), wait=wait):
            click.echo(text, nl=False)
    if rest := source.rest():
        click.echo(rest)
    if follows and attempt in (None, newest_attempt(directory.attempts)):
        _fail_if_lost(directory)


def _require_attempt(directory: RunDirectory, attempt: int | None) -> None:
    newest = newest_attempt(directory.attempts)
    if attempt is not None and attempt > newest:
        raise HostcoreError(
            f"the run {directory.run_id!r} has no attempt {attempt}",
            code="run.unknown_attempt",
            file=str(directory.attempts),
            hint=f"its newest is attempt {newest}" if newest else "it has not begun yet",
        )


def _require_rank(directory: RunDirectory, attempt: int | None, rank: int | None) -> None:
    ranks = directory.ranks(attempt or newest_attempt(directory.attempts))
    if rank and rank not in ranks:
        raise HostcoreError(
            f"the run {directory.run_id!r} has no rank {rank}",
            code="run.unknown_rank",
            file=str(directory.logs),
            hint=f"its ranks are 0 to {ranks[-1]}" if len(ranks) > 1 else "it has rank 0 alone",
        )


def _is_over(directory: RunDirectory, attempt: int | None) -> bool:
    return (attempt is not None and newest_attempt(directory.attempts) > attempt) or is_over(directory)


def _fail_if_lost(directory: RunDirectory) -> None:
    summary = summarize(directory)
    if summary.status == "lost":
        lost = f"{summary.run_id} is lost: {last_sign(directory, summary)}"
        click.echo(f"{click.style('error:', fg='red', bold=True)} {lost}", err=True)
        sys.exit(FAILED)


class _Events:
    """The lines of the event log."""

    def __init__(self, directory: RunDirectory, attempt: int | None, *, since: int | None, as_json: bool) -> None:
        self._log = GrowingLog(directory.events)
        self._attempt = attempt
        self._since = since
        self._as_json = as_json

    def read(self) -> Iterator[bytes | str]:
        """What was added since the last time."""
        try:
            for line in self._log.read():
                if self._is_wanted(line):
                    yield line if self._as_json else f"{line_of(line)}\n"
        except CorruptLog as error:
            error.file, error.hint = str(self._log.path), "`hostcore verify RUN` says what else is wrong"
            raise

    def _is_wanted(self, line: bytes) -> bool:
        if self._attempt is None and self._since is None:
            return True
        try:
            envelope = orjson.loads(line)
            of_attempt = self._attempt is None or envelope["attempt"] == self._attempt
            return of_attempt and (self._since is None or envelope["seq"] > self._since)
        except (KeyError, TypeError, orjson.JSONDecodeError) as error:
            raise CorruptLog(f"not an event: {line!r:.200}") from error

    def rest(self) -> bytes:
        """Nothing: half a line is no event."""
        return b""


class _Output:
    """What the workers of a rank printed: of one attempt, or of the newest and those that begin meanwhile."""

    def __init__(self, directory: RunDirectory, attempt: int | None, rank: int) -> None:
        self._directory = directory
        self._rank = rank
        self._only = attempt
        self._attempt = attempt or newest_attempt(directory.attempts)
        self._log = GrowingLog(directory.rank_output(self._attempt, rank))

    def read(self) -> Iterator[bytes | str]:
        """What was added since the last time."""
        while True:
            following = self._only is None and newest_attempt(self._directory.attempts) > self._attempt
            yield from self._log.read()
            if not following:
                return
            if rest := self.rest():
                yield rest + b"\n"
            self._attempt += 1
            self._log = GrowingLog(self._directory.rank_output(self._attempt, self._rank))

    def rest(self) -> bytes:
        """A last line without an end."""
        return self._log.rest()
