"""The callback ``throughput``: records samples or tokens per second, and how long steps take."""

import math
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Protocol

import attrs

from hostcore_builtin_plugins.callbacks.nonfinite import numbers_of
from hostcore_builtin_plugins.callbacks.step_metrics import kept
from hostcore_hookspecs import RunState, StepContext

_STEPS_HELD: Final = 1000

#: From when, until when, and the samples or tokens of a step.
_Step = tuple[Any, Any, Any]


class Clock(Protocol):
    """Marks moments; how long it was between them is read later."""

    def mark(self) -> Any:
        """Now."""

    def seconds(self, spans: Sequence[tuple[Any, Any]]) -> list[float]:
        """The lengths of spans between two marks, the last mark being the newest."""


class HostClock:
    """The clock of the process: exact where the device works in step with it."""

    mark = staticmethod(time.perf_counter)

    def seconds(self, spans: Sequence[tuple[float, float]]) -> list[float]:
        """See :class:`Clock`."""
        return [end - begin for begin, end in spans]


class CudaClock:
    """Events in the stream of a GPU, which the process runs ahead of: marking waits for nothing, reading does."""

    def __init__(self, device: Any) -> None:
        import torch

        self._cuda: Any = torch.cuda
        self._device = device

    def mark(self) -> Any:
        """Return the time at which the stream has come to this place."""
        event = self._cuda.Event(enable_timing=True)
        event.record(self._cuda.current_stream(self._device))
        return event

    def seconds(self, spans: Sequence[tuple[Any, Any]]) -> list[float]:
        """See :class:`Clock`."""
        spans[-1][1].synchronize()
        return [begin.elapsed_time(end) / 1000 for begin, end in spans]


class Throughput:
    """Adds to the metrics of each cadence step what was achieved since the one before.

    A step's time is the wall time from the end of the step before to its own: with data, callbacks and checkpoints,
    without validations and samples.
    """

    @attrs.frozen(kw_only=True)
    class Settings:
        """The counted units."""

        unit: str = attrs.field(
            default="samples",
            validator=attrs.validators.matches_re(r"[a-z][a-z0-9_]*"),
            metadata={
                "help": "What the trainer's `StepResult.weight` counts, such as `tokens`: a part of the metric's name. "
                "A step without a weight counts the rows of its batches."
            },
        )

    def __init__(self, *, settings: Settings) -> None:
        self._unit = settings.unit
        self._clock: Clock = HostClock()
        self._mark = self._clock.mark
        self._steps: deque[_Step] = deque(maxlen=_STEPS_HELD)
        #: The end of the step before, or of what came between.
        self._begin: Any = None
        self._metric_every = 0

    def on_train_begin(self, ctx: StepContext) -> None:
        """Choose the clock of the device."""
        if str(ctx.device).startswith("cuda"):
            self._clock = CudaClock(ctx.device)
        self._mark = self._clock.mark
        self._metric_every = ctx.job.metric_every

    def on_batch_begin(self) -> None:
        """Mark where the first step begins."""
        if self._begin is None:
            self._begin = self._mark()

    def on_batch_end(self, result: Any, run_state: RunState, ctx: StepContext) -> None:
        """Mark the end of each step; at a cadence step, read the marks and report."""
        end = self._mark()
        self._steps.append((self._begin, end, kept(getattr(result, "weight", None))))
        self._begin = end
        every, step = self._metric_every, run_state.step
        if not every or (step % every and step != run_state.total_steps):
            return
        if not getattr(getattr(result, "control", None), "skip_cadence_emit", False):
            for name, value in self._report(ctx).items():
                ctx.record(name, value)

    def on_validation_end(self) -> None:
        """A validation is no part of a step."""
        self._begin = self._mark()

    def on_sample_saved(self) -> None:
        """A sample is no part of a step."""
        self._begin = self._mark()

    def _report(self, ctx: StepContext) -> dict[str, float]:
        job = ctx.job
        rows = job.batch_size * job.accumulate if job.dataset is not None else job.accumulate
        seconds = self._clock.seconds([(begin, end) for begin, end, _ in self._steps])
        counted = sum(numbers_of([rows if weight is None else weight for _, _, weight in self._steps]))
        self._steps.clear()
        seconds.sort()
        # The host records the mean over the ranks; that of world_size · rate is the rate of all ranks together.
        rate = ctx.world_size * counted / max(sum(seconds), 1e-9)
        return {
            f"throughput/{self._unit}_per_second": rate,
            "throughput/step_seconds_p50": _percentile(seconds, 50),
            "throughput/step_seconds_p95": _percentile(seconds, 95),
            "throughput/step_seconds_max": seconds[-1],
        }


def _percentile(ordered: Sequence[float], percent: int) -> float:
    """The smallest value that so many percent of all are not above."""
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]
