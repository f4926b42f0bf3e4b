import math
from collections.abc import Callable
from typing import Any

import pytest

from hostcore.job.forms import structure
from hostcore_builtin_plugins.callbacks.best_checkpoint import BestCheckpoint
from hostcore_builtin_plugins.callbacks.early_stopping import EarlyStopping
from hostcore_builtin_plugins.callbacks.monitor import Monitor
from hostcore_hookspecs import HostcoreError, InvalidSettings


@pytest.mark.parametrize(
    ("given", "name", "of_training"),
    [
        ("loss", "val/loss", False),
        ("val/loss", "val/loss", False),
        ("quality/error", "quality/error", False),
        ("train/loss", "train/loss", True),
    ],
)
def test_a_name_says_where_the_metric_comes_from(given: str, name: str, of_training: bool) -> None:
    monitor = Monitor.of(given, "auto")
    assert (monitor.name, monitor.of_training) == (name, of_training)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("val/loss", "min"),
        ("val/Loss", "min"),
        ("word_error_rate", "min"),
        ("val/perplexity", "min"),
        ("val/top5_accuracy", "max"),
    ],
)
def test_auto_knows_the_way_of_common_metrics(name: str, mode: str) -> None:
    assert Monitor.of(name, "auto").mode == mode


@pytest.mark.parametrize("name", ["val/f1", "loss/score", "accuracy_loss"])
def test_auto_refuses_a_name_that_does_not_say_which_way_is_better(name: str) -> None:
    with pytest.raises(InvalidSettings, match=r"nothing says whether .* is better low or high") as caught:
        Monitor.of(name, "auto")
    assert caught.value.pointer == "/mode"
    assert Monitor.of(name, "max").mode == "max"


def test_a_metric_of_the_test_cannot_be_watched() -> None:
    with pytest.raises(InvalidSettings, match="'test/loss' is known after the training alone"):
        Monitor.of("test/loss", "min")


@pytest.mark.parametrize(
    ("monitor", "job", "message"),
    [
        ("val/loss", {"validate_every": 0}, "there is never a val/loss: the job never validates"),
        ("train/loss", {"metric_every": 0}, "there is never a train/loss: the job's metric_every is 0"),
    ],
)
@pytest.mark.parametrize("kind", [EarlyStopping, BestCheckpoint])
def test_a_job_that_will_never_have_the_metric_is_refused_before_the_first_step(
    course: Callable[..., Any], kind: Any, monitor: str, job: dict[str, int], message: str
) -> None:
    callback = kind(settings=kind.Settings(monitor=monitor))
    with pytest.raises(InvalidSettings) as caught:
        callback.on_train_begin(course(**job).ctx)
    assert (caught.value.message, caught.value.pointer) == (message, "/monitor")
    callback.on_train_begin(course(metric_every=1, validate_every="epoch").ctx)


def test_better_is_strict_and_by_more_than_the_margin() -> None:
    low, high = Monitor.of("loss", "min"), Monitor.of("loss", "max")
    assert (low.better(1.0, 2.0), low.better(2.0, 2.0), low.better(3.0, 2.0)) == (True, False, False)
    assert (high.better(1.0, 2.0), high.better(2.0, 2.0), high.better(3.0, 2.0)) == (False, False, True)
    assert (low.better(1.5, 2.0, by=0.5), low.better(1.25, 2.0, by=0.5)) == (False, True)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nothing_but_a_finite_number_is_better(value: float) -> None:
    for mode in ("min", "max"):
        assert not Monitor.of("loss", mode).better(value, None)
        assert not Monitor.of("loss", mode).better(value, 1.0)


def test_a_training_metric_may_be_recorded_without_the_word_train(course: Callable[..., Any]) -> None:
    run = course()
    run.record(4, reward=3.0)
    run.record(8, reward=5.0)
    monitor = Monitor.of("train/reward", "max")
    assert monitor.in_training(run.run_state, run.ctx, after=0) == 4.0
    assert monitor.in_training(run.run_state, run.ctx, after=4) == 5.0
    assert monitor.in_training(run.run_state, run.ctx, after=8) is None


@pytest.mark.parametrize(
    ("settings", "pointer", "message"),
    [
        ({"patience": 0}, "/patience", "expected an integer of at least 1, found 0"),
        ({"patience": 2.5}, "/patience", "expected an integer of at least 1, found 2.5"),
        ({"min_delta": -0.1}, "/min_delta", "expected a number of at least 0, found -0.1"),
        ({"mode": "minimum"}, "/mode", 'expected "auto", "min" or "max", found "minimum"'),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], pointer: str, message: str) -> None:
    with pytest.raises(HostcoreError) as caught:
        structure(EarlyStopping.Settings, settings)
    (error,) = caught.value.errors
    assert (error.pointer, error.message) == (pointer, message)
