"""What the event log tells of a run's attempts, metrics and pace."""

from collections.abc import Callable

import pytest

from hostcore.events.merger import Entry, EventLog
from hostcore.runs import history
from hostcore.runs.directory import RunDirectory
from hostcore.runs.history import History, total_seconds
from hostcore_hookspecs.errors import RunError
from hostcore_hookspecs.events import (
    Metrics,
    Payload,
    Progress,
    RunFailed,
    RunPreempted,
    RunResumed,
    RunStarted,
    RunSubmitted,
    Validation,
)

SUBMITTED = RunSubmitted(trainer="mine", max_steps=100)


def tell(directory: RunDirectory, attempt: int, *events: tuple[int, int | None, Payload]) -> None:
    """Add events to a log: time in milliseconds, step, payload."""
    log = EventLog(directory.events, run_id=directory.run_id, attempt=attempt)
    for time_ms, step, payload in events:
        log.append(Entry(payload=payload, step=step, epoch=0, time_ms=time_ms))
    log.close()


@pytest.fixture
def directory(run_folder: Callable) -> RunDirectory:
    """A run whose first attempt was preempted, whose second died, and whose third failed."""
    run = run_folder()
    for attempt in (1, 2, 3):
        run.attempt(attempt)  # at 0 ms
    tell(
        run.directory,
        1,
        (1000, None, SUBMITTED),
        (2000, 0, RunStarted(device="cpu")),
        (3000, 10, Metrics(metrics={"train/loss": 3.0})),
        (3500, 10, Validation(metrics={"val/loss": 9.0}, weight=1)),
        (4000, 15, RunPreempted(reason="SIGTERM")),
    )
    tell(
        run.directory,
        2,
        (5000, None, SUBMITTED),
        (5500, 15, RunResumed(path="checkpoints/step-000015")),
        (6000, 15, RunStarted(device="cpu")),
        (7000, 20, Progress()),
    )
    tell(
        run.directory,
        3,
        (8000, None, SUBMITTED),
        (9000, 15, RunStarted(device="cpu")),
        (9500, 20, Metrics(metrics={"train/loss": 2.0})),
        (10_000, 30, RunFailed(error=RunError(type="X", message="no"))),
    )
    return run.directory


def test_each_attempt_has_its_end_its_steps_and_its_time(directory: RunDirectory) -> None:
    history = History(directory)
    history.read_on()
    first, second, third = history.attempts(running=False)
    assert (first.status, first.reason, first.first_step, first.last_step) == ("preempted", "SIGTERM", 0, 15)
    assert (second.status, second.first_step, second.last_step, second.ended_ms) == ("lost", 15, 20, 7000)
    assert (third.status, third.first_step, third.last_step, third.error.type) == ("failed", 15, 30, "X")
    assert [one.seconds(now=0) for one in (first, second, third)] == [4.0, 7.0, 10.0]
    assert total_seconds([first, second, third], now=0) == 21.0


def test_the_newest_attempt_may_still_run_or_is_lost_as_far_as_its_lease_knows(run_folder: Callable) -> None:
    run = run_folder()
    run.attempt(1)
    (only,) = History(run.directory).attempts(running=False)
    assert (only.status, only.started_ms, only.last_step, only.seconds(now=9000)) == ("lost", 0, None, None)
    (only,) = History(run.directory).attempts(running=False, seen_ms=3000)
    assert only.seconds(now=9000) == 3.0
    tell(run.directory, 1, (1000, None, SUBMITTED), (2000, 7, Progress()))
    history = History(run.directory)
    history.read_on()
    (only,) = history.attempts(running=True)
    assert (only.status, only.last_step, only.ended_ms, only.seconds(now=9000)) == ("running", 7, None, 9.0)


def test_reading_on_adds_what_came_meanwhile(directory: RunDirectory) -> None:
    history = History(directory)
    history.read_on()
    assert history.metrics == {"train/loss": 2.0, "val/loss": 9.0}, "the last of every kind"
    (directory.attempts / "4.json").write_text("{}")
    tell(directory, 4, (11_000, None, SUBMITTED), (12_000, 40, Metrics(metrics={"train/loss": 1.0})))
    history.read_on()
    assert history.metrics["train/loss"] == 1.0
    assert [one.last_step for one in history.attempts(running=True)] == [15, 20, 30, 40]
    assert [event.name for event in history.status_events] == ["run_submitted", "metrics"]


def test_a_line_that_an_older_version_has_written_too_long_is_read_with_its_texts_cut(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    *before, end = directory.events.read_bytes().splitlines(keepends=True)
    long = end.replace(b'"message":"no"', b'"message":"%s"' % (b"x" * 100_000))
    directory.events.write_bytes(b"".join([*before, long]))
    monkeypatch.setattr(history, "LONGEST_RECORD", 20_000)
    read = History(directory)
    read.read_on()
    last = read.attempts(running=False)[-1]
    assert (last.status, last.last_step, last.error.type) == ("failed", 30, "X")
    assert "left out" in last.error.message
    tell(directory, 4, (11_000, None, SUBMITTED))
    read.read_on()
    assert [event.name for event in read.status_events] == ["run_submitted"]
