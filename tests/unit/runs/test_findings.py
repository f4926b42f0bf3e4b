"""What the events of a run's log show of it: metrics that were not finite, and the best value."""

from collections.abc import Callable
from typing import Any

import pytest

from hostcore.events.merger import Entry, EventLog
from hostcore.runs.findings import Findings
from hostcore.runs.history import History
from hostcore_hookspecs.events import CheckpointSaved, Event, Metrics, Payload, RunStarted, RunSucceeded, Validation
from hostcore_hookspecs.events import Test as OverallTest

NAN, ONE = None, 1.0
STARTED = RunStarted(device="cpu")


def found(*told: tuple[int, Payload | float | None] | int) -> Findings:
    """Of events, each a step and a payload, or a loss; a number alone is an attempt that begins behind that step."""
    made = Findings()
    for one in told:
        step, payload = (one, STARTED) if isinstance(one, int) else one
        if not isinstance(payload, Payload):
            payload = Metrics(metrics={"train/loss": payload})
        made.note(Event(seq=1, time_ms=1, run_id="a", attempt=1, step=step, epoch=0, payload=payload))
    return made


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
    assert [one.message for one in found(*told).warnings] == ([] if says is None else [f"train/loss {says}"])


def test_each_metric_of_training_validation_and_test_counts_in_one_line_whatever_it_is_called() -> None:
    warnings = found(
        (5, Metrics(metrics={"train/loss": 1.0, "a\nb": None})),
        (5, Validation(metrics={"val/loss": None}, weight=1.0)),
        (9, OverallTest(metrics={"test/loss": None}, weight=1.0)),
    ).warnings
    assert [(one.metric, one.first_step) for one in warnings] == [("a\nb", 5), ("val/loss", 5), ("test/loss", 9)]
    assert warnings[0].message == r"a\nb was not finite at step 5"


def test_however_many_there_are_the_list_is_short() -> None:
    many = ({f"at/{step}": None, "train/loss": None if step % 2 else 1.0} for step in range(1, 3000))
    warnings = found(*((step, Metrics(metrics=metrics)) for step, metrics in enumerate(many, start=1))).warnings
    assert len(warnings) == 21
    assert warnings[-1].message.endswith("more metrics were not finite at some steps")
    assert warnings[1].message == "train/loss was not finite at some of the steps 1 to 2,999"


@pytest.fixture
def logged(run_folder: Callable[..., Any]) -> Callable[..., Any]:
    """``logged((10, None), attempt=1)``: a run's folder with these recordings in its log."""
    folder = run_folder()

    def write(*recordings: tuple[int, float | None], begins: int = 0, attempt: int = 1) -> Any:
        log = EventLog(folder.directory.events, run_id="a", attempt=attempt)
        log.append(Entry(payload=STARTED, step=begins, epoch=0))
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


def best(*told: Any) -> tuple[str, float, int] | None:
    """Of validations, each a step and its metrics."""
    kept = found(
        *(one if isinstance(one, int) else (one[0], Validation(metrics=one[1], weight=1.0)) for one in told)
    ).best
    return kept and (kept["metric"], kept["value"], kept["step"])


def loss(step: int, value: float | None) -> Any:
    return step, {"val/loss": value}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([0], None),
        ([0, loss(10, 3.0)], ("val/loss", 3.0, 10)),
        ([0, loss(10, 3.0), loss(20, 2.0), loss(30, 2.5)], ("val/loss", 2.0, 20)),
        ([0, loss(10, 2.0), loss(20, 2.0)], ("val/loss", 2.0, 10)),
        ([0, loss(10, None), loss(20, 2.0), loss(30, None)], ("val/loss", 2.0, 20)),
        # An attempt begins before it happened, or goes on.
        ([0, loss(10, 3.0), loss(20, 1.0), 10, loss(20, 2.0)], ("val/loss", 2.0, 20)),
        ([0, loss(10, 3.0), loss(20, 1.0), 0], None),
        ([0, loss(10, 1.0), 10, loss(20, 2.0)], ("val/loss", 1.0, 10)),
    ],
)
def test_the_lowest_validated_loss_is_the_best_the_first_of_equals(told: Any, expected: Any) -> None:
    assert best(*told) == expected


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({"val/aux_loss": 1.0, "val/loss": 2.0}, ("val/loss", 2.0, 10)),
        ({"val/accuracy": 0.5, "val/aux_loss": 1.0, "val/b_loss": 0.5}, ("val/aux_loss", 1.0, 10)),
        ({"val/accuracy": 0.5}, None),
    ],
)
def test_without_val_loss_the_first_loss_counts_and_nothing_else(metrics: Any, expected: Any) -> None:
    assert best((10, metrics)) == expected


def test_what_a_callback_had_kept_counts_before_the_loss() -> None:
    told = (
        (10, Validation(metrics={"val/loss": 1.0, "val/accuracy": 0.5}, weight=1.0)),
        (10, CheckpointSaved(path="x", bytes=1, final=False, best={"val/accuracy": 0.5})),
        (20, Validation(metrics={"val/loss": 0.5, "val/accuracy": 0.4}, weight=1.0)),
        (20, CheckpointSaved(path="x", bytes=1, final=True)),
    )
    assert found(*told).best == {"metric": "val/accuracy", "value": 0.5, "step": 10}
    assert found(*told, 0).best is None
