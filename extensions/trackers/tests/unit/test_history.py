"""What an event adds to the history that a tracker keeps."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from hostcore_hookspecs.events import (
    EpochStarted,
    Metrics,
    RunCancelled,
    RunError,
    RunFailed,
    TrainerRestored,
    Warning,
)
from hostcore_trackers.history import EXIT_CODES, TrackerHistory

MakeCourse = Callable[..., Any]


def test_a_metric_named_like_one_of_the_host_is_kept_beside_it(course: MakeCourse) -> None:
    metrics = {"host/step_seconds": 1.0, "host/epoch": 2.0}
    row = TrackerHistory().missing(course().tell(Metrics(metrics=metrics, step_seconds=9.0), step=1, epoch=3))
    assert (row["host/step_seconds"], row["host/epoch"]) == (9.0, 4)
    assert sorted(value for name, value in row.items() if name.startswith("trainer/host/")) == [1.0, 2.0]


def test_a_step_that_a_resumed_run_takes_again_stays_as_it_was(course: MakeCourse) -> None:
    run, history = course(), TrackerHistory()
    for step in (10, 20):
        event = run.tell(Metrics(metrics={"train/loss": 1.0}), step=step)
        history.add(event.seq, step=step, names=history.missing(event))
    again, first = (
        run.tell(Metrics(metrics={"train/loss": 2.0}), step=20),
        run.tell(Metrics(metrics={"b": 1.0}), step=20),
    )
    later = run.tell(Metrics(metrics={"train/loss": 3.0}), step=30)
    assert history.missing(again) == {}
    assert history.missing(first)["b"] == 1.0
    assert history.missing(later)["train/loss"] == 3.0


def test_a_return_to_an_earlier_state_has_its_values_although_the_step_has_others(course: MakeCourse) -> None:
    run, history = course(), TrackerHistory()
    for step, loss in ((10, 0.5), (20, 0.9)):
        event = run.tell(Metrics(metrics={"val/loss": loss}), step=step)
        history.add(event.seq, step=step, names=history.missing(event))
    returned = run.tell(
        TrainerRestored(restored_step=10, reason="best", requested_by="x", values={"val/loss": 0.5, "val/f1": None}),
        step=20,
    )
    row = history.missing(returned)
    assert row["val/loss"] == 0.5
    assert math.isnan(float(row["val/f1"]))
    history.add(returned.seq, step=20, names=row)
    assert history.missing(returned) == {}
    assert history.missing(run.tell(Metrics(metrics={"test/loss": 0.6}), step=20))["test/loss"] == 0.6


@pytest.mark.parametrize("payload", [EpochStarted(), Warning(code="a", message="b"), Metrics(metrics={})], ids=str)
def test_what_a_tracker_has_no_place_for_adds_nothing(payload: Any, course: MakeCourse) -> None:
    assert TrackerHistory().missing(course().tell(payload, step=1)) == {}


def test_the_end_says_how_and_why_and_not_for_ever(course: MakeCourse) -> None:
    run = course()
    failed = run.tell(RunFailed(error=RunError(type="ValueError", message="x" * 10_000)), step=1)
    row = TrackerHistory().missing(failed)
    assert row["host/status"] == "failed"
    assert str(row["host/reason"]).startswith("ValueError: xxx")
    assert len(str(row["host/reason"])) == 2000
    assert TrackerHistory().missing(run.tell(RunCancelled(reason="enough"), step=1))["host/reason"] == "enough"
    assert set(EXIT_CODES.values()) == {0, 1, 75, 130}
