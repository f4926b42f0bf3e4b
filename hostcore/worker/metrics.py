"""What a trainer reports, under the names and at the cadence that the job asks for."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from hostcore.toolkit import to_float_scalar
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.run_state import MetricPoint

HISTORY_POINTS: Final = 10_000
PROGRESS_SECONDS: Final = 5.0

#: Recorded values by metric, oldest first.
History = dict[str, deque[MetricPoint]]

_TRAINING_NAMES: Final[Mapping[str, str]] = {
    "loss": "train/loss",
    "train_loss": "train/loss",
    "lr": "train/lr",
    "learning_rate": "train/lr",
}


class InvalidStepResult(HostcoreError):
    """What a trainer returned from a step is not a result."""

    code = "trainer.invalid_result"


def read_metrics(result: Any, step: int) -> dict[str, float]:
    """The metrics of a training step under their recorded names. Reads tensors, which synchronises a GPU.

    :raises InvalidStepResult: When the result has no metrics, or one of them is no scalar.
    """
    metrics = getattr(result, "metrics", None)
    if not isinstance(metrics, Mapping):
        raise InvalidStepResult(
            f"train_step returned {type(result).__name__} at step {step}, which has no mapping `metrics`",
            hint="return hostcore_hookspecs.StepResult(metrics={'loss': loss})",
        )
    read: dict[str, float] = {}
    for name, value in metrics.items():
        if not isinstance(name, str):
            raise InvalidStepResult(f"the name of a metric at step {step} is not text: {name!r}")
        recorded = _TRAINING_NAMES.get(name, name)
        if recorded in read:
            raise InvalidStepResult(
                f"two metrics at step {step} are recorded as {recorded!r}; one of them is {name!r}",
                hint="`loss` and `train_loss` are one metric, and so are `lr` and `learning_rate`",
            )
        try:
            read[recorded] = to_float_scalar(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidStepResult(
                f"the metric {name!r} at step {step} is not a number: {error}",
                hint="metrics are numbers or tensors with one element",
            ) from error
    return read


class Meter:
    """Counts rows and time between two readings. The loop adds to it at every step, so it is only attributes."""

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter, *, sign_seconds: float = PROGRESS_SECONDS
    ) -> None:
        """Begin to count.

        :param sign_seconds: How often to show a sign of life between two readings.
        """
        self.clock = clock
        self.sign_seconds = sign_seconds
        #: Seconds spent waiting for data since the last reading.
        self.data_wait = 0.0
        #: When a sign of life is due, by the clock, if there is no reading before.
        self.sign_due = 0.0
        self.start(0, 0)

    def start(self, step: int, samples: int) -> None:
        """Begin to count, at a step and a number of rows seen."""
        self.data_wait, self._since, self._step, self._samples = 0.0, self.clock(), step, samples
        self._note_sign(self._since, samples)

    def sign_of_life(self, samples: int) -> float:
        """Rows per second since the last reading or sign of life; the reading goes on."""
        now = self.clock()
        rate = (samples - self._sign_samples) / max(now - self._sign, 1e-9)
        self._note_sign(now, samples)
        return rate

    def _note_sign(self, now: float, samples: int) -> None:
        self._sign, self._sign_samples, self.sign_due = now, samples, now + self.sign_seconds

    def read(self, step: int, samples: int) -> dict[str, float]:
        """Throughput since the last reading, by the names of the ``metrics`` event; begins anew."""
        seconds = max(self.clock() - self._since, 1e-9)
        steps = max(step - self._step, 1)
        reading = {
            "samples_per_second": (samples - self._samples) / seconds,
            "step_seconds": seconds / steps,
            "data_wait_seconds": self.data_wait / steps,
        }
        self.start(step, samples)
        return reading


def remember(history: History, metrics: Mapping[str, float], step: int) -> None:
    """Add metrics to the history that callbacks and checkpoints see."""
    for name, value in metrics.items():
        history.setdefault(name, deque(maxlen=HISTORY_POINTS)).append(MetricPoint(step, value))
