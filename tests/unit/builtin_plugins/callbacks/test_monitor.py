"""``best-checkpoint``, and the monitor that it has in common with ``early-stopping``."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from hostcore.job.forms import structure
from hostcore_builtin_plugins.callbacks.best_checkpoint import BestCheckpoint
from hostcore_builtin_plugins.callbacks.early_stopping import EarlyStopping
from hostcore_hookspecs import Best, HostcoreError, InvalidSettings

Course = Callable[..., Any]


def made(**settings: Any) -> BestCheckpoint:
    return BestCheckpoint(settings=BestCheckpoint.Settings(**settings))


def asked(callback: BestCheckpoint, run: Any, values: list[float], name: str = "val/loss") -> list[int]:
    """The steps at which it asked for a checkpoint, of validations every ten steps."""
    before = len(run.host.best)
    for value in values:
        callback.on_validation_end({name: value}, run.to_step(run.run_state.step + 10), run.ctx)
    return [best.step for best in run.host.best[before:]]


def test_asks_for_a_checkpoint_whenever_the_metric_was_never_better(course: Course) -> None:
    run = course()
    assert asked(made(), run, [3.0, 2.0, 2.0, 2.5, 1.0]) == [10, 20, 50]
    assert run.host.best[-1] == Best(metric="val/loss", value=1.0, step=50)
    assert asked(made(), course(), [math.nan, -math.inf, 3.0, math.nan, 2.0]) == [30, 50]
    assert asked(made(mode="max"), course(), [math.inf, 1.0]) == [20]


def test_a_monitor_that_the_first_validation_lacks_is_refused_and_a_later_gap_is_not(course: Course) -> None:
    run = course()
    for found, shown in (({"val/los": 1.0}, "'val/los'"), ({}, "none")):
        with pytest.raises(InvalidSettings, match=rf"no metric 'val/loss'; it reports {shown}"):
            made().on_validation_end(found, run.to_step(10), run.ctx)
    callback = made()
    assert asked(callback, run, [1.0]) == [20]
    assert asked(callback, run, [0.5], "val/other") == []


@pytest.mark.parametrize(
    ("given", "name", "better"),
    [
        *(("loss", "val/loss", "low"), ("val/loss", "val/loss", "low"), ("quality/error", "quality/error", "low")),
        *(("Loss", "val/Loss", "low"), ("word_error_rate", "val/word_error_rate", "low")),
        *(("val/perplexity", "val/perplexity", "low"), ("val/top5_accuracy", "val/top5_accuracy", "high")),
    ],
)
def test_auto_knows_the_metric_and_which_way_is_better(course: Course, given: str, name: str, better: str) -> None:
    assert asked(made(monitor=given), course(), [2.0, 1.0, 3.0], name) == ([10, 20] if better == "low" else [10, 30])


@pytest.mark.parametrize("name", ["val/f1", "loss/score", "val/accuracy_loss"])
def test_auto_refuses_a_name_that_does_not_say_which_way_is_better(course: Course, name: str) -> None:
    with pytest.raises(InvalidSettings, match=r"nothing says whether .* is better low or high") as caught:
        made(monitor=name)
    assert caught.value.pointer == "/mode"
    assert asked(made(monitor=name, mode="max"), course(), [1.0, 2.0], name) == [10, 20]


def test_a_metric_of_the_test_cannot_be_watched() -> None:
    with pytest.raises(InvalidSettings, match="'test/loss' is known after the training alone"):
        made(monitor="test/loss", mode="min")


@pytest.mark.parametrize(
    ("monitor", "job", "message"),
    [
        ("val/loss", {"validate_every": 0}, "there is never a val/loss: the job never validates"),
        ("train/loss", {"metric_every": 0}, "there is never a train/loss: the job's metric_every is 0"),
    ],
)
@pytest.mark.parametrize("kind", [EarlyStopping, BestCheckpoint])
def test_a_job_that_will_never_have_the_metric_is_refused_before_the_first_step(
    course: Course, kind: Any, monitor: str, job: dict[str, int], message: str
) -> None:
    callback = kind(settings=kind.Settings(monitor=monitor))
    with pytest.raises(InvalidSettings) as caught:
        callback.on_train_begin(course(**job).ctx)
    assert (caught.value.message, caught.value.pointer) == (message, "/monitor")
    callback.on_train_begin(course(metric_every=1, validate_every="epoch").ctx)


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
