import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from wrapped_step import wrapped_step

from hostcore_builtin_plugins.callbacks import nonfinite
from hostcore_builtin_plugins.callbacks.nonfinite import Seen, first_nonfinite, largest_element
from hostcore_builtin_plugins.callbacks.nonfinite_guard import NonfiniteGuard, NotFinite
from hostcore_hookspecs import HostcoreError, InvalidSettings, StepContext, StepResult

Training = Callable[..., Any]

NAN, INF = float("nan"), float("inf")


def guard(training: Any, action: str = "stop", **settings: Any) -> NonfiniteGuard:
    callback = NonfiniteGuard(settings=NonfiniteGuard.Settings(action=action, **settings))
    callback.on_train_begin(ctx=training.ctx)
    return callback


def assert_equal(before: list[torch.Tensor], after: list[torch.Tensor]) -> None:
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize(
    "optimizer",
    [partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.1)]
    + [partial(torch.optim.AdamW, lr=0.1, weight_decay=0.1, **how) for how in ({}, {"fused": True}, {"foreach": True})],
    ids=["SGD", "AdamW", "AdamW fused", "AdamW foreach"],
)
@pytest.mark.parametrize("factor", [NAN, INF])
def test_a_skipped_update_leaves_parameters_momentum_and_weight_decay_alone(
    training: Training, optimizer: Any, factor: float
) -> None:
    run = training(optimizer)
    callback = guard(run, "skip")
    run.step(callback)
    before = run.state()
    result = run.step(callback, factor)
    assert_equal(before, run.state())
    assert result.metrics["train/skipped_steps"] == 1
    assert run.step(callback).metrics["train/skipped_steps"] == 1
    assert any(not torch.equal(one, other) for one, other in zip(before, run.state(), strict=True))


def test_an_update_is_skipped_when_another_rank_must_not_make_it(
    training: Training, caplog: pytest.LogCaptureFixture
) -> None:
    run = training()
    callback = guard(run, "skip")
    before, run.host.others = run.state(), True
    run.step(callback)
    assert_equal(before, run.state())
    assert "something was not finite on another rank at step 1" in caplog.text


def test_a_loss_that_is_nan_while_the_gradients_are_finite_is_told_and_counts_as_one_in_a_row(
    training: Training, caplog: pytest.LogCaptureFixture
) -> None:
    run = training()
    callback = guard(run, "skip", max_in_a_row=2)
    assert run.step(callback, loss=NAN).metrics["train/skipped_steps"] == 0
    assert "train/loss was nan at step 1, but the gradients were finite, so the update was made" in caplog.text
    with pytest.raises(NotFinite, match="as at 2 steps in a row"):
        run.step(callback, loss=NAN)


def test_gradients_that_are_not_finite_are_found_when_the_loss_is(training: Training) -> None:
    run = training()
    with pytest.raises(NotFinite, match="the largest element of the gradients was inf at step 1"):
        run.step(guard(run), 1e38 * 1e10, loss=1.0)


@pytest.mark.parametrize(
    ("dtype", "factor"),
    [(torch.float32, 1e25), (torch.float64, 1e60)],
    ids=["whose squares are beyond float32", "beyond float32 in float64"],
)
def test_large_gradients_are_finite(training: Training, dtype: torch.dtype, factor: float) -> None:
    run = training(dtype=dtype)
    run.step(guard(run), factor)
    assert torch.isfinite(run.model.weight).all()


@pytest.mark.parametrize("factor", [1.0, NAN])
def test_sparse_gradients_are_watched(training: Training, factor: float) -> None:
    run = training()
    run.model = embedding = torch.nn.Embedding(10, 2, sparse=True)
    run.optimizer = torch.optim.SGD(embedding.parameters(), lr=0.1)
    run.ctx.register_optimizer(run.optimizer)
    before = embedding.weight.detach().clone()

    def train_step() -> StepResult:
        (embedding(torch.tensor([3, 3, 5])).sum() * factor).backward()
        run.optimizer.step()
        return StepResult(metrics={"loss": 1.0})

    wrapped_step(guard(run, "skip", metrics=()), run.ctx, train_step)
    assert torch.equal(before, embedding.weight) == math.isnan(factor)


@pytest.mark.parametrize("result", [StepResult(metrics={"loss": 1.0}), None])
def test_a_step_without_any_gradients_or_metrics_is_no_finding(training: Training, result: StepResult | None) -> None:
    run = training()

    def train_step() -> StepResult | None:
        run.optimizer.step()
        return result

    wrapped_step(guard(run, metrics=()), run.ctx, train_step)


def test_nothing_is_read_before_it_is_due_and_the_first_bad_step_is_named(training: Training) -> None:
    run = training(metric_every=0)
    callback = guard(run, check_every=4, metrics=("train/loss", "accuracy"))
    for factor in (1.0, NAN, 1.0):
        run.step(callback, factor, loss=torch.tensor(factor), accuracy=1)
    assert run.host.votes == []
    with pytest.raises(NotFinite, match="train/loss was nan at step 2"):
        run.step(callback, loss=1.0, accuracy=1)


@pytest.mark.parametrize("moment", ["on_validation_begin", "on_epoch_end", "on_stop_requested"])
def test_what_was_seen_is_read_before_the_state_may_be_kept(training: Training, moment: str) -> None:
    run = training(metric_every=0)
    callback = guard(run, check_every=100)
    getattr(callback, moment)(ctx=run.ctx)
    run.step(callback, NAN)
    with pytest.raises(NotFinite, match="at step 1"):
        getattr(callback, moment)(ctx=run.ctx)


def test_what_was_seen_is_read_before_every_checkpoint_and_at_the_end(training: Training) -> None:
    run = training(metric_every=0, checkpoint_every=3)
    callback = guard(run, check_every=1000)
    votes = []
    for step in (*range(6), 99):
        run.move(step=step)
        run.step(callback)
        votes.append(len(run.host.votes))
    assert votes == [0, 0, 1, 1, 1, 2, 3]


def test_every_rank_names_the_ranks_that_found_it(training: Training) -> None:
    run = training(context={"world_size": 3, "rank": 1})
    with pytest.raises(NotFinite, match=r"train/loss was nan at step 1 \(found on rank 1\)"):
        run.step(guard(run), loss=NAN)
    run.host.others = True
    with pytest.raises(
        NotFinite, match=r"something watched was not finite at step 1 or before \(found on ranks 0, 1, 2\)"
    ):
        run.step(guard(run))


def test_what_was_counted_in_a_row_comes_back_on_resume(training: Training) -> None:
    run = training()
    callback = guard(run, "skip", max_in_a_row=3)
    for _ in range(2):
        run.step(callback, NAN)
    resumed = guard(run, "skip", max_in_a_row=3)
    resumed.load_callback_state(callback.callback_state())
    with pytest.raises(NotFinite, match="as at 3 steps in a row"):
        run.step(resumed, NAN)


def test_a_checkpoint_that_did_not_help_is_not_gone_back_to_again(training: Training) -> None:
    run = training()
    callback = guard(run, "roll-back", max_roll_backs=9)
    run.written(2, 5)
    run.step(callback, loss=NAN)
    run.step(callback, loss=1.0)
    run.step(callback, loss=NAN)  # 5 was fine
    run.step(callback, loss=NAN)
    assert [step for step, _ in run.host.restores] == [5, 5, 2]
    with pytest.raises(NotFinite, match="and there is no checkpoint to go back to"):
        run.step(callback, loss=NAN)


def test_only_so_many_roll_backs_are_made_over_all_attempts(training: Training) -> None:
    run = training()
    run.written(5)
    callback = guard(run, "roll-back", max_roll_backs=2)
    for _ in range(2):
        run.step(callback, loss=NAN)
        run.step(callback, loss=1.0)
        state = callback.callback_state()
        callback = guard(run, "roll-back", max_roll_backs=2)
        callback.load_callback_state(state)
    with pytest.raises(NotFinite, match="at step 5, after 2 roll-backs"):
        run.step(callback, loss=NAN)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("action", ["stop", "skip"])
def test_steps_that_the_gradient_scaler_skips_are_normal_unless_the_loss_is_not_finite(
    training: Training, action: str, fused: bool
) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**100)
    run = training(partial(torch.optim.Adam, fused=fused), context={"scaler": scaler})
    callback = guard(run, action)
    run.step(callback, 1e-30)
    before = run.state()
    result = run.step(callback, 1e30, loss=1.0)
    assert_equal(before, run.state())
    assert scaler.get_scale() == 2.0**99
    assert result.metrics.get("train/skipped_steps", 0) == 0
    if action == "skip":
        assert [run.step(callback, *factor).metrics["train/skipped_steps"] for factor in ((NAN,), ())] == [1, 1]


def test_a_gradient_scaler_that_has_nothing_left_to_lower_fails_the_run(training: Training) -> None:
    run = training(context={"scaler": torch.amp.GradScaler("cpu", init_scale=2.0**-13)})
    callback = guard(run)
    run.step(callback, INF, loss=1.0)
    with pytest.raises(NotFinite, match="the scale of the gradient scaler"):
        run.step(callback, INF, loss=1.0)


def test_a_metric_that_is_no_number_is_left_to_the_host_to_refuse(training: Training) -> None:
    run = training(metric_every=0)
    callback = guard(run, metrics=("a", "loss"))
    with pytest.raises(InvalidSettings, match="watches 'a'"):
        run.step(callback, a="text", loss=torch.ones(2))


def test_without_the_gradients_no_optimizer_is_needed() -> None:
    ctx = StepContext()
    NonfiniteGuard(settings=NonfiniteGuard.Settings(gradients=False)).on_train_begin(ctx=ctx)
    with pytest.raises(InvalidSettings, match="the trainer has registered none") as caught:
        NonfiniteGuard(settings=NonfiniteGuard.Settings()).on_train_begin(ctx=ctx)
    assert '"gradients"' in caught.value.hint


def test_a_closure_is_refused_since_it_computes_the_gradients_after_the_check(training: Training) -> None:
    run = training(torch.optim.LBFGS)
    guard(run)
    with pytest.raises(HostcoreError, match=r"LBFGS\.step was given a closure"):
        run.optimizer.step(lambda: run.model(torch.ones(1, 3)).sum())


def test_the_optimizer_is_let_go_of_at_the_end(training: Training) -> None:
    for end in ("on_train_end", "on_exception"):
        run = training()
        getattr(guard(run), end)()
        run.optimizer.step(lambda: 0.0)  # a closure, which the guard refuses


@pytest.mark.parametrize(
    ("settings", "pointer"),
    [
        ({"action": "skip", "check_every": 2}, "/check_every"),
        ({"action": "skip", "gradients": False}, "/gradients"),
        ({"metrics": (), "gradients": False}, "/metrics"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        NonfiniteGuard(settings=NonfiniteGuard.Settings(**settings))
    assert caught.value.pointer == pointer


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("value", [NAN, INF, -INF, -3.0e4, 3.0e4])
def test_the_largest_element_is_found_whatever_the_kind_of_number(dtype: torch.dtype, value: float) -> None:
    parameters = [torch.nn.Parameter(torch.zeros(5, dtype=dtype)) for _ in range(3)]
    for number, one in enumerate(parameters):
        one.grad = torch.full_like(one, number)
    parameters[1].grad[2] = value  # type: ignore[index]
    largest = largest_element(parameters)
    assert largest is not None
    assert not largest.requires_grad
    expected = torch.tensor(abs(value), dtype=torch.float32 if dtype.is_complex else dtype)
    torch.testing.assert_close(largest, expected, equal_nan=True)


class Readings(TorchDispatchMode):
    """Counts how often a tensor is read as one number, which on an accelerator waits for it each time."""

    def __init__(self) -> None:
        super().__init__()
        self.alone = self.together = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.alone += func is torch.ops.aten._local_scalar_dense.default
        self.together += func is torch.ops.aten.stack.default
        return func(*args, **(kwargs or {}))


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain tensors are taken for those of an accelerator, which this machine may not have."""
    monkeypatch.setattr(nonfinite, "_is_on_accelerator", lambda value: type(value) is torch.Tensor)


def seen(count: int, **bad: float) -> list[Seen]:
    """Steps with a tensor of another shape and type, a number, and a tensor of each; some of them not finite."""
    return [
        Seen(
            step=step,
            values=[
                ("a", torch.tensor([bad.get(f"a{step}", 1.0)])),
                ("b", bad.get(f"b{step}", 2.0)),
                ("c", torch.tensor(bad.get(f"c{step}", 3.0), dtype=torch.bfloat16)),
            ],
        )
        for step in range(1, count + 1)
    ]


@pytest.mark.parametrize(
    ("bad", "found"),
    [
        ({}, None),
        ({"c3": NAN, "a4": INF, "b5": NAN}, (3, "c")),
        ({"b2": INF, "c2": NAN}, (2, "b")),
        ({"a2": -INF, "b2": NAN}, (2, "a")),
    ],
)
def test_what_lies_on_an_accelerator_is_read_at_once_and_the_oldest_is_found(
    accelerator: None, bad: dict[str, float], found: tuple[int, str] | None
) -> None:
    with Readings() as readings:
        finding = first_nonfinite(seen(100, **bad))
    assert (readings.alone, readings.together) == (0, 2)  # of each type
    assert (finding and (finding.step, finding.what)) == found
