"""The small parts of the worker: meter, progress, random states, devices."""

import random

import numpy as np
import pytest
import torch

from hostcore.worker import randomness
from hostcore.worker.devices import (
    DeviceUnavailable,
    PrecisionUnavailable,
    available_devices,
    check_precision,
    checked_device,
    name_of_device,
)
from hostcore.worker.feed.feed import MockFeed
from hostcore.worker.metrics import HISTORY_POINTS, Meter
from hostcore.worker.progress import Progress
from hostcore_hookspecs import Checkpoint
from hostcore_hookspecs.run_state import MetricPoint


class TestTheMeter:
    def test_tells_rates_since_the_reading_before(self) -> None:
        now = [0.0]
        meter = Meter(lambda: now[0])
        meter.start(10, 1000)
        now[0], meter.data_wait = 1.0, 0.25
        assert meter.sign_of_life(1050) == 50
        now[0], meter.data_wait = 2.0, 0.5
        assert meter.sign_of_life(1200) == 150
        reading = meter.read(14, 1400)
        assert reading == {"samples_per_second": 200.0, "step_seconds": 0.5, "data_wait_seconds": 0.125}
        now[0] = 3.0
        assert meter.read(16, 1500) == {"samples_per_second": 100.0, "step_seconds": 0.5, "data_wait_seconds": 0.0}

    def test_survives_a_clock_that_stands_still(self) -> None:
        reading = Meter(lambda: 1.0).read(0, 0)
        assert reading["samples_per_second"] == 0


class TestProgress:
    def test_moves_the_state_that_everybody_holds(self) -> None:
        progress = Progress(rows_per_step=32)
        held = progress.state
        assert [progress.advance(), progress.advance()] == [1, 2]
        assert (held.step, held.epoch, held.batch_in_epoch, held.samples_seen) == (2, 0, 2, 64)
        progress.next_epoch()
        assert (held.step, held.epoch, held.batch_in_epoch, held.samples_seen) == (2, 1, 0, 64)

    @pytest.mark.parametrize("name", ["step", "epoch", "metrics", "history"])
    def test_cannot_be_assigned_by_plugins(self, name: str) -> None:
        with pytest.raises(AttributeError):
            setattr(Progress().state, name, 7)

    def test_keeps_the_newest_of_the_history(self) -> None:
        progress = Progress()
        for step in range(HISTORY_POINTS + 5):
            progress.advance()
            progress.remember({"train/loss": float(step)})
        history = progress.state.history["train/loss"]
        assert (len(history), history[0], history[-1].step) == (10_000, MetricPoint(6, 5.0), HISTORY_POINTS + 5)

    def test_comes_back_from_what_a_checkpoint_keeps(self) -> None:
        progress = Progress(rows_per_step=32)
        progress.advance()
        progress.remember({"train/loss": 0.5, "grad": float("inf")})
        progress.next_epoch()
        progress.advance()
        again = Progress(rows_per_step=32)
        again.load(progress.stored(), digest=7)
        assert again.stored_cursor() == {"epoch": 1, "rows": 32, "digest": 7}
        for name in ("step", "epoch", "batch_in_epoch", "samples_seen", "metrics"):
            assert getattr(again.state, name) == getattr(progress.state, name)
        assert again.state.history == progress.state.history
        assert [type(value) for value in again.state.history["train/loss"][0]] == [int, float]
        assert again.state.history["train/loss"][0] == MetricPoint(1, 0.5)

    def test_counts_the_rows_that_were_trained_on_and_not_those_that_were_read(self) -> None:
        progress, feed = Progress(rows_per_step=1), MockFeed(mock_batches=list("abcdef"))
        stream = feed.stream(progress.cursor)
        with progress.reading(stream):
            list(stream)
            for _ in range(4):
                progress.advance()
            during = progress.stored_cursor()
        assert progress.stored_cursor() == during
        assert during == {"epoch": 0, "rows": 4, "digest": stream.digest(4)}
        assert stream.digest(4) != stream.digest(6)

    def test_collects_requests_and_checkpoints(self) -> None:
        progress = Progress()
        progress.note_stop("a", "user")
        progress.note_stop("b", "host")
        checkpoint = Checkpoint(step=1, epoch=0, path="/c", bytes=1, final=False)
        progress.note_checkpoints((checkpoint,))
        assert [request.reason for request in progress.state.stop_requests] == ["a", "b"]
        assert progress.state.checkpoints == (checkpoint,)


class TestRandomStates:
    def test_come_back_as_they_were(self) -> None:
        states = randomness.capture()

        def draw() -> tuple[float, ...]:
            return random.random(), float(np.random.rand()), float(torch.rand(())), float(np.random.randn())

        first = draw()
        draw()
        randomness.restore(states)
        assert draw() == first

    def test_keep_the_second_half_of_a_pair_of_normal_numbers(self) -> None:
        random.gauss(0, 1)
        np.random.randn()
        states = randomness.capture()
        first = (random.gauss(0, 1), float(np.random.randn()))
        randomness.restore(states)
        assert (random.gauss(0, 1), float(np.random.randn())) == first


class TestDevices:
    def test_the_cpu_is_always_there_and_the_last_choice(self) -> None:
        assert available_devices()[-1] == "cpu"
        assert checked_device("cpu", available_devices()) == "cpu"

    def test_cuda_is_the_first_gpu(self) -> None:
        with pytest.raises(DeviceUnavailable, match=r"the device 'cuda' does not work|there is no device 'cuda'"):
            checked_device("cuda", ("cpu",))

    def test_one_that_is_not_there_is_an_error_that_says_what_is(self) -> None:
        with pytest.raises(DeviceUnavailable, match="there is no device 'cuda:7' here") as caught:
            checked_device("cuda:7", ("cpu",), pointer="/devices")
        assert caught.value.pointer == "/devices"
        assert caught.value.hint.startswith("this machine has: cpu")

    def test_one_of_a_run_has_the_name_that_the_job_gives_it(self) -> None:
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
