"""Metrics of steps that an attempt trains again, compared with those of the attempt before, by the events of a run."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from hostcore.runs.findings import Findings
from hostcore.runs.retrained import DIFFERS, EXPECTED, Comparison, Retrained, is_compared
from hostcore_hookspecs import events
from hostcore_hookspecs.events import Event, Payload

Step = tuple[int, Mapping[str, float | None]]


def lines(*told: Any, attempt: int = 0) -> Iterator[Event]:
    """Events of a run: a number begins an attempt behind that step; a pair is a recording, or a payload with a step."""
    for one in told:
        if isinstance(one, int):
            attempt += 1
            step, payload = one, events.RunStarted(device="cpu")
        else:
            step, content = one
            payload = content if isinstance(content, Payload) else events.Metrics(metrics=content)
        yield Event(seq=1, time_ms=1, run_id="a", attempt=attempt, step=step, epoch=0, payload=payload)


def compared(*told: Any) -> Retrained:
    found = Retrained()
    for event in lines(*told):
        if event.name in found.NAMES:
            found.note(event.as_dict())
    return found


def loss(step: int, value: float | None) -> Step:
    return step, {"train/loss": value}


def saved(step: int) -> tuple[int, Payload]:
    return step, events.CheckpointSaved(path=f"checkpoints/step-{step}", bytes=1, final=False)


def warned(step: int, code: str) -> tuple[int, Payload]:
    return step, events.Warning(code=code, message="m")


BEFORE = (0, loss(1, 0.1), saved(1), loss(2, 0.2), loss(3, 0.3))


@pytest.mark.parametrize(
    ("before", "now", "differs"),
    [(None, None, False), (None, 0.1, True), (0.1, None, True), (0.0, -0.0, True), (0.1, 0.1, False)],
)
def test_values_are_compared_bit_for_bit(before: Any, now: Any, differs: bool) -> None:
    assert bool(compared(0, loss(1, before), 0, loss(1, now)).unreported) is differs


def test_a_validation_is_compared_and_a_metric_that_one_attempt_alone_has_is_not() -> None:
    first, again = ((1, events.Validation(metrics=one, weight=1)) for one in ({"val/loss": 1.0, "a": 1.0}, {"b": 2.0}))
    assert not compared(0, first, 0, again).unreported
    assert compared(0, first, 0, (1, events.Validation(metrics={"val/loss": 2.0}, weight=1))).unreported


@pytest.mark.parametrize(
    "name",
    ["throughput/samples_per_second", "step_time", "stepTime", "gpuMemory", "DeviceStats/cpu_percent", "it/s", "mfu"],
)
def test_what_measures_the_machine_is_not_compared(name: str) -> None:
    assert not is_compared(name)
    assert not compared(0, (1, {name: 1.0}), 0, (1, {name: 2.0})).unreported


@pytest.mark.parametrize("name", ["train/loss", "val/accuracy", "lr", "grad_norm", "train/timely", "loss_scale"])
def test_everything_else_is(name: str) -> None:
    assert is_compared(name)


@pytest.mark.parametrize("payload", ["trainer_restored", "batch_split"])
def test_a_trainer_that_goes_back_or_splits_its_batches_begins_another_history(payload: str) -> None:
    split = events.BatchSplit(rows=2, micro_batch_rows=1, error="e", rank=0, memory="m")
    restored = events.TrainerRestored(restored_step=1, reason="r", requested_by="c")
    broken = (2, split if payload == "batch_split" else restored)
    assert not compared(*BEFORE, 1, loss(2, 0.2), broken, loss(3, 0.9)).unreported
    assert not compared(0, loss(1, 0.1), loss(2, 0.2), broken, loss(3, 0.3), 0, loss(3, 0.9)).unreported
    assert compared(*BEFORE, 1, loss(2, 0.9), broken).unreported
    # Behind the next checkpoint, there is one history again.
    assert compared(0, broken, saved(3), loss(4, 0.4), 3, loss(4, 0.9)).unreported


def test_a_third_attempt_is_compared_with_the_one_whose_checkpoint_it_begins_from() -> None:
    inexact = (*BEFORE, loss(4, 0.4), 1, loss(2, 0.9), saved(2), loss(3, 0.8), loss(4, 0.7))
    found = compared(*inexact, 2, loss(3, 0.8), loss(4, 0.7))
    assert [(one.attempt, one.differing) for one in found.comparisons] == [(2, 1), (3, 0)]
    again = compared(*BEFORE, 1, loss(2, 0.9), 1, loss(2, 0.2))
    assert [(one.attempt, one.before, one.differing) for one in again.comparisons] == [(2, 1, 1), (3, 1, 0)]


def test_memory_is_bounded_and_the_first_steps_are_kept() -> None:
    many = [loss(step, 1.0) for step in range(1, 150_000)]
    found = compared(0, *many, 0, loss(1, 2.0), loss(149_000, 2.0))
    assert (found.comparisons[0].count, found.comparisons[0].differing) == (1, 1)


@pytest.mark.parametrize(("begins_at", "left"), [(3, 1), (2, 1), (1, 0), (0, 0)])
def test_what_a_later_attempt_trains_again_has_not_happened(begins_at: int, left: int) -> None:
    found = Findings()
    for event in lines(0, 1, warned(2, DIFFERS), warned(2, EXPECTED), warned(2, "other"), begins_at):
        found.note(event)
    assert [(one.code, one.first_step) for one in found.warnings] == [(DIFFERS, 2)] * left


def test_a_message_has_no_control_characters() -> None:
    one = Comparison(attempt=2, before=1, first_step=1, last_step=1, first=(1, "a\x1b[2J\nb", 1.0, None))
    assert "\x1b" not in str(one)
    assert "\n" not in str(one)
