import math
from collections.abc import Callable
from typing import Any

import pytest

from hostcore_builtin_plugins.callbacks.best_checkpoint import BestCheckpoint
from hostcore_hookspecs import Best, InvalidSettings


def made(**settings: Any) -> BestCheckpoint:
    return BestCheckpoint(settings=BestCheckpoint.Settings(**settings))


def asked(callback: BestCheckpoint, run: Any, values: list[float], name: str = "val/loss") -> list[int]:
    """The steps at which it asked for a checkpoint, of validations every ten steps."""
    before = len(run.host.best)
    for value in values:
        callback.on_validation_end({name: value}, run.to_step(run.run_state.step + 10), run.ctx)
    return [best.step for best in run.host.best[before:]]


def test_asks_for_a_checkpoint_whenever_the_metric_was_never_better(course: Callable[..., Any]) -> None:
    run = course()
    assert asked(made(), run, [3.0, 2.0, 2.0, 2.5, 1.0]) == [10, 20, 50]
    assert run.host.best[-1] == Best(metric="val/loss", value=1.0, step=50)


def test_a_value_that_is_not_finite_never_wins(course: Callable[..., Any]) -> None:
    values = [math.nan, -math.inf, 3.0, math.nan, 2.0]
    assert asked(made(), course(), values) == [30, 50]
    assert asked(made(mode="max"), course(), [math.inf, 1.0]) == [20]


def test_a_monitor_that_the_first_validation_lacks_is_refused_and_a_later_gap_is_not(
    course: Callable[..., Any],
) -> None:
    run = course()
    with pytest.raises(InvalidSettings, match=r"no metric 'val/loss'; it reports 'val/los'"):
        made().on_validation_end({"val/los": 1.0}, run.to_step(10), run.ctx)
    with pytest.raises(InvalidSettings, match=r"no metric 'val/loss'; it reports none"):
        made().on_validation_end({}, run.to_step(10), run.ctx)
    callback = made()
    assert asked(callback, run, [1.0]) == [20]
    assert asked(callback, run, [0.5], "val/other") == []
