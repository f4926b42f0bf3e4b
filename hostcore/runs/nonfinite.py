"""Metrics that were not finite: which, and at which steps, over all attempts of a run."""

from collections.abc import Sequence
from typing import Final

import attrs

from hostcore.runs.result import RunWarning
from hostcore_builtin_plugins.control_characters import visible
from hostcore_hookspecs.events import Event, Metrics, RunStarted, Test, Validation

#: So many metrics are watched, and so many stretches of each are told apart: a trainer may name metrics by the step.
_MOST_METRICS: Final = 1000
_MOST_STRETCHES: Final = 1000
#: So many of them have a warning of their own.
_MOST_WARNINGS: Final = 20

CODE: Final = "metrics.nonfinite"
_HINT: Final = (
    'a lower learning rate or the callback "grad-clip" may keep it finite; the callback "nonfinite-guard" ends the run '
    "at such a step, leaves its update out, or goes back to the newest checkpoint"
)


@attrs.define
class _Stretch:
    """Recordings in a row that were not finite, by the step of the first and of the last."""

    first: int
    last: int


class NonfiniteMetrics:
    """Notes the events of a run, in the order of its log."""

    def __init__(self) -> None:
        self._stretches: dict[str, list[_Stretch]] = {}
        #: The metrics whose newest recording was not finite.
        self._open: set[str] = set()

    @property
    def has_open(self) -> bool:
        """Whether the newest recording of any metric was not finite, so that a finite one is news."""
        return bool(self._open)

    def note(self, event: Event) -> None:
        """Take in an event."""
        step, payload = event.step or 0, event.payload
        if isinstance(payload, RunStarted):
            self._go_back(step)
        elif isinstance(payload, (Metrics, Validation, Test)):
            for name, value in payload.metrics.items():
                if value is None:
                    self._add(name, step)
                else:
                    self._open.discard(name)

    def _add(self, name: str, step: int) -> None:
        if name not in self._stretches and len(self._stretches) >= _MOST_METRICS:
            return
        stretches = self._stretches.setdefault(name, [])
        if stretches and name in self._open:
            stretches[-1].last = step
        else:
            stretches.append(_Stretch(step, step))
        if len(stretches) > _MOST_STRETCHES:
            stretches[0].last = stretches.pop(1).last
        self._open.add(name)

    def _go_back(self, step: int) -> None:
        """An attempt begins after a step: what earlier ones recorded beyond it has not happened in this run."""
        for name, stretches in list(self._stretches.items()):
            kept = [one for one in stretches if one.first <= step]
            if kept and kept[-1].last >= step:
                kept[-1].last = step
                self._open.add(name)
            elif len(kept) < len(stretches):
                self._open.discard(name)
            self._stretches[name] = kept
            if not kept:
                del self._stretches[name]

    def warnings(self) -> list[RunWarning]:
        """A warning for each metric that was not finite; the first of them, and how many more there are."""
        names = list(self._stretches)
        told = [self._warning(name) for name in names[:_MOST_WARNINGS]]
        if len(names) > _MOST_WARNINGS:
            rest = f"{len(names) - _MOST_WARNINGS:,} more metrics were not finite at some steps"
            told.append(RunWarning(code=CODE, message=rest, hint=_HINT))
        return told

    def _warning(self, name: str) -> RunWarning:
        stretches, is_open = self._stretches[name], name in self._open
        return RunWarning(
            code=CODE,
            message=_told(visible(name, one_line=True), stretches, is_open=is_open),
            hint=_HINT,
            metric=name,
            first_step=stretches[0].first,
            last_step=stretches[-1].last,
            is_over=not is_open,
        )


def _told(name: str, stretches: Sequence[_Stretch], *, is_open: bool) -> str:
    """``train/loss has not been finite since step 40``; ``train/loss was not finite at steps 40 to 60``."""
    *before, newest = stretches
    if is_open and newest.first < newest.last:
        either = f", and was not {_when(before)} either" if before else ""
        return f"{name} has not been finite since step {newest.first:,}{either}"
    return f"{name} was not finite {_when(stretches)}"


def _when(stretches: Sequence[_Stretch]) -> str:
    first, last = stretches[0].first, stretches[-1].last
    if first == last:
        return f"at step {first:,}"
    return f"at {'' if len(stretches) == 1 else 'some of the '}steps {first:,} to {last:,}"
