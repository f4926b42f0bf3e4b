"""Progress of a run, by its events."""

import math
from collections import deque
from collections.abc import Mapping, Sequence

import attrs

from hostcore_hookspecs.events import Event, Metrics, Progress, RunStarted, RunSubmitted, Validation

#: How many events back the rate looks: long enough to even out a slow step, short enough to follow a change.
_WINDOW = 50


@attrs.define(kw_only=True, eq=False)
class RunProgress:
    """Progress of an attempt. Rates come from the events' own times, so that a replay shows what the run showed."""

    #: Finished steps.
    step: int = 0
    #: 0: not known.
    total: int = 0
    #: The metric shown, by its short name; NaN where it was not finite.
    metric: tuple[str, float] | None = None
    #: The metric shown of the newest validation, likewise.
    validated: tuple[str, float] | None = None
    #: The names of the metrics that were not finite last time.
    nonfinite: Sequence[str] = ()
    samples_per_second: float | None = None
    _points: "deque[tuple[int, int]]" = attrs.field(factory=lambda: deque(maxlen=_WINDOW))

    def update(self, event: Event) -> None:
        """Take in an event."""
        if event.step is not None:
            self.step = event.step
        payload = event.payload
        if isinstance(payload, RunSubmitted):
            self.total = payload.total_steps or payload.max_steps
            self._points.clear()
        elif isinstance(payload, RunStarted):
            # Loading and setting up are no part of a step's time, and the steps of earlier attempts are not ours.
            self._points.clear()
            self._points.append((event.time_ms, self.step))
        elif isinstance(payload, Validation):
            self.validated = _shown_metric(payload.metrics, loss="val/loss") or self.validated
        elif isinstance(payload, (Metrics, Progress)):
            self._points.append((event.time_ms, self.step))
            if payload.samples_per_second is not None:
                self.samples_per_second = payload.samples_per_second
            if isinstance(payload, Metrics):
                self.metric = _shown_metric(payload.metrics) or self.metric
                self.nonfinite = payload.nonfinite

    @property
    def fraction(self) -> float | None:
        """The part that is done, 0 to 1; None if the total is not known."""
        return min(1.0, self.step / self.total) if self.total else None

    @property
    def eta_seconds(self) -> float | None:
        """The time that the remaining steps take at the present rate; None if that is not known."""
        if not self.total or len(self._points) < 2:
            return None
        (begin_ms, begin_step), (end_ms, end_step) = self._points[0], self._points[-1]
        if end_step <= begin_step or end_ms <= begin_ms:
            return None
        return max(0, self.total - self.step) * (end_ms - begin_ms) / (end_step - begin_step) / 1000

    def parts(self) -> dict[str, str]:
        """Return the known facts as texts: ``step``, ``metric``, ``validated``, ``rate``, ``eta``, ``nonfinite``."""
        parts = {"step": f"step {self.step}/{self.total}" if self.total else f"step {self.step}"}
        if self.metric:
            parts["metric"] = f"{self.metric[0]} {format_value(self.metric[1])}"
        if self.validated:
            parts["validated"] = f"{self.validated[0]} {format_value(self.validated[1])}"
        if self.samples_per_second is not None:
            parts["rate"] = f"{format_rate(self.samples_per_second)} samples/s"
        if self.eta_seconds is not None:
            parts["eta"] = f"eta {format_duration(self.eta_seconds)}"
        if self.nonfinite:
            parts["nonfinite"] = f"not finite: {', '.join(self.nonfinite)}"
        return parts


def _shown_metric(metrics: Mapping[str, float | None], *, loss: str = "train/loss") -> tuple[str, float] | None:
    name = loss if loss in metrics else next(iter(metrics), None)
    if name is None:
        return None
    value = metrics[name]
    return name.removeprefix("train/"), math.nan if value is None else value


def format_value(value: float | None) -> str:
    """A metric in four digits; ``nan`` for one that was not finite."""
    return "nan" if value is None else f"{value:.4g}"


def format_devices(devices: Sequence[str]) -> str:
    """``cpu``; ``2 ranks: cuda:0, cuda:1``.

    :param devices: By rank.
    """
    return f"{len(devices)} ranks: {', '.join(devices)}" if len(devices) > 1 else "".join(devices)


def format_rate(rate: float) -> str:
    """Samples per second: ``12,345``, ``0.25``."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def format_duration(seconds: float) -> str:
    """``0:42``, ``1:02:03``, ``2d 03:04:05``."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d {hour:02}:{minute:02}:{second:02}"
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"


def format_bytes(size: int) -> str:
    """``999 B``, ``1.2 MB``, in powers of 1000."""
    amount, units = float(size), ["B", "kB", "MB", "GB", "TB"]
    while amount >= 1000 and len(units) > 1:
        amount /= 1000
        units.pop(0)
    return f"{amount:.3g} {units[0]}" if units[0] != "B" else f"{size} B"
