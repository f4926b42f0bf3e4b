from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from wrapped_step import wrapped_step

from hostcore_builtin_plugins.callbacks.lr_monitor import LrMonitor
from hostcore_hookspecs import InvalidSettings, StepResult


@pytest.fixture
def run(course: Callable[..., Any]) -> Any:
    return course(metric_every=2)


def begun(run: Any, optimizer: Any, **settings: bool) -> LrMonitor:
    callback = LrMonitor(settings=LrMonitor.Settings(**settings))
    run.ctx.register_optimizer(optimizer)
    callback.on_train_begin(run.ctx)
    return callback


def around(callback: LrMonitor, run: Any, train_step: Callable[[], Any]) -> dict[str, Any]:
    """Metrics of a step that the callback wraps; the step is counted afterwards."""
    result = wrapped_step(callback, run.ctx, train_step)
    run.to_step(run.run_state.step + 1)
    return dict(result.metrics)


def parameters(count: int = 1) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.zeros(1)) for _ in range(count)]


@pytest.mark.parametrize("scheduled", ["before", "after"])
def test_the_rate_is_the_one_that_the_update_was_made_with(run: Any, scheduled: str) -> None:
    optimizer = torch.optim.SGD(parameters(), lr=1.0)
    callback = begun(run, optimizer)
    used = []

    def halve() -> None:
        optimizer.param_groups[0]["lr"] /= 2

    def step() -> StepResult:
        if scheduled == "before":
            halve()
        used.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if scheduled == "after":
            halve()
        return StepResult()

    recorded = [around(callback, run, step).get("train/lr") for _ in range(4)]
    assert recorded == [None, used[1], None, used[3]]


def test_a_tensor_is_recorded_as_it_was(run: Any) -> None:
    rate = torch.tensor(0.5)
    optimizer = torch.optim.Adam(parameters(), lr=rate, capturable=False, foreach=False)
    callback = begun(run, optimizer)
    run.to_step(1)

    def step() -> StepResult:
        optimizer.step()
        rate.fill_(0.25)
        return StepResult()

    assert float(around(callback, run, step)["train/lr"]) == 0.5


def test_a_step_without_an_update_has_the_present_rate_and_so_has_an_optimizer_that_is_not_of_torch(run: Any) -> None:
    for optimizer in (torch.optim.SGD(parameters(), lr=0.3), SimpleNamespace(param_groups=[{"lr": 0.3}])):
        callback = begun(run, optimizer)
        run.to_step(1)
        assert around(callback, run, StepResult) == {"train/lr": 0.3}


@pytest.mark.parametrize("own", ["lr", "learning_rate", "train/lr"])
def test_a_rate_that_the_trainer_reports_itself_stays(run: Any, own: str) -> None:
    callback = begun(run, torch.optim.SGD(parameters(), lr=0.3))
    run.to_step(1)
    assert around(callback, run, lambda: StepResult(metrics={own: 0.1})) == {own: 0.1}


@pytest.mark.parametrize(
    ("names", "recorded"),
    [((None, None), ("0", "1")), (("body", "head"), ("body", "head")), (("same", "same"), ("0", "1"))],
)
def test_several_groups_go_by_their_numbers_or_their_names(run: Any, names: Any, recorded: tuple[str, str]) -> None:
    groups = [
        {"params": [one], "lr": rate, **({"name": name} if name else {})}
        for one, rate, name in zip(parameters(2), (0.1, 0.2), names, strict=True)
    ]
    callback = begun(run, torch.optim.SGD(groups))
    run.to_step(1)
    assert around(callback, run, StepResult) == dict(
        zip([f"train/lr/{one}" for one in recorded], (0.1, 0.2), strict=True)
    )


def test_momentum_and_weight_decay_are_recorded_on_request(run: Any) -> None:
    callback = begun(run, torch.optim.AdamW(parameters(), lr=0.1, weight_decay=0.01), momentum=True, weight_decay=True)
    run.to_step(1)
    assert around(callback, run, StepResult) == {"train/lr": 0.1, "train/momentum": 0.9, "train/weight_decay": 0.01}
    callback = begun(run, torch.optim.SGD(parameters(), lr=0.1, momentum=0.5), momentum=True)
    run.to_step(1)
    assert around(callback, run, StepResult) == {"train/lr": 0.1, "train/momentum": 0.5}


def test_what_the_optimizer_does_not_have_cannot_be_asked_for(run: Any) -> None:
    with pytest.raises(InvalidSettings, match="Adagrad has no momentum") as caught:
        begun(run, torch.optim.Adagrad(parameters()), momentum=True)
    assert caught.value.pointer == "/momentum"


def test_nothing_stays_on_the_optimizer_even_when_a_step_raises(run: Any) -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    callback = begun(run, optimizer)
    run.to_step(1)
    wrapper = callback.train_step(run.ctx)
    next(wrapper)
    assert len(optimizer._optimizer_step_pre_hooks) == 1
    with pytest.raises(ValueError, match="the loss has exploded"):
        wrapper.throw(ValueError("the loss has exploded"))
    assert len(optimizer._optimizer_step_pre_hooks) == 0
