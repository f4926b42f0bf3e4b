"""Spikes, and the rows that make them."""

from collections.abc import Sequence

from hostcore.runs.recorded import RecordedStep
from hostcore_debug.spikes import guilty, replacements, spikes


def test_a_spike_is_above_a_multiple_of_the_median_before_and_not_finite_is_the_worst() -> None:
    values = [1.0] * 10 + [2.9, 3.1, 1.0, None, 9.0]
    recorded = {step: _step(value) for step, value in enumerate(values, 1)}
    found = spikes(recorded, "train/loss", 3.0)
    assert [(one.step, one.median) for one in found] == [(14, 1.0), (15, 1.0), (12, 1.0)]
    assert not spikes({1: _step(9.0)}, "train/loss", 3.0)


def test_rows_are_halved_until_those_that_make_the_spike_remain() -> None:
    def spikes_without(needed: set[int]):  # type: ignore[no-untyped-def]
        return lambda without: not needed & set(without)

    rows = list(range(64))
    assert guilty(rows, spikes_without({41}))[0] == [41]
    found, trials = guilty(rows, spikes_without({3, 50}))
    assert {3, 50} <= set(found)
    assert trials == 2


def test_others_take_the_place_of_rows_that_are_left_out() -> None:
    def pairs(without: Sequence[int]) -> list[int]:
        return list(replacements(without, [5, 6, 7, 8]))

    assert pairs([5, 7]) == [5, 6, 7, 8]
    assert pairs([5, 6, 7]) == [5, 8, 6, 8, 7, 8]


def _step(value: float | None) -> RecordedStep:
    return RecordedStep(attempt=1, metrics={"train/loss": value})
