"""``hostcore replay``."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from hostcore.cli import completion
from hostcore.cli.job_options import runs_dir_option
from hostcore.cli.output import (
    echo,
    json_option,
    plugins_print_aside,
    print_error,
    print_json,
    reports_errors,
    style,
    verbose_option,
    warn,
)
from hostcore_hookspecs.errors import HostcoreError

if TYPE_CHECKING:
    from hostcore.runs.directory import RunDirectory

if TYPE_CHECKING:
    from hostcore.supervisor.delivery.redelivery import Replay


class ReplayError(HostcoreError):
    """There is nothing to replay, or it must not be done now."""

    code = "replay"


@click.command("replay", short_help="Tell a reporter the events of a run, all or those it has missed.")
@click.argument("run", shell_complete=completion.runs)
@click.option(
    "--reporter",
    "name",
    metavar="NAME",
    required=True,
    help="Who is told.",
    shell_complete=completion.plugins("reporter"),
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a setting of the reporter; repeatable."
)
@click.option("--pending", is_flag=True, help="Only what it has not been told yet.")
@runs_dir_option
@json_option
@verbose_option
@reports_errors
def replay_command(
    run: str, *, name: str, settings: tuple[str, ...], pending: bool, runs: Path, as_json: bool, verbose: bool
) -> None:
    """Tell a reporter the events of RUN, from the first one on.

    RUN is a run id, the beginning of one, or a run directory. NAME is one of the run's own reporters, which has the
    settings that it has there, or any that is installed; a second use of the same is NAME.2. With --pending, one of the
    run's own is told what it has missed. Nothing else of the run changes. Exits 0 if the reporter has taken everything,
    1 if it fails, and 2 if there is no such run or reporter.
    """
    from hostcore.runs.find import find_run
    from hostcore.runs.result import FAILED

    directory = find_run(run, runs)
    with plugins_print_aside(as_json):
        replay, label = _prepared(directory, name, settings, pending=pending)
        _carry_out(replay, label)
    if as_json:
        print_json(_document(directory, label, replay))
    elif replay.problem is None:
        told = f"{label} was told {replay.count:,} events" if replay.count else f"there was nothing to tell {label}"
        echo(f"{style('replayed', fg='green', bold=True)}  {directory.run_id}  ({told})")
    if replay.problem is not None:
        print_error(_Failed(directory, label, replay), verbose=verbose)
        sys.exit(FAILED)


class _Failed(HostcoreError):
    code = "replay.failed"

    def __init__(self, directory: "RunDirectory", label: str, replay: "Replay") -> None:
        where = f"after {replay.count:,} of {replay.events:,} events of {directory.run_id}"
        super().__init__(f"{label} failed {where}: {replay.problem}")
        self.traceback = replay.traceback


def _prepared(
    directory: "RunDirectory", name: str, settings: tuple[str, ...], *, pending: bool
) -> "tuple[Replay, str]":
    # Imported here: it loads plugins, and an unknown run is reported without.
    from hostcore.runs.summary import summarize
    from hostcore.supervisor.delivery.redelivery import Replay, choose_reporter

    chosen = choose_reporter(directory, name, settings)
    label = chosen.subscription.label
    if pending and not chosen.is_own:
        raise ReplayError(
            f"{label} is not a reporter of {directory.run_id}, so that nothing of it is pending",
            file="--pending",
            hint="without --pending it is told everything",
        )
    if chosen.is_own and summarize(directory).status == "running":
        raise ReplayError(
            f"{directory.run_id} is running, and tells {label} by itself",
            hint="what is pending when it has ended can be replayed then",
        )
    if not directory.events.exists():
        raise ReplayError(f"{directory.run_id} has no events yet", file=str(directory.events))
    return Replay(directory, chosen, pending=pending, show=warn), label


def _document(directory: "RunDirectory", label: str, replay: "Replay") -> dict[str, Any]:
    return {
        "run_id": directory.run_id,
        "reporter": label,
        "events": replay.events,
        "told": replay.count,
        "ok": replay.problem is None,
        "error": replay.problem,
    }


def _carry_out(replay: "Replay", label: str) -> None:
    # A reporter that is live draws itself, and there is one line to draw on.
    if replay.live_only or not replay.events or not sys.stderr.isatty():
        replay.run(lambda _: None)
        return
    with _bar(label, replay.events) as bar:
        replay.run(bar)


class _Bar(Protocol):
    def __call__(self, told: int) -> object: ...


@contextmanager
def _bar(label: str, events: int) -> Iterator[_Bar]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from hostcore_builtin_plugins.control_characters import visible

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False, redirect_stdout=False) as progress:
        task = progress.add_task(visible(label, one_line=True), total=events)
        yield lambda told: progress.update(task, completed=told, refresh=True)
