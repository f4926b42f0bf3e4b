import copy
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from wrapped_step import wrapped_step

from hostcore_builtin_plugins.callbacks.grad_clip import GradClip, clip_to_norm
from hostcore_hookspecs import HostcoreError, InvalidSettings, StepContext, StepControl, StepResult

Training = Callable[..., Any]


def clip(training: Any, **settings: Any) -> GradClip:
    callback = GradClip(settings=GradClip.Settings(**settings))
    callback.on_train_begin(ctx=training.ctx)
    return callback


def gradients(training: Any) -> torch.Tensor:
    return torch.cat([one.grad.flatten() for one in training.model.parameters()])


def unclipped(training: Any, factor: float = 1.0) -> torch.Tensor:
    """The gradients of the next step, without anybody clipping them."""
    model = copy.deepcopy(training.model)
    (model(torch.ones(4, 3)).square().mean() * factor).backward()
    return torch.cat([one.grad.flatten() for one in model.parameters()])


@pytest.mark.parametrize(("norm_type", "order"), [(2.0, 2.0), (1, 1.0), ("inf", float("inf"))])
def test_gradients_are_scaled_to_the_norm_before_the_update(training: Training, norm_type: Any, order: float) -> None:
    run = training()
    callback = clip(run, max_norm=0.01, norm_type=norm_type)
    before = unclipped(run)
    result = run.step(callback)
    norm = torch.linalg.vector_norm(before, order)
    torch.testing.assert_close(gradients(run), before * (0.01 / norm))
    torch.testing.assert_close(result.metrics["train/grad_norm"], norm)


@pytest.mark.parametrize("dtypes", [["float32"], ["float64"], ["bfloat16"], ["float32", "float64"]])
@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf"), 3.0])
def test_clipping_is_that_of_torch_bit_for_bit(dtypes: list[str], norm_type: float) -> None:
    torch.manual_seed(0)

    def parameters() -> list[torch.nn.Parameter]:
        made = [torch.nn.Parameter(torch.zeros(7, 13, dtype=getattr(torch, one))) for one in dtypes * 3]
        return [*made, torch.nn.Parameter(torch.zeros(5))]  # which has no gradient

    ours, theirs = parameters(), parameters()
    for one, other in zip(ours[:-1], theirs[:-1], strict=True):
        one.grad = torch.randn_like(one)
        other.grad = one.grad.clone()
    norm = torch.nn.utils.clip_grad_norm_(theirs, 0.7, norm_type)
    assert torch.equal(clip_to_norm(ours, 0.7, norm_type), norm)
    assert all(torch.equal(one.grad, other.grad) for one, other in zip(ours[:-1], theirs[:-1], strict=True))


def test_elements_are_cut_to_the_value_and_gradients_below_a_norm_stay_as_they_are(training: Training) -> None:
    run = training()
    before = unclipped(run, factor=100)
    result = run.step(clip(run, max_value=0.5), factor=100)
    assert before.abs().max() > 0.5
    torch.testing.assert_close(gradients(run), before.clamp(-0.5, 0.5))
    assert list(result.metrics) == ["loss"]
    run = training()
    before = unclipped(run)
    result = run.step(clip(run, max_norm=1e6), **{"loss": 1.0, "train/grad_norm": 7.0})
    torch.testing.assert_close(gradients(run), before, rtol=0, atol=0)
    assert result.metrics == {"loss": 1.0, "train/grad_norm": 7.0}, "which the trainer reports itself"


@pytest.mark.parametrize(
    "optimizer",
    [partial(torch.optim.SGD, lr=0.1), partial(torch.optim.Adam, lr=0.1, fused=True)],
    ids=["unscaled by the scaler", "unscaled by the optimizer"],
)
@pytest.mark.parametrize("settings", [{"max_norm": 0.01}, {"max_value": 0.001}])
def test_under_a_gradient_scaler_the_true_gradients_are_clipped(
    training: Training, optimizer: Any, settings: dict[str, float]
) -> None:
    plain = training(optimizer)
    scaled = training(optimizer, context={"scaler": torch.amp.GradScaler("cpu", init_scale=1024.0)})
    callbacks = [clip(plain, **settings), clip(scaled, **settings)]
    for _ in range(3):
        expected, result = plain.step(callbacks[0]), scaled.step(callbacks[1])
    for one, other in zip(plain.state(), scaled.state(), strict=True):
        torch.testing.assert_close(one, other)
    assert result.metrics.keys() == expected.metrics.keys()
    if "train/grad_norm" in result.metrics:
        torch.testing.assert_close(result.metrics["train/grad_norm"], expected.metrics["train/grad_norm"])


def test_a_fused_optimizer_still_skips_what_the_scaler_found_infinite(training: Training) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    run = training(lambda parameters: torch.optim.Adam(parameters, fused=True), context={"scaler": scaler})
    callback = clip(run, max_norm=1.0)
    run.step(callback)
    before = run.state()
    run.step(callback, factor=float("inf"))
    for one, other in zip(before, run.state(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert scaler.get_scale() == 512


def test_the_norm_is_reported_when_metrics_are_recorded_and_only_then(training: Training) -> None:
    run = training(metric_every=3)
    callback = clip(run, max_norm=1.0)
    assert ["train/grad_norm" in run.step(callback).metrics for _ in range(4)] == [False, False, True, False]
    run.move(step=99)
    assert "train/grad_norm" in run.step(callback).metrics, "the last step is recorded"
    for more, job in (({"report": False}, {}), ({}, {"metric_every": 0})):
        run = training(**job)
        run.move(step=99)
        assert "train/grad_norm" not in run.step(clip(run, max_norm=1.0, **more)).metrics


@pytest.mark.parametrize("result", [StepResult(metrics={"loss": 1.0}), None, 3.0, SimpleNamespace(metrics=[1])])
def test_no_norm_is_reported_of_an_update_without_gradients_and_of_what_is_no_result(
    training: Training, result: Any
) -> None:
    run = training()

    def train_step() -> Any:
        if not isinstance(result, StepResult):
            run.model(torch.ones(1, 3)).sum().backward()
        run.optimizer.step()
        return result

    assert wrapped_step(clip(run, max_norm=1.0), run.ctx, train_step) is result


def test_a_result_of_another_class_keeps_what_it_has(training: Training) -> None:
    run = training(metric_every=1)
    control, reported = StepControl(backoff_seconds=1.0), {"loss": 1.0}

    def train_step() -> SimpleNamespace:
        run.model(torch.ones(1, 3)).sum().backward()
        run.optimizer.step()
        return SimpleNamespace(metrics=reported, weight=3, debug={"a": 1}, control=control)

    result = wrapped_step(clip(run, max_norm=1.0), run.ctx, train_step)
    assert isinstance(result, StepResult)
    assert (result.weight, result.debug, result.control) == (3, {"a": 1}, control)
    assert set(result.metrics) == {"loss", "train/grad_norm"}
    assert reported == {"loss": 1.0}, "the trainer may use its dictionary again"


@pytest.mark.parametrize("factor", [float("nan"), float("inf")])
def test_a_norm_that_is_not_finite_fails_the_run_if_asked_to(training: Training, factor: float) -> None:
    run = training()
    with pytest.raises(HostcoreError, match=r"the norm of the gradients is (nan|inf)") as caught:
        run.step(clip(run, max_norm=1.0, error_if_nonfinite=True), factor)
    assert caught.value.code == "gradients.nonfinite"


def test_an_optimizer_that_is_not_torchs_is_refused() -> None:
    callback, ctx = GradClip(settings=GradClip.Settings(max_norm=1.0)), StepContext()
    ctx.register_optimizer(object())
    with pytest.raises(InvalidSettings, match="class object, which is not torch's"):
        callback.on_train_begin(ctx=ctx)


def test_a_closure_is_refused_since_it_computes_the_gradients_after_the_clipping(training: Training) -> None:
    run = training(torch.optim.LBFGS)
    clip(run, max_norm=1.0)
    with pytest.raises(HostcoreError, match=r"LBFGS\.step was given a closure"):
        run.optimizer.step(lambda: run.model(torch.ones(1, 3)).sum())


def test_nothing_is_clipped_after_the_end(training: Training) -> None:
    for end in ("on_train_end", "on_exception"):
        run = training()
        callback = clip(run, max_norm=0.01)
        getattr(callback, end)()
        before = unclipped(run)
        run.step(callback)
        torch.testing.assert_close(gradients(run), before)


def test_an_optimizer_that_the_trainer_made_anew_is_clipped_and_the_old_one_is_not(training: Training) -> None:
    run = training()
    callback, old = clip(run, max_norm=0.01), run.optimizer
    run.optimizer = torch.optim.SGD(run.model.parameters(), lr=0.1)
    run.ctx.register_optimizer(run.optimizer)
    around = callback.load_state_dict(ctx=run.ctx)
    next(around)
    with pytest.raises(StopIteration):
        around.send(None)
    run.step(callback)
    assert torch.linalg.vector_norm(gradients(run)) == pytest.approx(0.01, rel=1e-3)
    for one in run.model.parameters():
        one.grad = torch.ones_like(one)
    old.step()
    assert set(gradients(run).tolist()) == {1.0}


@pytest.mark.parametrize(
    ("settings", "pointer"),
    [
        ({}, ""),
        ({"max_norm": 1.0, "max_value": 1.0}, ""),
        ({"max_value": 1.0, "norm_type": 1.0}, "/norm_type"),
        ({"max_value": 1.0, "error_if_nonfinite": True}, "/error_if_nonfinite"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        GradClip(settings=GradClip.Settings(**settings))
    assert caught.value.pointer == pointer
