"""The metric that a callback watches, its origin and the better direction; the base of callbacks that judge it."""

import difflib
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from itertools import takewhile
from typing import Annotated, Final, Literal

import attrs
from annotated_types import Ge

from hostcore_hookspecs import InvalidSettings, RunState, StepContext

Mode = Literal["auto", "min", "max"]

_TRAINING: Final = "train/"
_VALIDATION: Final = "val/"
_DIRECTIONS: Final[Mapping[str, Literal["min", "max"]]] = {
    "loss": "min",
    "error": "min",
    "perplexity": "min",
    "accuracy": "max",
}


@attrs.frozen(kw_only=True)
class Monitor:
    """A metric that is watched.

    A name that begins with ``train/`` is a training metric, read at the end of an epoch; every other is one of the
    validation, where a name without a slash gains ``val/``.
    """

    #: As it is recorded; a training metric may be recorded without its ``train/``.
    name: str
    #: Whether it comes from the training, not from the validation.
    of_training: bool
    mode: Literal["min", "max"]

    @classmethod
    def of(cls, name: str, mode: Mode) -> "Monitor":
        """The monitor that settings ask for.

        :param mode: ``auto`` is ``min`` for a name with ``loss``, ``error`` or ``perplexity`` in it, and ``max`` for
            one with ``accuracy``.
        :raises InvalidSettings: When the metric cannot be watched, or ``auto`` does not know which way is better.
        """
        name = name if "/" in name else f"val/{name}"
        if name.startswith("test/"):
            raise InvalidSettings("/monitor", f"{name!r} is known after the training alone", hint="monitor val/…")
        found = mode if mode != "auto" else _direction(name)
        if found is None:
            raise InvalidSettings(
                "/mode", f"nothing says whether {name!r} is better low or high", hint='say so: "mode": "min", or "max"'
            )
        return cls(name=name, of_training=name.startswith(_TRAINING), mode=found)

    def check_job(self, ctx: StepContext) -> None:
        """Find out before the first step that there will never be such a metric.

        :raises InvalidSettings: When the job never validates, or never records training metrics.
        """
        if self.of_training and not ctx.job.metric_every:
            raise InvalidSettings(
                "/monitor", f"there is never a {self.name}: the job's metric_every is 0", hint="set metric_every"
            )
        if not self.of_training and not ctx.job.validate_every:
            raise InvalidSettings(
                "/monitor",
                f"there is never a {self.name}: the job never validates",
                hint='give it "validation" data and "validate_every", or monitor a training metric: "train/loss"',
            )

    def in_validation(self, metrics: Mapping[str, float], *, required: bool) -> float:
        """The value that a validation has found; NaN when it has not reported the metric.

        :param required: Whether that is an error: it was never reported before.
        :raises InvalidSettings: When it is; names what there is.
        """
        if self.name not in metrics and required:
            raise self._missing(f"the validation reports no metric {self.name!r}", metrics)
        return metrics.get(self.name, math.nan)

    def check_sanity(self, metrics: Mapping[str, float]) -> None:
        """Refuse a metric that the first batches of the validation data do not report.

        The first validation decides instead where a trainer reports nothing here, and for a name that does not begin
        with ``val/``: it may be there only after steps, as ``epoch/loss`` is.

        :raises InvalidSettings: See :meth:`in_validation`.
        """
        if metrics and self.name.startswith(_VALIDATION):
            self.in_validation(metrics, required=True)

    def in_training(self, run_state: RunState, ctx: StepContext, *, after: int) -> float | None:
        """The mean of the values recorded after a step; None when there are none.

        :raises InvalidSettings: When others have been recorded, but never one of this metric.
        """
        history = run_state.history
        points = history.get(self.name) or history.get(self.name.removeprefix(_TRAINING))
        if not points:
            others = [name for name in history if not name.startswith("val/")]
            if others and run_state.step >= ctx.job.metric_every:
                raise self._missing(f"the training reports no metric {self.name!r}", others)
            return None
        values = [point.value for point in takewhile(lambda point: point.step > after, reversed(points))]
        return sum(values) / len(values) if values else None

    def better(self, value: float, than: float | None, *, by: float = 0.0) -> bool:
        """Return True if a value is better than another by more than a margin. Only a finite number is ever better.

        :param than: None: any finite number is better.
        """
        if not math.isfinite(value):
            return False
        if than is None:
            return True
        return value < than - by if self.mode == "min" else value > than + by

    def _missing(self, message: str, names: Collection[str]) -> InvalidSettings:
        listed = ", ".join(repr(name) for name in sorted(names)) or "none"
        near = difflib.get_close_matches(self.name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "monitor one of these"
        return InvalidSettings("/monitor", f"{message}; it reports {listed}", hint=hint if names else None)


def _direction(name: str) -> Literal["min", "max"] | None:
    last = name.rpartition("/")[2].lower()
    meant = {direction for word, direction in _DIRECTIONS.items() if word in last}
    return meant.pop() if len(meant) == 1 else None


@attrs.frozen(kw_only=True)
class MonitorSettings:
    """The watched metric."""

    monitor: str = attrs.field(
        default="val/loss",
        metadata={
            "help": "The metric. A name without a slash gains `val/`; one that begins with `train/` is a training "
            "metric, judged at the end of each epoch."
        },
    )
    min_delta: Annotated[float, Ge(0)] = attrs.field(
        default=0.0, metadata={"help": "Better is what is better by more than this."}
    )
    mode: Mode = attrs.field(
        default="auto",
        metadata={
            "help": "Whether less (`min`) or more (`max`) is better. `auto`: `min` for a name with `loss`, `error` "
            "or `perplexity` in it, `max` for one with `accuracy`; any other name needs a word."
        },
    )


class MonitorCallback(ABC):
    """Judges a metric: of the validation after each validation, of the training at the end of each epoch."""

    def __init__(self, *, settings: MonitorSettings) -> None:
        self._monitor = Monitor.of(settings.monitor, settings.mode)
        #: The step of the last judgement; 0 before the first.
        self._judged_step = 0

    @abstractmethod
    def _judge(self, value: float, run_state: RunState, ctx: StepContext) -> None:
        """Judge a value of the metric.

        :param value: NaN, if a validation has not reported the metric.
        """

    def on_train_begin(self, ctx: StepContext) -> None:
        """Refuse a metric that will never be there.

        :raises InvalidSettings: See :meth:`Monitor.check_job`.
        """
        self._monitor.check_job(ctx)

    def on_sanity_checked(self, metrics: Mapping[str, float]) -> None:
        """Refuse a metric that the validation does not report.

        :raises InvalidSettings: See :meth:`Monitor.check_sanity`.
        """
        self._monitor.check_sanity(metrics)

    def on_validation_end(self, metrics: Mapping[str, float], run_state: RunState, ctx: StepContext) -> None:
        """Judge a metric of the validation.

        :raises InvalidSettings: When the first validation does not report it.
        """
        if not self._monitor.of_training:
            value = self._monitor.in_validation(metrics, required=not self._judged_step)
            self._judged_step = run_state.step
            self._judge(value, run_state, ctx)

    def on_epoch_end(self, run_state: RunState, ctx: StepContext) -> None:
        """Judge a training metric, if it was recorded since the last time.

        :raises InvalidSettings: When others were recorded, but never this one.
        """
        if self._monitor.of_training:
            value = self._monitor.in_training(run_state, ctx, after=self._judged_step)
            if value is not None:
                self._judged_step = run_state.step
                self._judge(value, run_state, ctx)
