"""The small parts of the worker: meter, progress, random states, devices."""

import random

import numpy as np
import pytest

from hostcore.worker import randomness
from hostcore.worker.devices import (
    DeviceUnavailable,
    PrecisionUnavailable,
    check_precision,
    checked_device,
    name_of_device,
)
from hostcore.worker.metrics import HISTORY_POINTS
from hostcore.worker.progress import TrainingProgress
from hostcore_hookspecs.run_state import MetricPoint


def test_the_newest_of_the_history_is_kept() -> None:
    progress = TrainingProgress()
    for step in range(HISTORY_POINTS + 5):
        progress.advance()
        progress.remember({"train/loss": float(step)})
    history = progress.state.history["train/loss"]
    assert (len(history), history[0], history[-1].step) == (10_000, MetricPoint(6, 5.0), HISTORY_POINTS + 5)


def test_random_states_keep_the_second_half_of_a_pair_of_normal_numbers() -> None:
    random.gauss(0, 1)
    np.random.randn()
    states = randomness.capture()
    first = (random.gauss(0, 1), float(np.random.randn()))
    randomness.restore(states)
    assert (random.gauss(0, 1), float(np.random.randn())) == first


def test_a_device_of_a_run_has_the_name_that_the_job_gives_it() -> None:
    held = ["cuda:3", "cuda:1"]
    named = {name: name_of_device(name, held) for name in ("cuda:0", "cuda:1", "cpu")}
    assert named == {"cuda:0": "cuda:3", "cuda:1": "cuda:1", "cpu": "cpu"}
    assert name_of_device("cuda:1", []) == "cuda:1"
    with pytest.raises(DeviceUnavailable, match="no device 'cuda:3' here"):
        checked_device("cuda:3", ("cpu",), held=held)


def test_a_device_that_does_not_compute_in_a_precision_is_an_error_at_that_key() -> None:
    check_precision("fp32", "meta")
    check_precision("bf16", "cpu")
    with pytest.raises(PrecisionUnavailable, match="the device meta does not compute in bf16") as caught:
        check_precision("bf16", "meta")
    assert (caught.value.code, caught.value.pointer) == ("precision.unavailable", "/precision")
