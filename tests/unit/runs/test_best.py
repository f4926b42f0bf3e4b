"""The best value of a run, by the events of its log."""

from typing import Any

import pytest

from hostcore.runs.findings import Findings
from hostcore_hookspecs.events import CheckpointSaved, Event, Payload, RunStarted, Validation


def event(payload: Payload, step: int) -> Event:
    return Event(seq=1, time_ms=1, run_id="a", attempt=1, step=step, epoch=0, payload=payload)


def best(*told: Any) -> tuple[str, float, int] | None:
    """Of validations, each a step and its metrics; a number alone is an attempt that begins behind that step."""
    found = Findings()
    for one in told:
        if isinstance(one, int):
            found.note(event(RunStarted(device="cpu"), one))
        else:
            step, metrics = one
            found.note(event(Validation(metrics=metrics, weight=1.0), step))
    return found.best and (found.best["metric"], found.best["value"], found.best["step"])


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
    found = Findings()
    found.note(event(Validation(metrics={"val/loss": 1.0, "val/accuracy": 0.5}, weight=1.0), 10))
    found.note(event(CheckpointSaved(path="x", bytes=1, final=False, best={"val/accuracy": 0.5}), 10))
    found.note(event(Validation(metrics={"val/loss": 0.5, "val/accuracy": 0.4}, weight=1.0), 20))
    found.note(event(CheckpointSaved(path="x", bytes=1, final=True), 20))
    assert found.best == {"metric": "val/accuracy", "value": 0.5, "step": 10}
    found.note(event(RunStarted(device="cpu"), 0))
    assert found.best is None
