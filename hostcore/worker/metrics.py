"""Metrics of a trainer, under the names and at the cadence of the job."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import orjson

from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.run_state import MetricPoint
from hostcore_toolkit import to_float_scalar

HISTORY_POINTS: Final = 10_000
PROGRESS_SECONDS: Final = 5.0
#: The debug values of a step, in bytes of JSON.
MOST_DEBUG: Final = 16 << 10

#: Recorded values by metric, oldest first.
History = dict[str, deque[MetricPoint]]

_TRAINING_NAMES: Final[Mapping[str, str]] = {
    "loss": "train/loss",
    "train_loss": "train/loss",
    "lr": "train/lr",
    "learning_rate": "train/lr",
}


class InvalidStepResult(HostcoreError):
    """The value that a trainer returned from a step is no result."""

    code = "trainer.invalid_result"


def training_name(name: str) -> str:
    """The name under which a metric of ``train_step`` is recorded."""
    return _TRAINING_NAMES.get(name, name)


def evaluation_name(split: str) -> Callable[[str], str]:
    """The names under which metrics of a validation (``val``) or a test (``test``) are recorded: ``val/loss``."""
    return lambda name: name if "/" in name else f"{split}/{name}"


def read_metrics(result: Any, where: str, *, name_of: Callable[[str], str] = training_name) -> dict[str, float]:
    """The metrics of a step under their recorded names. Reads tensors, which synchronises a GPU.

    :param where: What returned the result, and when: "train_step at step 3".
    :param name_of: The recorded name by the given one.
    :raises InvalidStepResult: When the result has no metrics, or one of them is no scalar.
    """
    metrics = getattr(result, "metrics", None)
    if not isinstance(metrics, Mapping):
        raise InvalidStepResult(
            f"{where} returned {type(result).__name__}, which has no mapping `metrics`",
            hint="return hostcore_hookspecs.StepResult(metrics={'loss': loss})",
        )
    return read_named(metrics, where, name_of=name_of)


def read_named(metrics: Mapping[Any, Any], where: str, *, name_of: Callable[[str], str]) -> dict[str, float]:
    """Metrics under their recorded names; see :func:`read_metrics`."""
    read: dict[str, float] = {}
    for name, value in metrics.items():
        if not isinstance(name, str):
            raise InvalidStepResult(f"the name of a metric of {where} is not text: {name!r}")
        recorded = name_of(name)
        if recorded in read:
            raise InvalidStepResult(
                f"two metrics of {where} are recorded as {recorded!r}; one of them is {name!r}",
                hint="`loss` and `train_loss` are one metric, and so are `lr` and `learning_rate`",
            )
        try:
            read[recorded] = to_float_scalar(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidStepResult(
                f"the metric {name!r} of {where} is not a number: {error}",
                hint="metrics are numbers or tensors with one element",
            ) from error
    return read


def read_debug(result: Any, where: str) -> dict[str, Any]:
    """Return the debug values of a step as plain JSON. Reads tensors.

    :raises InvalidStepResult: When they are not JSON, or more than :data:`MOST_DEBUG`.
    """
    debug = getattr(result, "debug", None)
    if debug is None:
        return {}
    if not isinstance(debug, Mapping):
        raise InvalidStepResult(f"the debug values of {where} are {type(debug).__name__}, not a mapping")
    read: dict[str, Any] = {}
    size = 0
    for name, value in debug.items():
        try:
            text = orjson.dumps({name: value}, default=to_float_scalar)
        except TypeError as error:
            raise InvalidStepResult(
                f"the debug value {name!r:.200} of {where} is not plain JSON: {error.__cause__ or error}",
                hint="numbers, texts, booleans, None, tensors with one element, and lists and mappings of these",
            ) from error
        size += len(text)
        if size > MOST_DEBUG:
            raise InvalidStepResult(
                f"the debug values of {where} are more than {MOST_DEBUG >> 10} KiB of JSON, with {name!r:.200}",
                hint="leave out what is large, or write it into a file",
            )
        read |= orjson.loads(text)
    return read


def read_weight(result: Any, where: str, *, rows: int) -> float:
    """The weight of a step's metrics.

    :param rows: What stands for it when the result has none.
    :raises InvalidStepResult: When it is negative or not a finite number.
    """
    given = getattr(result, "weight", None)
    if given is None:
        return float(rows)
    try:
        weight = to_float_scalar(given)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidStepResult(f"the weight of {where} is not a number: {error}") from error
    if not (math.isfinite(weight) and weight >= 0):
        raise InvalidStepResult(
            f"the weight of {where} is {weight}", hint="it is the number of samples or tokens behind the metrics"
        )
    return weight


class WeightedMeans:
    """Means by name, weighted: Σ(weight·value) / Σ weight, rounded once, so that no order of adding matters."""

    def __init__(self) -> None:
        self._products: dict[str, list[float]] = {}
        self._weights: dict[str, list[float]] = {}
        #: Of the batches without metrics.
        self._other_weights: list[float] = []

    def add(self, metrics: Mapping[str, float], weight: float) -> None:
        """Count the metrics of one batch."""
        for name, value in metrics.items():
            self._products.setdefault(name, []).append(weight * value if weight else 0.0)
            self._weights.setdefault(name, []).append(weight)
        if not metrics:
            self._other_weights.append(weight)

    @property
    def weight(self) -> float:
        """Largest weight behind a metric; without any metric, behind all batches."""
        return max((_sum(weights) for weights in self._weights.values()), default=_sum(self._other_weights))

    def totals(self) -> dict[str, tuple[float, float]]:
        """By name, the two sums."""
        return {name: (_sum(products), _sum(self._weights[name])) for name, products in self._products.items()}


def _sum(values: Sequence[float]) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # infinities of both signs, or too large a sum
        return sum(values)


def mean_over_ranks(totals: Sequence[Mapping[str, tuple[float, float]]]) -> tuple[dict[str, float], list[str]]:
    """The means over all ranks, in the order in which the first ranks name them.

    :param totals: Of each rank, by name: Σ(weight·value) and Σ weight. A rank without any weight does not count.
    :return: The means, and the names that some of the ranks lack. NaN where all weights are 0.
    """
    heard = [one for one in totals if any(weight for _, weight in one.values())] or list(totals)
    names = list(dict.fromkeys(name for one in heard for name in one))
    means = {}
    for name in names:
        pairs = [one[name] for one in heard if name in one]
        weight = _sum([weight for _, weight in pairs])
        means[name] = _sum([product for product, _ in pairs]) / weight if weight else math.nan
    return means, [name for name in names if any(name not in one for one in heard)]


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
        """Rows per second since the last reading or sign of life; the reading continues."""
        now = self.clock()
        rate = (samples - self._sign_samples) / max(now - self._sign, 1e-9)
        self._note_sign(now, samples)
        return rate

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the time inside of the block from the training's time."""
        began = self.clock()
        yield
        self._since += self.clock() - began

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
        points = history.get(name)
        if points is None:
            points = history[name] = deque(maxlen=HISTORY_POINTS)
        points.append(MetricPoint(step, value))
