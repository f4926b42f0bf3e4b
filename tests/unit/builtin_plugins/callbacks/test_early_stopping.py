import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hostcore_builtin_plugins.callbacks.early_stopping import EarlyStopping
from hostcore_hookspecs import InvalidSettings

Start = Callable[..., Any]


@pytest.fixture
def start(course: Callable[..., Any]) -> Start:
    """``start(patience=2)``: a callback at the beginning of a run that validates every 10 steps."""

    def make(total_steps: int = 1000, **settings: Any) -> tuple[EarlyStopping, Any]:
        run = course(total_steps=total_steps)
        callback = EarlyStopping(settings=EarlyStopping.Settings(**settings))
        callback.on_train_begin(run.ctx)
        return callback, run

    return make


def validate(callback: EarlyStopping, run: Any, values: Sequence[float], name: str = "val/loss") -> list[int]:
    """Validate at the next multiples of 10 until it asks to stop; the steps at which it asked."""
    asked = []
    for value in values:
        step = run.run_state.step + 10
        before = len(run.host.stops)
        callback.on_validation_end({name: value}, run.to_step(step), run.ctx)
        if len(run.host.stops) > before:
            asked.append(step)
    return asked


def test_stops_at_the_last_of_so_many_validations_in_a_row_without_improvement(start: Start) -> None:
    callback, run = start(patience=3)
    assert validate(callback, run, [5, 4, 4.5, 3, 3.5, 3.2, 3.1]) == [70]
    assert run.host.stops == ["val/loss has not improved in 3 validations: best 3 at step 40, now 3.1"]


@pytest.mark.parametrize(
    ("settings", "values", "asked"),
    [
        pytest.param({"patience": 2, "min_delta": 0.0}, [1.0, 1.0, 1.0], [30], id="flat"),
        pytest.param({"patience": 1}, [5, 4, 3, 3], [40], id="patience 1"),
        pytest.param({"patience": 1, "min_delta": 0.5}, [4.0, 3.25, 2.75], [30], id="by the margin itself"),
        pytest.param({"patience": 2, "min_delta": 0.5}, [4.0, 3.7, 3.4, 3.1, 2.8], [], id="small ones add up"),
        pytest.param({"patience": 2}, [math.nan, 3.0, 4.0], [], id="a first value after NaN"),
    ],
)
def test_an_improvement_is_one_over_the_best_by_more_than_the_margin(
    start: Start, settings: dict[str, Any], values: list[float], asked: list[int]
) -> None:
    callback, run = start(**settings)
    assert validate(callback, run, values) == asked


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_or_not_reported_any_more_is_no_improvement_and_is_named(start: Start, value: float) -> None:
    callback, run = start(patience=3)
    assert validate(callback, run, [2.0, 3.0, value, 4.0]) == [40]
    assert run.host.stops[0].endswith("best 2 at step 10, now 4, no finite number in 1")
    callback, run = start(patience=2)
    validate(callback, run, [2.0])
    assert validate(callback, run, [2.0, 2.0], "val/other") == [30]
    assert run.host.stops[0].endswith("now nan, no finite number in 2")


@pytest.mark.parametrize(("written", "others"), [([5, 15], False), ([], True)])
def test_a_best_whose_checkpoint_a_rank_lacks_is_not_restored_and_that_is_said(
    start: Start, written: list[int], others: bool
) -> None:
    callback, run = start(patience=1)
    validate(callback, run, [3.0])
    run.written(*written)
    run.host.others = others
    with pytest.warns(UserWarning, match="there is no checkpoint of step 10, where val/loss was best"):
        assert validate(callback, run, [3.5]) == [20]
    assert run.host.restores == []


def test_a_best_whose_checkpoint_is_still_being_written_is_restored(start: Start) -> None:
    callback, run = start(patience=1)
    run.written(5)
    validate(callback, run, [3.0, 3.5])
    assert [step for step, _ in run.host.restores] == [10]


def test_a_best_of_another_run_is_compared_with_but_cannot_be_restored(start: Start) -> None:
    first, run = start(patience=1)
    validate(first, run, [2.0])
    second, again = start(patience=1)
    second.load_callback_state(first.callback_state())
    second.on_train_begin(again.ctx)
    again.to_step(10)
    with pytest.warns(UserWarning, match="no checkpoint of step 10"):
        assert validate(second, again, [2.5]) == [20]


def test_a_training_metric_is_judged_once_in_each_epoch_that_recorded_it(start: Start) -> None:
    callback, run = start(monitor="train/loss", patience=1)
    callback.on_epoch_end(run.to_step(3), run.ctx)
    run.record(6, train__loss=1.0)
    for step in (6, 9, 12):
        callback.on_epoch_end(run.to_step(step), run.ctx)
    assert run.host.stops == []
    resumed, again = start(monitor="train/loss", patience=1)
    resumed.load_callback_state(callback.callback_state())
    again.record(6, train__loss=1.0)
    resumed.on_epoch_end(again.run_state, again.ctx)  # which ends again
    assert again.host.stops == []
    callback, run = start(monitor="train/reward", mode="max", patience=1)
    for step, reward in ((6, 5.0), (8, 3.0)):
        run.record(step, reward=reward)  # without the word train
        callback.on_epoch_end(run.run_state, run.ctx)
    assert len(run.host.stops) == 1


def test_a_training_metric_that_was_never_recorded_is_refused_once_others_were(start: Start) -> None:
    callback, run = start(monitor="train/los", mode="min")
    run.record(5, quality__bleu=0.5)  # of a validation
    callback.on_epoch_end(run.run_state, run.ctx)  # the first training metrics come at step 10
    run.record(10, train__loss=1.0, val__los=2.0)
    with pytest.raises(
        InvalidSettings, match=r"the training reports no metric 'train/los'; it reports 'quality/bleu', 'train/loss'$"
    ):
        callback.on_epoch_end(run.run_state, run.ctx)
