import math
from collections.abc import Callable

import pytest

from hostcore_builtin_plugins.progress import (
    RunProgress,
    format_bytes,
    format_duration,
    format_rate,
    format_value,
)
from hostcore_hookspecs import Event
from hostcore_hookspecs.events import Metrics, Progress, RunResumed, RunStarted, RunSubmitted, Validation

MakeEvent = Callable[..., Event]


def after(*events: Event) -> RunProgress:
    progress = RunProgress()
    for event in events:
        progress.update(event)
    return progress


def submitted(total: int) -> RunSubmitted:
    return RunSubmitted(trainer="flight_delay", max_steps=total, total_steps=total)


def test_the_remaining_time_follows_from_the_steps_so_far(event: MakeEvent) -> None:
    progress = after(
        event(submitted(100)),
        event(RunStarted(device="cpu"), step=0, seconds=10),
        event(Metrics(metrics={"train/loss": 0.5}), step=20, seconds=14),
    )
    assert progress.fraction == 0.2
    assert progress.eta_seconds == 16


def test_the_steps_of_earlier_attempts_do_not_count_for_the_rate(event: MakeEvent) -> None:
    progress = after(
        event(submitted(100)),
        event(RunResumed(path="checkpoints/step-000080"), step=80, seconds=1),
        event(RunStarted(device="cpu"), step=80, seconds=2),
        event(Metrics(metrics={}), step=90, seconds=7),
    )
    assert progress.eta_seconds == 5


def test_the_time_of_setting_up_does_not_count_for_the_rate(event: MakeEvent) -> None:
    slow_start = after(
        event(submitted(100)),
        event(RunStarted(device="cpu"), step=0, seconds=600),
        event(Progress(), step=50, seconds=601),
    )
    assert slow_start.eta_seconds == 1


def test_the_rate_follows_a_change_of_speed(event: MakeEvent) -> None:
    progress = after(event(submitted(1000)), event(RunStarted(device="cpu"), step=0, seconds=0))
    for step in range(1, 101):  # the first step takes an hour, all others a second
        progress.update(event(Progress(), step=step, seconds=3600 + step))
    assert progress.eta_seconds == 900


@pytest.mark.parametrize("total", [0, 100])
def test_without_a_total_or_a_second_event_the_remaining_time_is_unknown(event: MakeEvent, total: int) -> None:
    progress = after(event(submitted(total)), event(Metrics(metrics={}), step=1))
    assert progress.eta_seconds is None
    assert "eta" not in progress.parts()


def test_an_unknown_total_shows_the_step_alone(event: MakeEvent) -> None:
    assert after(event(submitted(0)), event(Metrics(metrics={}), step=7)).parts() == {"step": "step 7"}


def test_a_clock_that_goes_backwards_gives_no_remaining_time(event: MakeEvent) -> None:
    progress = after(
        event(submitted(100)),
        event(RunStarted(device="cpu"), step=0, seconds=10),
        event(Progress(), step=5, seconds=3),
    )
    assert progress.eta_seconds is None


def test_the_loss_is_shown_before_other_metrics(event: MakeEvent) -> None:
    assert after(event(Metrics(metrics={"a": 1.0, "train/loss": 0.43211}), step=1)).parts()["metric"] == "loss 0.4321"


def test_without_a_loss_the_first_metric_is_shown(event: MakeEvent) -> None:
    assert after(event(Metrics(metrics={"reward": 12.0, "a": 1.0}), step=1)).parts()["metric"] == "reward 12"


def test_the_loss_of_the_newest_validation_is_shown_beside_it(event: MakeEvent) -> None:
    progress = after(
        event(Validation(metrics={"val/accuracy": 0.9, "val/loss": 0.5}, weight=1.0), step=1),
        event(Metrics(metrics={"train/loss": 0.25}), step=2),
    )
    assert list(progress.parts().values()) == ["step 2", "loss 0.25", "val/loss 0.5"]


def test_metrics_that_are_not_finite_are_named(event: MakeEvent) -> None:
    metrics = Metrics(metrics={"train/loss": None, "grad_norm": None}, nonfinite=("train/loss", "grad_norm"))
    progress = after(event(metrics, step=1))
    assert progress.metric is not None
    assert math.isnan(progress.metric[1])
    assert progress.parts()["metric"] == "loss nan"
    assert progress.parts()["nonfinite"] == "not finite: train/loss, grad_norm"


def test_numbers_are_written_for_people() -> None:
    assert [format_value(value) for value in (0.432149, 13.3, 1e-7, 123456.0, None)] == [
        "0.4321",
        "13.3",
        "1e-07",
        "1.235e+05",
        "nan",
    ]
    assert [format_rate(rate) for rate in (12345.4, 99.44, 0.2512)] == ["12,345", "99.4", "0.251"]
    assert [format_duration(seconds) for seconds in (0, 41.6, 3723, 183845)] == [
        "0:00",
        "0:42",
        "1:02:03",
        "2d 03:04:05",
    ]
    assert [format_bytes(size) for size in (0, 999, 1000, 12_345_678, 5 * 10**12)] == [
        "0 B",
        "999 B",
        "1 kB",
        "12.3 MB",
        "5 TB",
    ]
