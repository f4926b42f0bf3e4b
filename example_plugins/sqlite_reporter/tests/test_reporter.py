"""The reporter's methods, called as the host calls them; and what goes wrong, made to go wrong."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hostcore_hookspecs import Event, FatalError, TransientError
from hostcore_hookspecs.events import Metrics, RunStarted, RunSubmitted, RunSucceeded, Validation

MakeEvent = Callable[..., Event]


def rows(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(query).fetchall()


@pytest.fixture
def run(make_event: MakeEvent) -> list[Event]:
    """The events of a short run."""
    return [
        make_event(1, RunSubmitted(trainer="line", max_steps=20)),
        make_event(2, RunStarted(device="cpu")),
        make_event(3, Metrics(metrics={"train/loss": 2.0, "train/lr": 0.1}), step=10),
        make_event(4, Metrics(metrics={"train/loss": None}, nonfinite=["train/loss"]), step=20),
        make_event(5, Validation(metrics={"val/loss": 1.5}, weight=100), step=20),
        make_event(6, RunSucceeded(), step=20),
    ]


def test_metrics_become_rows(open_reporter: Any, path: Path, run: list[Event]) -> None:
    reporter = open_reporter()
    for event in run:
        reporter.report_event(event)
    assert rows(path, "SELECT name, step, value FROM metrics ORDER BY seq, name") == [
        ("train/loss", 10, 2.0),
        ("train/lr", 10, 0.1),
        ("train/loss", 20, None),
        ("val/loss", 20, 1.5),
    ]
    assert rows(path, "SELECT * FROM runs") == [("a", "line", "succeeded", 20)]


def test_an_event_is_written_when_it_was_told(open_reporter: Any, path: Path, run: list[Event]) -> None:
    reporter = open_reporter()
    for event in run[:3]:
        reporter.report_event(event)
    # Not closed: the process may be killed now.
    assert rows(path, "SELECT state, step FROM runs") == [("running", 10)]
    assert len(rows(path, "SELECT * FROM metrics")) == 2


def test_events_that_are_told_again_are_there_once(open_reporter: Any, path: Path, run: list[Event]) -> None:
    first = open_reporter()
    for event in run[:4]:
        first.report_event(event)
    again = open_reporter()  # of the next attempt; it was not written down that the last two were told
    for event in run[2:]:
        again.report_event(event)
    assert len(rows(path, "SELECT * FROM metrics")) == 4
    assert rows(path, "SELECT state, step FROM runs") == [("succeeded", 20)]


def test_a_new_run_of_an_old_name_starts_empty(
    open_reporter: Any, path: Path, run: list[Event], make_event: MakeEvent
) -> None:
    reporter = open_reporter()
    for event in run:
        reporter.report_event(event)
    reporter.report_event(make_event(1, RunSubmitted(trainer="line", max_steps=5), run_id="b"))
    reporter.report_event(run[0])
    assert rows(path, "SELECT * FROM metrics") == []
    assert rows(path, "SELECT run_id, state FROM runs ORDER BY run_id") == [("a", "running"), ("b", "running")]


def test_a_file_that_somebody_writes_to_is_worth_another_try(open_reporter: Any, path: Path, run: list[Event]) -> None:
    reporter = open_reporter(lock_seconds=0.01)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(TransientError, match="database is locked"):
            reporter.report_event(run[0])
        other.execute("ROLLBACK")
    reporter.report_event(run[0])
    assert len(rows(path, "SELECT * FROM runs")) == 1


def test_a_file_that_is_no_database_is_hopeless(open_reporter: Any, path: Path) -> None:
    path.parent.mkdir()
    path.write_text("something else, and enough of it to be more than an empty file\n" * 100)
    with pytest.raises(FatalError, match="file is not a database") as raised:
        open_reporter()
    assert raised.value.file == str(path)
    assert raised.value.hint == "name another file in the reporter's settings: path"
    assert path.read_text().startswith("something else")
