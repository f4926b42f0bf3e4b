"""Contents of an event log, gathered for checking it: every line is read, and nothing is taken for granted."""

from array import array
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from hostcore.events.kinds import MEASURED
from hostcore.events.reader import GrowingLog
from hostcore.runs.retrained import Retrained
from hostcore.verification.due_checks import Due
from hostcore_hookspecs.events import ENDS

#: Recordings of a metric to keep: a checkpoint is written while the training continues.
_POINTS: Final = 64
#: The newest checkpoints of which the log's metrics are kept.
_MOST_MEASURED: Final = 1000


@attrs.frozen(kw_only=True)
class Saved:
    """A ``checkpoint_saved`` event."""

    seq: int
    attempt: int
    step: int
    bytes: int
    final: bool
    #: The newest value of each metric at that step, from the newest events before this one.
    metrics: Mapping[str, float | None] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Resumed:
    """A ``run_resumed`` event."""

    attempt: int
    #: Finished steps in the checkpoint.
    step: int
    #: Below the run directory, or absolute if it is another run's.
    path: str


@attrs.frozen(kw_only=True)
class End:
    """The event that ends an attempt."""

    seq: int
    attempt: int
    status: str
    step: int | None
    #: Whether the worker recorded it itself; else the supervisor did, for a worker that could not.
    by_worker: bool


@attrs.define(kw_only=True)
class LogRecord:
    """Contents of an event log."""

    #: Events read.
    count: int = 0
    #: Bytes behind the last whole line.
    torn_bytes: int = 0
    #: Lines that are no events, and numbers that do not follow each other; in words.
    broken: list[str] = attrs.field(factory=list)
    #: Steps that were recorded twice by one attempt, or out of order; in words.
    disorder: list[str] = attrs.field(factory=list)
    #: What came after an attempt's end; in words.
    after_end: list[str] = attrs.field(factory=list)
    ends: list[End] = attrs.field(factory=list)
    #: The attempts that were submitted.
    submitted: set[int] = attrs.field(factory=set)
    #: Finished steps when each attempt began to train.
    started: dict[int, int] = attrs.field(factory=dict)
    saved: list[Saved] = attrs.field(factory=list)
    resumed: list[Resumed] = attrs.field(factory=list)
    #: The step measured last by each attempt, and how many were measured.
    measured: dict[int, int] = attrs.field(factory=dict)
    due: Due = attrs.field(factory=Due)
    #: Where events were first written: the offsets in the log of each rank and attempt, in order.
    sources: "dict[tuple[int, int], array[int]]" = attrs.field(factory=dict)
    #: What attempts measured again after a resume.
    retrained: Retrained = attrs.field(factory=Retrained)
    #: The number of the last event.
    last_seq: int = 0
    #: The first end of each attempt that has one.
    _ended: dict[int, End] = attrs.field(factory=dict)
    _last_step: dict[tuple[int, str], int] = attrs.field(factory=dict)
    #: By metric, the newest recordings of the history that the run stands in: step and value.
    _values: dict[str, deque[tuple[int, float | None]]] = attrs.field(factory=dict)

    @classmethod
    def read(cls, path: Path) -> "LogRecord":
        """Read a log from its beginning to its end. One that does not exist has no events."""
        log, record = GrowingLog(path), cls()
        for number, line in enumerate(log.read(), start=1):
            try:
                record.add(orjson.loads(line))
            except (KeyError, TypeError, ValueError, AttributeError):
                record.broken.append(f"line {number} is no event")
        record.torn_bytes = len(log.rest())
        return record

    def add(self, event: Mapping[str, Any]) -> None:
        """Take in the next event.

        :raises KeyError, TypeError, ValueError: When it is none.
        """
        seq, attempt, name, step = event["seq"], event["attempt"], event["event"], event["step"]
        if seq != self.last_seq + 1:
            self.broken.append(f"after event {self.last_seq} comes event {seq}")
        self.last_seq = seq
        self.count += 1
        if event["src"]:
            rank, of_attempt, offset = event["src"]
            self.sources.setdefault((rank, of_attempt), array("q")).append(offset)
        if name in ENDS:
            status = name.removeprefix("run_")
            end = End(seq=seq, attempt=attempt, status=status, step=step, by_worker=event["src"] is not None)
            self.ends.append(end)
            self._ended.setdefault(attempt, end)
        elif name != "reporter_failed" and attempt in self._ended:
            self.after_end.append(f"attempt {attempt} has ended before its event {seq} ({name})")
        if name in Retrained.NAMES:
            self.retrained.note(event)
        self.due.add(event)
        if name in MEASURED:
            self._note_step(attempt, name, step, event["metrics"])
        elif name == "checkpoint_saved":
            about = {"bytes": event["bytes"], "final": event["final"], "metrics": self._values_at(step)}
            saved = Saved(seq=seq, attempt=attempt, step=step, **about)
            if len(self.saved) >= _MOST_MEASURED:
                self.saved[-_MOST_MEASURED] = attrs.evolve(self.saved[-_MOST_MEASURED], metrics={})
            self.saved.append(saved)
        elif name == "run_resumed":
            self.resumed.append(Resumed(attempt=attempt, step=step, path=event["path"]))
        elif name == "run_submitted":
            self.submitted.add(attempt)
        elif name == "run_started":
            self._begin(attempt, step or 0)

    def _begin(self, attempt: int, step: int) -> None:
        self.started[attempt] = step
        for name, points in self._values.items():  # what was recorded beyond that step has not happened
            self._values[name] = deque((one for one in points if one[0] <= step), maxlen=_POINTS)

    def _values_at(self, step: int) -> dict[str, float | None]:
        """The values that were recorded last up to a step, of the metrics of which that is known."""
        before = {name: [value for at, value in points if at <= step] for name, points in self._values.items()}
        return {name: values[-1] for name, values in before.items() if values}

    def _note_step(self, attempt: int, name: str, step: int, metrics: Mapping[str, float | None]) -> None:
        before = self._last_step.get((attempt, name), self.started.get(attempt, 0) if name == "metrics" else -1)
        if step <= before:
            self.disorder.append(f"attempt {attempt} recorded {name} of step {step} after those of step {before}")
        self._last_step[attempt, name] = step
        self.measured[attempt] = self.measured.get(attempt, 0) + 1
        for metric, value in metrics.items():
            self._values.setdefault(metric, deque(maxlen=_POINTS)).append((step, value))

    def end_of(self, attempt: int) -> End | None:
        """The end of an attempt; None if it has none."""
        return self._ended.get(attempt)
