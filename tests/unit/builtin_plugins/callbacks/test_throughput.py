from collections.abc import Callable
from typing import Any

import pytest
import torch

from hostcore_builtin_plugins.callbacks.throughput import CudaClock, HostClock, Throughput
from hostcore_hookspecs import StepControl, StepResult

Steps = Callable[..., list[dict[str, Any]]]


class HeldClock(HostClock):
    """Stands still unless the test moves it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.readings = 0

    def mark(self) -> float:
        return self.now

    def seconds(self, spans: Any) -> list[float]:
        self.readings += 1
        return super().seconds(spans)


class Timed:
    """A callback, and steps of which the test says how long they take."""

    def __init__(self, run: Any, **settings: str) -> None:
        self.run = run
        self.callback = Throughput(settings=Throughput.Settings(**settings))
        self.clock = HeldClock()
        self.callback._clock = self.clock
        self.callback.on_train_begin(run.ctx)

    def step(self, seconds: float, *, waiting: float = 0.0, **fields: Any) -> dict[str, Any]:
        """The metrics of a step; ``waiting``: between the step before and this one."""
        self.clock.now += waiting
        self.callback.on_batch_begin()

        self.clock.now += seconds
        run_state = self.run.to_step(self.run.run_state.step + 1)
        self.run.host.recorded.clear()
        self.callback.on_batch_end(StepResult(**fields), run_state, self.run.ctx)
        return dict(self.run.host.recorded)


@pytest.fixture
def timed(course: Callable[..., Any]) -> Callable[..., Timed]:
    def make(unit: str = "samples", **job: Any) -> Timed:
        return Timed(course(**{"metric_every": 4, "dataset": {}, "batch_size": 10, **job}), unit=unit)

    return make


def test_reports_rate_and_step_times_at_cadence_steps_alone(timed: Callable[..., Timed]) -> None:
    steps = timed()
    assert [steps.step(seconds) for seconds in (1.0, 2.0, 1.0)] == [{}, {}, {}]
    assert steps.step(4.0) == {
        "throughput/samples_per_second": 5.0,
        "throughput/step_seconds_p50": 1.0,
        "throughput/step_seconds_p95": 4.0,
        "throughput/step_seconds_max": 4.0,
    }
    for _ in range(3):
        steps.step(0.5)
    assert steps.step(0.5)["throughput/samples_per_second"] == 20.0, "of the steps since the last report"
    assert steps.clock.readings == 2


def test_tokens_are_counted_by_the_weight_of_the_steps(timed: Callable[..., Timed]) -> None:
    steps = timed(unit="tokens")
    for weight in (100, torch.tensor(300), None):
        steps.step(1.0, weight=weight)
    assert steps.step(1.0, weight=90)["throughput/tokens_per_second"] == (100 + 300 + 10 + 90) / 4


def test_a_step_without_a_weight_counts_the_rows_of_all_its_batches(timed: Callable[..., Timed]) -> None:
    assert timed(metric_every=1, accumulate=3).step(1.0)["throughput/samples_per_second"] == 30.0
    assert timed(metric_every=1, accumulate=3, dataset=None).step(1.0)["throughput/samples_per_second"] == 3.0


def test_the_mean_over_ranks_is_the_rate_of_all_together(timed: Callable[..., Timed]) -> None:
    steps = timed(metric_every=1)
    steps.run.ctx.world_size = 4
    assert steps.step(1.0)["throughput/samples_per_second"] == 40.0


def test_waiting_for_data_counts_and_validations_and_samples_do_not(timed: Callable[..., Timed]) -> None:
    steps = timed(metric_every=3)
    steps.step(1.0, waiting=100.0)  # before the first step nothing is counted
    steps.clock.now += 50.0
    steps.callback.on_validation_end()
    steps.step(1.0, waiting=0.5)
    steps.clock.now += 50.0
    steps.callback.on_sample_saved()
    found = steps.step(1.0, waiting=1.0)
    assert found["throughput/step_seconds_max"] == 2.0
    assert found["throughput/samples_per_second"] == pytest.approx(30 / 4.5)


def test_steps_that_ask_not_to_be_recorded_are_counted_at_the_next_report(timed: Callable[..., Timed]) -> None:
    steps = timed(metric_every=2)
    steps.step(1.0)
    assert steps.step(1.0, control=StepControl(skip_cadence_emit=True)) == {}
    steps.step(1.0)
    assert steps.step(1.0, weight=70)["throughput/samples_per_second"] == 25.0


def test_the_newest_thousand_steps_are_held_at_most_and_percentiles_are_values_that_occurred(
    timed: Callable[..., Timed],
) -> None:
    steps = timed(metric_every=1500, total_steps=1500)
    for number in range(1500):
        found = steps.step(8.0 if number < 500 else float(number - 499))
    times = [found[f"throughput/step_seconds_{name}"] for name in ("p50", "p95", "max")]
    assert times == [500.0, 950.0, 1000.0]
    with pytest.raises(ValueError, match="unit"):
        Throughput.Settings(unit="tokens/s")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_clock_of_a_gpu_measures_its_work_and_marks_without_waiting() -> None:
    clock = CudaClock(torch.device("cuda"))
    matrix = torch.ones(4096, 4096, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        begin = clock.mark()
        for _ in range(20):
            matrix = matrix @ matrix
        end = clock.mark()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    (seconds,) = clock.seconds([(begin, end)])
    assert 1e-4 < seconds < 60
