"""The best value of a run, by the events of its log."""

from collections.abc import Mapping
from typing import Any, Final

from hostcore_hookspecs.events import CheckpointSaved, Event, RunStarted, Validation

#: The loss that counts; without it, the first loss that validations report.
_FOREMOST: Final = "val/loss"


class BestValue:
    """Metric, value and step of the best value, by the events of a run in the order of its log.

    It is the value that a callback had a checkpoint kept for last. In a run without any, it is the lowest loss of the
    validations: whether another metric should fall or rise is unknown.
    """

    def __init__(self) -> None:
        #: Both grow by improvements alone, and shrink where a later attempt begins before them.
        self._kept: list[tuple[str, float, int]] = []
        self._lowest: list[tuple[str, float, int]] = []

    @property
    def value(self) -> dict[str, Any] | None:
        """``metric``, ``value`` and ``step``; None if nothing was best yet."""
        found = (self._kept or self._lowest)[-1:]
        return {"metric": found[0][0], "value": found[0][1], "step": found[0][2]} if found else None

    def note(self, event: Event) -> None:
        """Take in an event. What is behind the step that a later attempt begins at has not happened."""
        step, payload = event.step or 0, event.payload
        if isinstance(payload, RunStarted):
            self._kept = [one for one in self._kept if one[2] <= step]
            self._lowest = [one for one in self._lowest if one[2] <= step]
        elif isinstance(payload, CheckpointSaved):
            self._kept += [(metric, value, step) for metric, value in payload.best.items()]
        elif isinstance(payload, Validation):
            self._judge(payload.metrics, step)

    def _judge(self, metrics: Mapping[str, float | None], step: int) -> None:
        metric = self._lowest[0][0] if self._lowest else _loss_of(metrics)
        value = metrics.get(metric) if metric else None
        if metric and value is not None and (not self._lowest or value < self._lowest[-1][1]):
            self._lowest.append((metric, value, step))


def _loss_of(metrics: Mapping[str, float | None]) -> str | None:
    """The loss to judge validations by; the terminal marks these names, too."""
    names = [name for name in metrics if name.endswith("loss")]
    return _FOREMOST if _FOREMOST in names else next(iter(names), None)
