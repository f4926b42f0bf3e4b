"""Contents of a run's event log, read once from end to end, in bounded memory."""

import math
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from hostcore.events.codec import CorruptLog, decode_event, unknown_text
from hostcore.events.kinds import EVENT_KINDS, MEASURED, EventKind
from hostcore.events.reader import LONGEST_RECORD, GrowingLog
from hostcore_builtin_plugins.messages import text_of
from hostcore_inspect.report.curve import Curve

#: More metrics than these are counted and not kept.
_MOST_CURVES: Final = 2_000
#: Of each kind of event, so many of the first and of the newest are kept.
_FIRST: Final = 50
_NEWEST: Final = 200
#: Filters of the event table, by the kinds of events; routine progress is counted, not listed.
_TOLD: Final[Mapping[EventKind | None, str]] = {
    EventKind.WARNING: "warnings",
    EventKind.BEGIN: "life",
    EventKind.STOP: "life",
    EventKind.END: "life",
    EventKind.FILE: "files",
}
#: What the host measures itself, and what the plot of it is called.
PACE: Final[Mapping[str, str]] = {
    "samples_per_second": "samples per second",
    "step_seconds": "seconds per step",
    "data_wait_seconds": "seconds per step spent waiting for data",
}


@attrs.frozen(kw_only=True)
class SavedCheckpoint:
    """A ``checkpoint_saved`` event."""

    step: int
    epoch: int | None
    attempt: int
    time_ms: int
    bytes: int
    final: bool
    #: The metrics that were never better.
    best: Mapping[str, float]


@attrs.frozen(kw_only=True)
class EventRow:
    """An event as people read it."""

    seq: int
    #: As in :data:`_TOLD`.
    kind: str
    name: str
    time_ms: int
    step: int | None
    attempt: int
    message: str

    @classmethod
    def of(cls, line: bytes, *, kind: str) -> "EventRow":
        """From a line of the log. What a newer hostcore wrote is shown as it is."""
        found = orjson.loads(line)
        try:
            message = text_of(decode_event(line)).removeprefix("warning: ")
        except CorruptLog:
            message = unknown_text(found)
        return cls(
            seq=found.get("seq") or 0,
            kind=kind,
            name=found["event"],
            time_ms=found.get("time_ms") or 0,
            step=found.get("step"),
            attempt=found.get("attempt"),
            message=message,
        )


class EventExcerpt:
    """The first lines of something and the newest ones."""

    def __init__(self) -> None:
        self._first: list[bytes] = []
        self._newest: deque[bytes] = deque(maxlen=_NEWEST)
        self._count = 0

    def add(self, line: bytes) -> None:
        """Take in the next line."""
        self._count += 1
        (self._first if len(self._first) < _FIRST else self._newest).append(line)

    @property
    def lines(self) -> list[bytes]:
        """Those kept, in their order."""
        return [*self._first, *self._newest]

    @property
    def left_out(self) -> int:
        """Number of lines missing between the first and the newest ones."""
        return self._count - len(self.lines)


class Recording:
    """Contents of an event log. Lines that are no events are counted and skipped."""

    def __init__(self) -> None:
        #: Events by name.
        self.counts: dict[str, int] = {}
        #: Lines that are no events.
        self.unreadable = 0
        #: By metric, in the order of their first appearance.
        self.curves: dict[str, Curve] = {}
        #: By the keys of :data:`PACE`.
        self.pace: dict[str, Curve] = {}
        #: Metrics for which there was no room.
        self.curves_left_out: set[str] = set()
        #: By step; of a step that was saved twice, the last.
        self.saved: dict[int, SavedCheckpoint] = {}
        #: Finished steps when each attempt began to train.
        self.begun_at: dict[int, int] = {}
        #: Lines worth telling, by kind: ``warnings``, ``life``, ``files``, ``other``.
        self.told: dict[str, EventExcerpt] = {kind: EventExcerpt() for kind in ("warnings", "life", "files", "other")}

    @classmethod
    def read(cls, path: Path) -> "Recording":
        """Read a log; one that does not exist yet has no events. A line that is still being written is left out."""
        recording = cls()
        for line in GrowingLog(path).records(longest=LONGEST_RECORD):
            if line:  # nothing is left of one that is too long
                recording.add(line)
        return recording

    @property
    def count(self) -> int:
        """Events in the log."""
        return sum(self.counts.values())

    @property
    def last_step(self) -> int:
        """The last step that something was measured at or saved."""
        curves = (*self.curves.values(), *self.pace.values())
        return max([0, *self.saved, *(curve.last[0] for curve in curves if curve.last)])

    def add(self, line: bytes) -> None:
        """Take in a line."""
        try:
            found = orjson.loads(line)
            name = found["event"]
            if name in MEASURED:
                self._measure(found)
            elif name == "run_started":
                self.begun_at[found["attempt"]] = found["step"] or 0
            elif name == "checkpoint_saved":
                self._save(found)
        except (KeyError, TypeError, ValueError, AttributeError):
            self.unreadable += 1
            return
        self.counts[name] = self.counts.get(name, 0) + 1
        if (kind := EVENT_KINDS.get(name)) is not EventKind.PROGRESS:
            self.told[_TOLD.get(kind, "other")].add(line)

    def _measure(self, found: Mapping[str, Any]) -> None:
        step, attempt = found["step"], found["attempt"]
        begun_at = self.begun_at.get(attempt, 0)
        for name, value in found["metrics"].items():
            curve = self.curves.get(name) or self._new_curve(name)
            if curve is not None:
                curve.add(step, _finite(value), attempt=attempt, begun_at=begun_at)
        for name in PACE:
            if (value := found.get(name)) is not None:
                if name not in self.pace:
                    self.pace[name] = Curve()
                self.pace[name].add(step, _finite(value), attempt=attempt, begun_at=begun_at)

    def _new_curve(self, name: str) -> Curve | None:
        if len(self.curves) >= _MOST_CURVES:
            self.curves_left_out.add(name)
            return None
        self.curves[name] = Curve()
        return self.curves[name]

    def _save(self, found: Mapping[str, Any]) -> None:
        step = found["step"]
        self.saved.pop(step, None)
        self.saved[step] = SavedCheckpoint(
            step=step,
            epoch=found["epoch"],
            attempt=found["attempt"],
            time_ms=found["time_ms"],
            bytes=found["bytes"],
            final=found["final"],
            best=found.get("best") or {},
        )


def _finite(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
