import math
from collections.abc import Callable
from typing import Any

import pytest

from hostcore_builtin_plugins.progress import RunProgress, format_bytes, format_duration, format_rate, format_value
from hostcore_hookspecs import Event
from hostcore_hookspecs.events import Metrics, Progress, RunResumed, RunStarted, RunSubmitted, Validation

MakeEvent = Callable[..., Event]
START = RunStarted(device="cpu")


@pytest.fixture
def after(event: MakeEvent) -> Callable[..., RunProgress]:
    """``after(100, (payload, step, seconds))``: of a run of so many steps, after some events."""

    def make(total: int, *told: tuple[Any, int, float]) -> RunProgress:
        progress = RunProgress()
        progress.update(event(RunSubmitted(trainer="flight_delay", max_steps=total, total_steps=total)))
        for payload, step, seconds in told:
            progress.update(event(payload, step=step, seconds=seconds))
        return progress

    return make


@pytest.mark.parametrize(
    ("told", "eta"),
    [
        ([(START, 0, 10), (Metrics(metrics={"train/loss": 0.5}), 20, 14)], 16),
        ([(Progress(), 70, 1), (RunResumed(path="c"), 80, 1), (START, 80, 2), (Metrics(metrics={}), 90, 7)], 5),
        ([(START, 0, 600), (Progress(), 50, 601)], 1),
        ([(START, 0, 0), *((Progress(), step, 3600 + step) for step in range(1, 61))], 40),
        ([(Metrics(metrics={}), 1, 0)], None),
        ([(START, 0, 10), (Progress(), 5, 3)], None),
    ],
    ids=[
        *("of the steps so far", "without earlier attempts", "without the setting up"),
        *("after a change of speed", "of one event", "of a clock that goes backwards"),
    ],
)
def test_the_remaining_time_follows_from_the_rate(after: Any, told: list[Any], eta: float | None) -> None:
    progress = after(100, *told)
    assert progress.eta_seconds == eta
    assert ("eta" in progress.parts()) == (eta is not None)
    assert progress.fraction == told[-1][1] / 100
    unknown = after(0, *told)
    assert (unknown.eta_seconds, unknown.fraction) == (None, None)
    assert unknown.parts()["step"] == f"step {told[-1][1]}"


@pytest.mark.parametrize(
    ("payloads", "parts"),
    [
        ([Metrics(metrics={"a": 1.0, "train/loss": 0.43211})], ["loss 0.4321"]),
        ([Metrics(metrics={"reward": 12.0, "a": 1.0})], ["reward 12"]),
        (
            [
                Validation(metrics={"val/accuracy": 0.9, "val/loss": 0.5}, weight=1.0),
                Metrics(metrics={"train/loss": 0.25}),
            ],
            ["loss 0.25", "val/loss 0.5"],
        ),
        (
            [Metrics(metrics={"train/loss": None, "grad_norm": None}, nonfinite=("train/loss", "grad_norm"))],
            ["loss nan", "not finite: train/loss, grad_norm"],
        ),
    ],
)
def test_the_loss_or_else_the_first_metric_is_shown(after: Any, payloads: list[Any], parts: list[str]) -> None:
    assert list(after(0, *((payload, 7, 0) for payload in payloads)).parts().values()) == ["step 7", *parts]


def test_numbers_are_written_for_people() -> None:
    values = {0.432149: "0.4321", 13.3: "13.3", 1e-7: "1e-07", 123456.0: "1.235e+05", None: "nan", math.nan: "nan"}
    assert [format_value(value) for value in values] == [*values.values()]
    rates = {12345.4: "12,345", 99.44: "99.4", 0.2512: "0.251"}
    assert [format_rate(rate) for rate in rates] == [*rates.values()]
    durations = {0: "0:00", 41.6: "0:42", 3723: "1:02:03", 183845: "2d 03:04:05"}
    assert [format_duration(seconds) for seconds in durations] == [*durations.values()]
    sizes = {0: "0 B", 999: "999 B", 1000: "1 kB", 12_345_678: "12.3 MB", 5 * 10**12: "5 TB"}
    assert [format_bytes(size) for size in sizes] == [*sizes.values()]
