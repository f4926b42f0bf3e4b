"""Which metrics were not finite, and when, by the events of a run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostcore.events.merger import Entry, EventLog
from hostcore.runs.findings import Findings
from hostcore.runs.history import History
from hostcore_hookspecs.events import Event, Metrics, Payload, RunStarted, RunSucceeded, Validation
from hostcore_hookspecs.events import Test as OverallTest

NAN, ONE = None, 1.0


def event(payload: Payload, step: int) -> Event:
    return Event(seq=1, time_ms=1, run_id="a", attempt=1, step=step, epoch=0, payload=payload)


def noted(*told: tuple[int, float | None] | int) -> Findings:
    """Of recordings, each a step and a value; a number alone is an attempt that begins behind that step."""
    found = Findings()
    for one in told:
        if isinstance(one, int):
            found.note(event(RunStarted(device="cpu"), one))
        else:
            found.note(event(Metrics(metrics={"train/loss": one[1]}), one[0]))
    return found


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ([0, (10, ONE), (20, NAN), (30, NAN)], "has not been finite since step 20"),
        ([0, (10, NAN), (20, NAN)], "has not been finite since step 10"),
        ([0, (10, ONE), (20, NAN)], "was not finite at step 20"),
        ([0, (10, NAN), (20, ONE)], "was not finite at step 10"),
        ([0, (10, NAN), (20, NAN), (30, ONE)], "was not finite at steps 10 to 20"),
        ([0, (10, NAN), (20, ONE), (30, NAN), (40, ONE)], "was not finite at some of the steps 10 to 30"),
        (
            [0, (10, NAN), (20, ONE), (30, NAN), (40, NAN)],
            "has not been finite since step 30, and was not at step 10 either",
        ),
        # The next attempt goes on,
        ([0, (10, ONE), (20, NAN), (30, NAN), 30, (40, NAN)], "has not been finite since step 20"),
        # or begins again before it happened, or in the middle of it.
        ([0, (10, ONE), (20, NAN), 10, (20, ONE)], None),
        ([0, (10, ONE), (20, NAN), 0, (10, ONE)], None),
        ([0, (10, ONE), (20, NAN), (30, NAN), (40, ONE), 30, (40, ONE)], "was not finite at steps 20 to 30"),
        ([0, (10, ONE), (20, NAN), (30, NAN), (40, ONE), 30, (40, NAN)], "has not been finite since step 20"),
        ([0, (10, NAN), (20, ONE), (30, NAN), (40, NAN), 20, (30, ONE)], "was not finite at step 10"),
    ],
)
def test_the_message_says_since_when_or_when(told: Any, says: str | None) -> None:
    assert [one.message for one in noted(*told).warnings] == ([] if says is None else [f"train/loss {says}"])


def test_each_metric_of_training_validation_and_test_counts() -> None:
    found = Findings()
    found.note(event(Metrics(metrics={"train/loss": 1.0, "grad": None}), 5))
    found.note(event(Validation(metrics={"val/loss": None}, weight=1.0), 5))
    found.note(event(OverallTest(metrics={"test/loss": None}, weight=1.0), 9))
    assert [(one.metric, one.first_step) for one in found.warnings] == [
        ("grad", 5),
        ("val/loss", 5),
        ("test/loss", 9),
    ]


def test_the_message_is_one_line_whatever_the_metric_is_called() -> None:
    found = Findings()
    found.note(event(Metrics(metrics={"a\nb": NAN}), 1))
    (warning,) = found.warnings
    assert (warning.message, warning.metric) == (r"a\nb was not finite at step 1", "a\nb")


def test_however_many_there_are_the_list_is_short() -> None:
    found = Findings()
    for step in range(1, 3000):
        found.note(event(Metrics(metrics={f"at/{step}": None, "train/loss": None if step % 2 else 1.0}), step))
    warnings = found.warnings
    assert len(warnings) == 21
    assert warnings[-1].message.endswith("more metrics were not finite at some steps")
    assert warnings[1].message == "train/loss was not finite at some of the steps 1 to 2,999"


@pytest.fixture
def logged(tmp_path: Path, run_folder: Callable[..., Any]) -> Callable[..., Any]:
    """``logged((10, None), attempt=1)``: a run's folder with these recordings in its log."""
    folder = run_folder()

    def write(*recordings: tuple[int, float | None], begins: int = 0, attempt: int = 1) -> Any:
        log = EventLog(folder.directory.events, run_id="a", attempt=attempt)
        log.append(Entry(payload=RunStarted(device="cpu"), step=begins, epoch=0))
        for step, value in recordings:
            nonfinite = ["train/loss"] if value is None else []
            log.append(Entry(payload=Metrics(metrics={"train/loss": value}, nonfinite=nonfinite), step=step, epoch=0))
        log.append(Entry(payload=RunSucceeded(), step=recordings[-1][0], epoch=0))
        log.close()
        return folder

    return write


def test_a_history_that_is_read_on_knows_of_a_metric_that_recovers_and_of_attempts_that_go_back(logged: Any) -> None:
    history = History(logged((10, 1.0), (20, None), (30, None)).directory)
    history.read_on()
    assert [one.message for one in history.warnings] == ["train/loss has not been finite since step 20"]
    logged((40, 1.0), begins=30, attempt=2)
    history.read_on()
    assert [one.message for one in history.warnings] == ["train/loss was not finite at steps 20 to 30"]
    logged((20, 1.0), begins=10, attempt=3)
    history.read_on()
    assert history.warnings == []
