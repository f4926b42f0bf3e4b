"""What a sweep looks like on a terminal, where there is none, and where it was closed."""

import os
from collections.abc import Callable
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import attrs
import pytest
import recorded_sweep
from rich.console import Console

from hostcore.runs.lease import ProcessIdentity
from hostcore_sweeps.display import LineScreen, LiveTable, Screen, failures, screen_on, short_names
from hostcore_sweeps.folder import SweepFolder, TrialPlace
from hostcore_sweeps.records import SessionStarted, TrialEnded, TrialReported, TrialSampled, TrialStarted
from hostcore_sweeps.status import SweepTable


@pytest.fixture
def table(tmp_path: Path) -> SweepTable:
    """A sweep of two trials, the first of which has ended."""
    space = {"/hyperparams/lr": {"uniform": [0, 1]}, "/hyperparams/name": {"choice": ["a\x1b[2J", "b"]}}
    sweep = recorded_sweep.walk(space=space)
    folder = SweepFolder(tmp_path / "walk")
    folder.make(sweep, TrialPlace(runs=tmp_path / "runs"))
    made = SweepTable(folder)
    made.take(1000, SessionStarted(process=ProcessIdentity.current()))
    for number in (0, 1):
        values = {"/hyperparams/lr": 0.123456789, "/hyperparams/name": "a\x1b[2J"}
        made.take(1000, TrialSampled(number=number, run_id=f"walk-{number:04d}", values=values))
        made.take(1000, TrialStarted(number=number))
        made.take(1000, TrialReported(number=number, step=2, values={"loss": 2.0}))
    made.take(2000, TrialEnded(number=0, state="complete", values={"loss": 2.0}, step=2))
    return made


def test_parameters_of_one_name_are_called_by_their_pointers() -> None:
    assert short_names(["/a/x", "/b/x", "/c/y"]) == {"/a/x": "/a/x", "/b/x": "/b/x", "/c/y": "y"}


def test_lines_tell_what_is_new_once_and_the_last_of_it_at_the_end(table: SweepTable, capsys: Any) -> None:
    with LineScreen(clock=lambda: 0.0) as lines:  # a clock that stands: the next look is never due
        lines.show(table.status)
        first = capsys.readouterr().err
        assert first.startswith("trial 1  running  lr=0.1235"), "a trial that ended before is told again"
        assert "\x1b" not in first
        table.take(3000, TrialEnded(number=1, state="failed", values={}, step=2, reason="the loss has exploded"))
        lines.show(table.status)
        assert capsys.readouterr().err == ""
    assert "trial 1  failed" in (last := capsys.readouterr().err)
    assert "the loss has exploded" in last
    assert "trial 0" not in last


@pytest.mark.parametrize(("open_ends", "screen"), [(os.openpty, LiveTable), (os.pipe, LineScreen)])
def test_a_terminal_or_a_pipe_that_is_closed_breaks_no_end(
    table: SweepTable,
    open_ends: Callable[[], tuple[int, int]],
    screen: Callable[..., Screen],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = open_ends()
    stream = os.fdopen(writer, "w", buffering=1)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", stream)
    with screen(clock=iter(range(100)).__next__) as shown:
        shown.show(table.status)
        os.close(reader)
        table.take(3000, TrialEnded(number=1, state="failed", values={}, step=2, reason="the loss has exploded"))
        with suppress(OSError):  # as the driver does
            shown.show(table.status)
        table.take(4000, TrialSampled(number=2, run_id="walk-0002", values={"/hyperparams/lr": 0.5}))
    with suppress(OSError):
        stream.close()


@pytest.mark.parametrize(("width", "head"), [(80, ["lr", "name"]), (46, ["lr", "…"]), (30, ["…"])])
def test_a_live_table_leaves_out_parameters_for_which_there_is_no_room(
    table: SweepTable, width: int, head: list[str]
) -> None:
    text = StringIO()
    console = Console(file=text, width=width, force_terminal=True, color_system=None)
    with LiveTable(console=console) as live:
        live.show(table.status)
    lines = [line.rstrip() for line in text.getvalue().splitlines()]
    assert width < 80 or "walk  running  2/3 trials  1 running, 1 complete" in text.getvalue()
    columns_shown = next(line for line in lines if line.startswith("TRIAL"))
    assert columns_shown.split() == ["TRIAL", "STATE", "STEP", "loss", *head]
    assert any(line.split()[:4] == ["0*", "complete", "2", "2"] for line in lines)


@pytest.mark.parametrize(
    ("is_terminal", "term", "kind"),
    [(True, "xterm", LiveTable), (True, "dumb", LineScreen), (True, "", LineScreen), (False, "xterm", LineScreen)],
)
def test_lines_are_printed_where_nothing_can_be_drawn_over(
    is_terminal: bool, term: str, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal)
    monkeypatch.setenv("TERM", term)
    assert type(screen_on(stream)) is kind


@pytest.mark.parametrize("reason", ["interrupted by the user", None])
def test_while_trials_are_paused_it_is_told_what_a_second_interrupt_does(
    table: SweepTable, capsys: Any, reason: str | None
) -> None:
    with LineScreen() as lines:
        lines.show(lambda: attrs.evolve(table.status(), reason=reason))
    told = capsys.readouterr().err
    assert told.count("stopping: interrupted by the user; each trial writes a checkpoint") == (reason is not None)


def test_why_trials_have_failed_is_told_once_for_each_reason(table: SweepTable) -> None:
    assert failures(table.status()) == []
    for number, reason in enumerate(["the loss has exploded", *["out of memory"] * 10], start=1):
        values = {"/hyperparams/lr": 0.1, "/hyperparams/name": "b"}
        if number > 1:
            table.take(2500, TrialSampled(number=number, run_id=f"walk-{number:04d}", values=values))
        table.take(3000, TrialEnded(number=number, state="failed", values={}, step=2, reason=reason))
    assert failures(table.status()) == [
        "trials 2, 3, 4, 5, 6, 7, 8, 9 and 2 more failed: out of memory",
        "trial 1 failed: the loss has exploded",
    ]
