import math
import warnings
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


def test_a_flat_metric_is_no_improvement_without_a_margin_either(start: Start) -> None:
    callback, run = start(patience=2, min_delta=0.0)
    assert validate(callback, run, [1.0, 1.0, 1.0]) == [30]


def test_patience_1_stops_at_the_first_validation_that_is_no_improvement_and_not_before(start: Start) -> None:
    callback, run = start(patience=1)
    assert validate(callback, run, [5, 4, 3, 3]) == [40]


def test_an_improvement_by_the_margin_itself_is_none(start: Start) -> None:
    callback, run = start(patience=1, min_delta=0.5)
    assert validate(callback, run, [4.0, 3.25, 2.75]) == [30]


def test_small_improvements_add_up_against_the_last_one_that_counted(start: Start) -> None:
    callback, run = start(patience=2, min_delta=0.5)
    assert validate(callback, run, [4.0, 3.7, 3.4, 3.1, 2.8]) == []


def test_more_is_better_for_an_accuracy(start: Start) -> None:
    callback, run = start(patience=1, monitor="accuracy")
    assert validate(callback, run, [0.5, 0.6, 0.6], "val/accuracy") == [30]


def test_a_step_without_a_validation_is_not_judged_though_the_last_value_is_still_there(start: Start) -> None:
    callback, run = start(patience=1)
    validate(callback, run, [1.0])
    run.record(10, val__loss=1.0)
    for step in range(11, 20):
        callback.on_epoch_end(run.to_step(step), run.ctx)
    assert run.host.stops == []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_no_improvement_and_is_named(start: Start, value: float) -> None:
    callback, run = start(patience=3)
    assert validate(callback, run, [2.0, 3.0, value, 4.0]) == [40]
    (reason,) = run.host.stops
    assert reason.endswith("best 2 at step 10, now 4, no finite number in 1")


def test_a_metric_that_was_never_finite_stops_the_run_without_a_best(start: Start) -> None:
    callback, run = start(patience=2)
    assert validate(callback, run, [math.nan, math.nan]) == [20]
    assert run.host.stops == ["val/loss was no finite number in any of 2 validations"]
    assert (run.host.best, run.host.restores) == ([], [])


def test_a_first_value_after_nan_is_an_improvement(start: Start) -> None:
    callback, run = start(patience=2)
    assert validate(callback, run, [math.nan, 3.0, 4.0]) == []


def test_a_metric_that_is_not_reported_any_more_is_no_improvement(start: Start) -> None:
    callback, run = start(patience=2)
    assert validate(callback, run, [2.0]) == []
    assert validate(callback, run, [2.0, 2.0], "val/other") == [30]
    assert run.host.stops[0].endswith("now nan, no finite number in 2")


def test_a_monitor_that_the_first_validation_lacks_is_refused_with_what_there_is(start: Start) -> None:
    callback, run = start(monitor="val/acuracy", mode="max")
    with pytest.raises(InvalidSettings) as caught:
        callback.on_validation_end({"val/accuracy": 0.5, "val/loss": 1.0}, run.to_step(10), run.ctx)
    error = caught.value
    assert (error.pointer, error.hint) == ("/monitor", "did you mean 'val/accuracy'?")
    assert error.message == ("the validation reports no metric 'val/acuracy'; it reports 'val/accuracy', 'val/loss'")


def test_each_best_value_is_kept_as_a_checkpoint_and_restored_when_it_stops(start: Start) -> None:
    callback, run = start(patience=2, min_delta=0.5)
    validate(callback, run, [4.0, 3.0, 2.9, 3.5])
    assert [(best.metric, best.value, best.step) for best in run.host.best] == [
        ("val/loss", 4.0, 10), ("val/loss", 3.0, 20), ("val/loss", 2.9, 30)
    ]  # fmt: skip
    assert run.host.restores == [(30, "val/loss was best there: 2.9")], "by however little it was best"


def test_the_best_is_restored_at_the_last_step_too(start: Start) -> None:
    callback, run = start(patience=5, total_steps=30)
    assert validate(callback, run, [4.0, 3.0, 3.5]) == []
    assert run.host.restores == [(20, "val/loss was best there: 3")]


def test_at_the_last_step_it_restores_and_does_not_ask_to_stop_what_is_over(start: Start) -> None:
    callback, run = start(patience=1, total_steps=20)
    validate(callback, run, [3.0, 3.5])
    assert (run.host.stops, len(run.host.restores)) == ([], 1)


def test_nothing_is_restored_when_the_last_weights_are_the_best(start: Start) -> None:
    callback, run = start(total_steps=20)
    validate(callback, run, [3.0, 2.0])
    assert run.host.restores == []


def test_nothing_is_kept_or_restored_when_that_is_not_asked_for(start: Start) -> None:
    callback, run = start(patience=1, restore_best=False)
    assert validate(callback, run, [3.0, 3.5]) == [20]
    assert (run.host.best, run.host.restores) == ([], [])


def test_a_best_whose_checkpoint_is_gone_is_not_restored_and_that_is_said(start: Start) -> None:
    callback, run = start(patience=1)
    validate(callback, run, [3.0])
    run.written(5, 15)
    with pytest.warns(UserWarning, match="there is no checkpoint of step 10, where val/loss was best"):
        assert validate(callback, run, [3.5]) == [20]
    assert run.host.restores == []


def test_a_best_whose_checkpoint_is_still_being_written_is_restored(start: Start) -> None:
    callback, run = start(patience=1)
    run.written(5)
    validate(callback, run, [3.0, 3.5])
    assert [step for step, _ in run.host.restores] == [10]


def test_one_rank_that_lacks_the_checkpoint_keeps_all_from_restoring(start: Start) -> None:
    callback, run = start(patience=1)
    run.host.any_rank = lambda flag: True  # another one
    with pytest.warns(UserWarning, match="no checkpoint of step 10"):
        validate(callback, run, [3.0, 3.5])
    assert run.host.restores == []


def test_best_value_and_patience_come_back_when_a_run_resumes(start: Start) -> None:
    first, run = start(patience=3)
    validate(first, run, [2.0, 3.0, math.nan])
    second, again = start(patience=3)
    second.load_callback_state(first.callback_state())
    again.to_step(30)
    again.written(10, 30)
    assert validate(second, again, [2.5]) == [40]
    assert again.host.stops == [
        "val/loss has not improved in 3 validations: best 2 at step 10, now 2.5, no finite number in 1"
    ]
    assert again.host.restores == [(10, "val/loss was best there: 2")]


def test_a_best_of_another_run_is_compared_with_but_cannot_be_restored(start: Start) -> None:
    first, run = start(patience=1)
    validate(first, run, [2.0])
    second, again = start(patience=1)
    second.load_callback_state(first.callback_state())
    second.on_train_begin(again.ctx)
    again.to_step(10)
    with pytest.warns(UserWarning, match="no checkpoint of step 10"):
        assert validate(second, again, [2.5]) == [20]


def test_several_at_once_count_for_themselves(start: Start) -> None:
    losses, run = start(patience=3)
    accuracies = EarlyStopping(settings=EarlyStopping.Settings(monitor="val/accuracy", patience=2))
    for step, (loss, accuracy) in enumerate([(3.0, 0.7), (2.0, 0.6), (1.0, 0.5)], start=1):
        metrics = {"val/loss": loss, "val/accuracy": accuracy}
        for callback in (losses, accuracies):
            callback.on_validation_end(metrics, run.to_step(10 * step), run.ctx)
    assert run.host.stops == ["val/accuracy has not improved in 2 validations: best 0.7 at step 10, now 0.5"]


def test_a_training_metric_is_judged_at_the_end_of_an_epoch_by_its_mean(start: Start) -> None:
    callback, run = start(monitor="train/loss", patience=1)
    for step, loss in [(2, 4.0), (4, 2.0)]:
        run.record(step, train__loss=loss)
    callback.on_epoch_end(run.to_step(5), run.ctx)
    assert [best.value for best in run.host.best] == [3.0]
    run.record(6, train__loss=1.0)
    run.record(8, train__loss=5.5)
    callback.on_validation_end({"val/loss": 1.0}, run.to_step(9), run.ctx)
    callback.on_epoch_end(run.to_step(10), run.ctx)
    assert run.host.stops == ["train/loss has not improved in 1 epoch: best 3 at step 5, now 3.25"]


def test_a_training_metric_that_was_not_recorded_in_an_epoch_is_not_judged(start: Start) -> None:
    callback, run = start(monitor="train/loss", patience=1)
    callback.on_epoch_end(run.to_step(3), run.ctx)
    run.record(6, train__loss=1.0)
    callback.on_epoch_end(run.to_step(6), run.ctx)
    callback.on_epoch_end(run.to_step(9), run.ctx)
    callback.on_epoch_end(run.to_step(12), run.ctx)
    assert run.host.stops == []


def test_an_epoch_that_ends_again_after_a_resume_is_judged_once(start: Start) -> None:
    first, run = start(monitor="train/loss", patience=1)
    run.record(6, train__loss=1.0)
    first.on_epoch_end(run.run_state, run.ctx)
    second, again = start(monitor="train/loss", patience=1)
    second.load_callback_state(first.callback_state())
    again.record(6, train__loss=1.0)
    second.on_epoch_end(again.run_state, again.ctx)
    assert again.host.stops == []


def test_a_training_metric_that_was_never_recorded_is_refused_once_others_were(start: Start) -> None:
    callback, run = start(monitor="train/los", mode="min")
    run.record(5, quality__bleu=0.5)  # of a validation
    callback.on_epoch_end(run.run_state, run.ctx)  # the first training metrics come at step 10
    run.record(10, train__loss=1.0, val__los=2.0)
    with pytest.raises(
        InvalidSettings, match=r"the training reports no metric 'train/los'; it reports 'quality/bleu', 'train/loss'$"
    ):
        callback.on_epoch_end(run.run_state, run.ctx)


def test_no_warning_is_given_in_an_ordinary_run(start: Start) -> None:
    callback, run = start(patience=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        validate(callback, run, [3.0, 3.5, 3.5])
