"""Findings in the event log of a run: warnings, and the best value."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from hostcore.events.kinds import MEASURED
from hostcore.runs.result import RunWarning
from hostcore.runs.retrained import DIFFERS
from hostcore_builtin_plugins.control_characters import visible
from hostcore_hookspecs.events import CheckpointSaved, Event, Metrics, RunStarted, Test, Validation, Warning

#: Codes of warning events that are repeated.
OTHER_PLUGINS: Final = "resume.plugins"
OTHER_CODE: Final = "plugin.other_code"
#: Of :mod:`hostcore.worker.mistakes`.
_MISTAKES: Final = ("weights.unread", "hyperparams.unread", "optimizer.not_saved", "parameters.unchanged")
#: The codes that are repeated, with the remedy of each.
_HINTS: Final[Mapping[str, str | None]] = {
    DIFFERS: "a resume is exact when state_dict returns, and load_state_dict takes, all that the training depends on: "
    "counters, generators, and the state of datasets and callbacks; `hostcore check` finds what is missing",
    OTHER_PLUGINS: "--same-plugins refuses to resume with other plugins",
    **dict.fromkeys((OTHER_CODE, *_MISTAKES)),  # their messages have the remedy
}
#: The same as they stand in a line.
_MARKS: Final = tuple(f'"code":"{code}"'.encode() for code in _HINTS)
#: Repeated warnings, and warnings of metrics that were not finite, at the most.
_MOST: Final = 20
#: So many metrics are watched, and so many stretches of each are kept apart: a trainer may name metrics by the step.
_MOST_METRICS: Final = 1000
_MOST_STRETCHES: Final = 1000
_HINT: Final = (
    'a lower learning rate or the callback "grad-clip" may keep it finite; the callback "nonfinite-guard" ends the run '
    "at such a step, leaves its update out, or goes back to the newest checkpoint"
)
#: The loss that counts; without it, the first loss that validations report.
_FOREMOST: Final = "val/loss"
#: A line that measured finite values alone, and one of a checkpoint that is kept for a value.
_ALL_FINITE: Final = b'"nonfinite":[]'
_BEST: Final = b'"best":{"'


class Findings:
    """Warnings and the best value, by the events of a run in the order of its log."""

    def __init__(self) -> None:
        self._nonfinite = _NonfiniteMetrics()
        self._repeated = _RepeatedWarnings()
        self._best = _BestValue()

    def concerns(self, name: str | None, line: bytes) -> bool:
        """Return whether the event of a line may change the findings; others need not be decoded."""
        if name in MEASURED:
            return name == "validation" or self._nonfinite.has_open or _ALL_FINITE not in line
        if name == "warning":
            return any(mark in line for mark in _MARKS)
        return name == "run_started" or (name == "checkpoint_saved" and _BEST in line)

    def note(self, event: Event) -> None:
        """Record an event."""
        for one in (self._nonfinite, self._repeated, self._best):
            one.note(event)

    @property
    def warnings(self) -> list[RunWarning]:
        """The warnings that the user should know, whatever the status of the run."""
        return [*self._nonfinite.warnings(), *self._repeated.warnings()]

    @property
    def best(self) -> dict[str, Any] | None:
        """``metric``, ``value`` and ``step`` of the best value; None if nothing was best yet.

        It is the value that a callback had a checkpoint kept for last. In a run without any, it is the lowest loss of
        the validations: whether another metric should fall or rise is unknown.
        """
        return self._best.value


@attrs.define
class _NonfiniteStretch:
    """Recordings in a row that were not finite, by the step of the first and of the last."""

    first: int
    last: int


class _NonfiniteMetrics:
    """Stretches of recordings that were not finite, by metric."""

    def __init__(self) -> None:
        self._stretches: dict[str, list[_NonfiniteStretch]] = {}
        #: The metrics whose newest recording was not finite.
        self._open: set[str] = set()

    @property
    def has_open(self) -> bool:
        """Return whether the newest recording of any metric was not finite, so that a finite one is news."""
        return bool(self._open)

    def note(self, event: Event) -> None:
        """Record an event."""
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
            stretches.append(_NonfiniteStretch(step, step))
        if len(stretches) > _MOST_STRETCHES:
            stretches[0].last = stretches.pop(1).last
        self._open.add(name)

    def _go_back(self, step: int) -> None:
        """Begin an attempt after a step: recordings of earlier ones beyond it have not happened in this run."""
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
        """Return a warning for each metric that was not finite; the first of them, and the number of the others."""
        names = list(self._stretches)
        found = [self._warning(name) for name in names[:_MOST]]
        if len(names) > _MOST:
            rest = f"{len(names) - _MOST:,} more metrics were not finite at some steps"
            found.append(RunWarning(code="metrics.nonfinite", message=rest, hint=_HINT))
        return found

    def _warning(self, name: str) -> RunWarning:
        stretches, is_open = self._stretches[name], name in self._open
        return RunWarning(
            code="metrics.nonfinite",
            message=_message(visible(name, one_line=True), stretches, is_open=is_open),
            hint=_HINT,
            metric=name,
            first_step=stretches[0].first,
            last_step=stretches[-1].last,
            is_over=not is_open,
        )


def _message(name: str, stretches: Sequence[_NonfiniteStretch], *, is_open: bool) -> str:
    """``train/loss has not been finite since step 40``; ``train/loss was not finite at steps 40 to 60``."""
    *before, newest = stretches
    if is_open and newest.first < newest.last:
        either = f", and was not {_when(before)} either" if before else ""
        return f"{name} has not been finite since step {newest.first:,}{either}"
    return f"{name} was not finite {_when(stretches)}"


def _when(stretches: Sequence[_NonfiniteStretch]) -> str:
    first, last = stretches[0].first, stretches[-1].last
    if first == last:
        return f"at step {first:,}"
    return f"at {'' if len(stretches) == 1 else 'some of the '}steps {first:,} to {last:,}"


class _RepeatedWarnings:
    """Warning events whose codes are repeated."""

    def __init__(self) -> None:
        self._found: list[Event] = []

    def note(self, event: Event) -> None:
        """Record an event. A warning behind the step that a later attempt begins at has not happened."""
        if isinstance(event.payload, RunStarted):
            begins_at, attempt = event.step or 0, event.attempt
            self._found = [one for one in self._found if one.attempt == attempt or (one.step or 0) <= begins_at]
        elif isinstance(event.payload, Warning) and event.payload.code in _HINTS:
            self._found.append(event)

    def warnings(self) -> list[RunWarning]:
        """Return a warning for each message."""
        payloads = {one.payload.message: (one, one.payload) for one in self._found if isinstance(one.payload, Warning)}
        return [
            RunWarning(code=payload.code, message=payload.message, hint=_HINTS[payload.code], first_step=event.step)
            for event, payload in list(payloads.values())[:_MOST]
        ]


class _BestValue:
    """See :attr:`Findings.best`."""

    def __init__(self) -> None:
        #: Both grow by improvements alone, and shrink where a later attempt begins before them.
        self._kept: list[tuple[str, float, int]] = []
        self._lowest: list[tuple[str, float, int]] = []

    @property
    def value(self) -> dict[str, Any] | None:
        found = (self._kept or self._lowest)[-1:]
        return {"metric": found[0][0], "value": found[0][1], "step": found[0][2]} if found else None

    def note(self, event: Event) -> None:
        """Record an event. A value behind the step that a later attempt begins at has not happened."""
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
    """Return the loss to judge validations by; the terminal marks these names, too."""
    names = [name for name in metrics if name.endswith("loss")]
    return _FOREMOST if _FOREMOST in names else next(iter(names), None)
