from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hostcore_builtin_plugins.callbacks.step_metrics import is_recorded, with_metrics
from hostcore_hookspecs import StepControl, StepResult


def test_steps_at_the_cadence_and_the_last_one_are_recorded(course: Callable[..., Any]) -> None:
    run = course(metric_every=4, total_steps=10)
    recorded = []
    for finished in range(10):
        run.to_step(finished)
        if is_recorded(run.ctx):
            recorded.append(finished + 1)
    assert recorded == [4, 8, 10]


def test_nothing_is_recorded_without_a_cadence(course: Callable[..., Any]) -> None:
    run = course(metric_every=0, total_steps=1)
    assert not is_recorded(run.ctx)


def test_adds_metrics_and_keeps_everything_else() -> None:
    control = StepControl(backoff_seconds=1.0)
    result = StepResult(metrics={"loss": 1.0}, debug={"a": 1}, control=control, weight=7)
    more = with_metrics(result, {"train/grad_norm": 2.0})
    assert more.metrics == {"loss": 1.0, "train/grad_norm": 2.0}
    assert (more.debug, more.control, more.weight) == ({"a": 1}, control, 7)
    assert result.metrics == {"loss": 1.0}, "the trainer may use its dictionary again"


@pytest.mark.parametrize("own", ["lr", "learning_rate", "train/lr"])
def test_what_the_trainer_reports_itself_stays(own: str) -> None:
    assert with_metrics(StepResult(metrics={own: 0.1}), {"train/lr": 0.2, "train/x": 1}).metrics == {
        own: 0.1,
        "train/x": 1,
    }


def test_a_result_of_another_class_keeps_its_attributes() -> None:
    loss = torch.tensor(1.0)
    more = with_metrics(SimpleNamespace(metrics={"loss": loss}, weight=3), {"train/x": 1})
    assert more.metrics["loss"] is loss
    assert (more.metrics["train/x"], more.weight, more.control, more.debug) == (1, 3, None, {})


@pytest.mark.parametrize("result", [None, 3.0, SimpleNamespace(metrics=[1])])
def test_what_is_no_result_is_left_to_the_host(result: Any) -> None:
    assert with_metrics(result, {"train/x": 1}) is result
