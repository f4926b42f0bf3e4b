"""``hostcore status``."""

import shlex
import sys
from collections.abc import Iterator

import click

from hostcore.cli.output import json_option, print_json, reports_errors, verbose_option
from hostcore.cli.wording import NOTHING, ago, best_of, by_phase, figure, in_columns, lasting, steps_of
from hostcore.events.times import moment
from hostcore.events.writer import now_ms
from hostcore.runs.directory import RunDirectory, runs_dir
from hostcore.runs.find import find_run
from hostcore.runs.following import is_over, wait
from hostcore.runs.history import History
from hostcore.supervisor.standing import Standing, look
from hostcore_builtin_plugins.progress import format_bytes, format_devices, format_duration, format_rate
from hostcore_hookspecs.errors import RunError

_COLORS = {"running": "cyan", "succeeded": "green", "failed": "red", "lost": "red"}
#: The least room for a name in front of its value.
_NAME_WIDTH = 12


@click.command("status")
@click.argument("run")
@click.option("-f", "--follow", is_flag=True, help="Wait until the run is over; on a terminal, show it meanwhile.")
@json_option
@verbose_option
@reports_errors
def status_command(run: str, follow: bool, as_json: bool, verbose: bool) -> None:
    """Show how RUN is doing, or how it ended.

    RUN is a run id, the beginning of one, or a run directory. Exits 0 however the run ended, and 2 if there is no such
    run.
    """
    directory = find_run(run, runs_dir())
    history = History(directory)
    if follow:
        _follow(directory, history, draw=sys.stdout.isatty() and not as_json)
    standing = look(directory, history)
    if as_json:
        print_json(standing.as_dict())
    else:
        click.echo("\n".join([*_head(standing, verbose=verbose), *_tables(standing), *_places(standing)]))


def _follow(directory: RunDirectory, history: History, *, draw: bool) -> None:
    """Wait until a run is over."""
    if not draw:
        while not is_over(directory):
            wait()
        return
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False, transient=True) as live:
        while not is_over(directory):
            text = "\n".join(_head(look(directory, history), verbose=False))
            live.update(Text.from_ansi(text, no_wrap=True, overflow="ellipsis"), refresh=True)
            wait()


def _head(standing: Standing, *, verbose: bool) -> Iterator[str]:
    """What it is, how far it is, and what became of it."""
    summary = standing.summary
    yield f"{click.style(summary.status, fg=_COLORS.get(summary.status, 'yellow'), bold=True)}  {summary.run_id}"
    lines = [*_facts(standing), *((name, figure(value)) for name, value in by_phase(standing.metrics).items())]
    width = max(_NAME_WIDTH, *(len(name) + 2 for name, _ in lines))
    for name, value in lines:
        first, *more = value.splitlines() or [""]
        yield f"  {name:<{width}}{first}"
        yield from (f"  {'':<{width}}{line}" for line in more)
    if verbose and standing.error and standing.error.traceback:
        yield ""
        yield standing.error.traceback.rstrip("\n")


def _facts(standing: Standing) -> Iterator[tuple[str, str]]:
    summary, now = standing.summary, now_ms()
    yield "trainer", summary.trainer
    if standing.parent:
        yield "begun from", standing.parent
    yield "steps", ", ".join(_pace(standing))
    yield "attempt", str(summary.attempt) if summary.attempt else NOTHING
    if len(standing.devices) > 1:
        yield "devices", format_devices(standing.devices)
    yield "submitted", f"{moment(summary.submitted_ms)} ({ago(summary.submitted_ms, now)})"
    if summary.status == "running":
        yield "running", f"for {lasting(summary.seconds(now))}"
    elif summary.ended_ms:
        yield (
            "ended",
            f"{moment(summary.ended_ms)} ({ago(summary.ended_ms, now)}), after {lasting(summary.seconds(now))}",
        )
    if standing.result and standing.result.best:
        yield "best", best_of(standing.result.best)
    if standing.lost:
        yield "lost", standing.lost
    if standing.reason:
        yield "reason", standing.reason
    if standing.error:
        yield from _error(standing.error)
    if standing.can_go_on:
        elsewhere = standing.directory.path.parent != runs_dir()
        yield (
            "to go on",
            shlex.join(["hostcore", "resume", str(standing.directory.path) if elsewhere else summary.run_id]),
        )


def _error(error: RunError) -> Iterator[tuple[str, str]]:
    where = [f"in {error.plugin}"] if error.plugin else []
    where += [f"on rank {error.rank}"] if error.rank else []
    yield "error", f"{error.type}: {error.message}" + (f" ({', '.join(where)})" if where else "")
    if error.hint:
        yield "hint", error.hint
    if error.traceback:
        yield "traceback", "shown with -v"


def _pace(standing: Standing) -> Iterator[str]:
    """How far it is and, while it runs, how fast."""
    summary, progress = standing.summary, standing.progress
    share = f" ({min(1.0, summary.step / summary.max_steps):.0%})" if summary.max_steps else ""
    yield f"{steps_of(summary.step, summary.max_steps)}{share}"
    if summary.status == "running":
        if progress.samples_per_second is not None:
            yield f"{format_rate(progress.samples_per_second)} samples/s"
        if progress.eta_seconds is not None:
            yield f"eta {format_duration(progress.eta_seconds)}"


def _tables(standing: Standing) -> Iterator[str]:
    now = now_ms()
    if standing.attempts:
        yield ""
        yield from in_columns(
            ["ATTEMPT", "STATUS", "STARTED", "DURATION", "STEPS", "WHY"],
            [
                (
                    *(one.attempt, one.status, moment(one.started_ms) if one.started_ms else NOTHING),
                    *(lasting(one.seconds(now)), _range(one.first_step, one.last_step)),
                    (f"{one.error.type}: {one.error.message}" if one.error else one.reason or "").partition("\n")[0],
                )
                for one in standing.attempts
            ],
        )
    if standing.checkpoints:
        yield ""
        yield from in_columns(
            ["CHECKPOINT", "EPOCH", "SIZE", "ATTEMPT", "SAVED", ""],
            [
                (
                    *(one.record.folder_name, one.record.epoch + 1, format_bytes(one.record.size), one.record.attempt),
                    *(ago(one.saved_ms, now), "final" if one.record.final else ""),
                )
                for one in standing.checkpoints
            ],
        )
    if standing.plugins:
        yield ""
        yield from in_columns(
            ["PLUGIN", "KIND", "DISTRIBUTION", "VERSION"],
            [
                (one["name"], one["kind"], one.get("distribution") or NOTHING, one.get("version") or NOTHING)
                for one in standing.plugins
            ],
        )


def _range(first: int | None, last: int | None) -> str:
    if last is None:
        return NOTHING
    return f"{first:,} to {last:,}" if first is not None else f"{last:,}"


def _places(standing: Standing) -> Iterator[str]:
    yield ""
    yield from (f"  {name:<{_NAME_WIDTH}}{path}" for name, path in standing.places.items())
