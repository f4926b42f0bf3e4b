"""Between two cadence steps nothing reads a tensor of the device, as far as the CPU can show it.

``reading_trainer`` pretends a device, and a read where there must be none is an error of the run.
"""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from played import Played

#: One epoch, at whose end callbacks may read; every fifth step is recorded.
JOB = {
    "trainer": "reading_trainer:Trainer",
    "dataset": {"source": "mock", "num_rows": 200, "num_shards": 2, "batch_size": 5},
    "validation": {"source": "mock", "num_rows": 20, "num_shards": 1, "batch_size": 5},
    "max_steps": 20,
    "metric_every": 5,
    "validate_every": 10,
    "checkpoint_every": 10,
}
#: All that watch or change a step, with their defaults where they have any.
CALLBACKS = [
    "nonfinite-guard",
    {"use": "grad-clip", "max_norm": 1.0},
    {"use": "lr-monitor", "momentum": True, "weight_decay": True},
    "throughput",
    "oom-hint",
    "csv-metrics",
    "best-checkpoint",
    "early-stopping",
    {"use": "profiler", "start_step": 2, "warmup": 1, "steps": 2},
]


@pytest.fixture
def trainer(run_job: Callable[..., Played]) -> Iterator[ModuleType]:
    import reading_trainer

    yield reading_trainer
    reading_trainer.DEVICE.stop()
    reading_trainer.DEVICE.forbidden = False


@pytest.fixture
def run(trainer: ModuleType, run_job: Callable[..., Played]) -> Callable[..., Played]:
    """``run("throughput", reads=True)``: a run with callbacks; other keys are hyperparameters."""
    return lambda *callbacks, job=None, **hyperparams: run_job({**JOB, **(job or {})}, *callbacks, **hyperparams)


Run = Callable[..., Played]


@pytest.mark.parametrize("job", [{}, {"accumulate": 2, "max_steps": 10}, {"precision": "bf16"}])
def test_no_built_in_callback_and_no_part_of_the_loop_reads_between_cadence_steps(
    run: Run, trainer: ModuleType, job: dict[str, Any]
) -> None:
    outcome = run(*CALLBACKS, job=job)
    assert outcome.result.status == "succeeded", outcome.result.error
    assert {"train/loss", "train/lr", "train/grad_norm"} <= outcome.recorded()[5].keys()
    assert trainer.DEVICE.allowed > 0


def test_a_trainer_that_reads_its_loss_at_every_step_is_found(run: Run) -> None:
    result = run(reads=True).result
    assert (result.status, result.error.type) == ("failed", "WaitedFor")
    assert "_local_scalar_dense" in result.error.message


def test_the_guard_finds_a_loss_that_is_not_finite_before_it_is_recorded_and_names_its_step(run: Run) -> None:
    outcome = run({"use": "nonfinite-guard", "gradients": False}, nan=[13])
    assert outcome.result.error.message == "train/loss was nan at step 13"
    assert max(step for step in outcome.recorded() if step) == 10


def test_values_that_lie_in_the_same_memory_at_every_step_are_those_of_their_own_steps_and_batches(run: Run) -> None:
    kept = {"use": "nonfinite-guard", "gradients": False}
    assert run(kept, nan=[13], reuses=True).result.error.message == "train/loss was nan at step 13"
    own, reused = run(job={"run_id": "b"}), run(job={"run_id": "c"}, reuses=True)
    assert reused.recorded("validation") == own.recorded("validation")
