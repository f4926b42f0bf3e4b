"""What has arrived at the other side of a reporter, as its author's harness shows it."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from hostcore_conformance.errors import ConformanceError, InvalidExample, NotApplicable
from hostcore_conformance.event_fixtures import EventFixtures
from hostcore_conformance.harness_method import harness_method
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.events import Event

#: Some sinks show what they have taken a moment later. A harness may say otherwise, with ``settle_seconds``.
_SETTLE_SECONDS: Final = 3.0
_LOOK_SECONDS: Final = 0.05


def is_live_only(subject: Subject) -> bool:
    """Whether the reporter shows only what happens now."""
    return getattr(subject.owner, "LIVE_ONLY", False) is True


def harness_can(subject: Subject, name: str, purpose: str) -> Callable[..., Any]:
    """A method of the harness; of a reporter that keeps nothing, none is asked for.

    :raises NotApplicable: There is none.
    """
    if is_live_only(subject) and not callable(getattr(subject.harness, name, None)):
        raise NotApplicable("it shows what happens now, and keeps nothing (LIVE_ONLY)")
    found: Callable[..., Any] = harness_method(subject, name, purpose)
    return found


def sink_if_any(subject: Subject, fixtures: EventFixtures) -> "Sink | None":
    """What there is to look with; None if the reporter keeps nothing, or the author gave nothing."""
    if is_live_only(subject) or not callable(getattr(subject.harness, "received", None)):
        return None
    return Sink(subject, fixtures)


class Sink:
    """The events of one run that are there.

    :raises NotApplicable: The author gave nothing to look with.
    """

    def __init__(self, subject: Subject, fixtures: EventFixtures) -> None:
        if is_live_only(subject):
            raise NotApplicable("it shows what happens now, and keeps nothing (LIVE_ONLY)")
        self._received: Callable[[], Sequence[Mapping[str, Any]]]
        self._received = harness_method(subject, "received", "so that the kit can see what has arrived")
        #: The names of the events that the sink has a place for; None: of all.
        self._keeps: Collection[str] | None = getattr(subject.harness, "keeps", None)
        self._settle_seconds = float(getattr(subject.harness, "settle_seconds", _SETTLE_SECONDS))
        self._course = fixtures
        self._before = len(self._received())

    def kept(self, events: Sequence[Event]) -> list[Event]:
        """Those of some events that the sink has a place for."""
        return [event for event in events if self._keeps is None or event.name in self._keeps]

    @property
    def items(self) -> list[tuple[int, Mapping[str, Any]]]:
        """What has arrived of the run, in the order of arrival, each with the number of its event.

        :raises InvalidExample: The harness shows something that is no event.
        """
        seq_at = {event.time_ms: event.seq for event in self._course.events}
        found = []
        for place, item in enumerate(self._received()):
            if not isinstance(item, Mapping) or not ({"seq", "time_ms"} & set(item)):
                raise InvalidExample(
                    f"received() of the harness has {item!r:.200}",
                    hint='Each is a mapping with "seq", or, where the sink has no numbers, with "time_ms".',
                )
            if item.get("run_id", self._course.run_id) != self._course.run_id:
                continue
            if "run_id" not in item and place < self._before:
                continue  # of another check
            seq = int(item["seq"]) if "seq" in item else seq_at.get(int(item["time_ms"]), 0)
            found.append((seq, item))
        return found

    @property
    def seqs(self) -> list[int]:
        """The numbers of the events that have arrived, in the order of arrival."""
        return [seq for seq, _ in self.items]

    def require(self, events: Sequence[Event], *, when: str, fix: str) -> None:
        """See that events are there.

        :param when: ``after close()``.
        :raises ConformanceError: One is not.
        """
        expected = [event.seq for event in self.kept(events)]
        deadline = time.monotonic() + self._settle_seconds
        while (missing := sorted(set(expected) - set(self.seqs))) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        if not missing:
            return
        there = sorted(set(self.seqs))
        has = f"the last one there has seq {there[-1]}" if there else "none of the run is there"
        raise ConformanceError(
            expected=f"the events with seq {spans(expected)} at the sink {when}",
            got=f"{len(missing)} of {len(expected)} missing: {self._names(missing)}; {has}",
            fix=fix,
        )

    def _names(self, seqs: Sequence[int]) -> str:
        by_seq = {event.seq: event.name for event in self._course.events}
        shown = ", ".join(f"seq {seq} ({by_seq[seq]})" for seq in seqs[:5])
        return f"{shown}, …" if len(seqs) > 5 else shown


def spans(numbers: Sequence[int]) -> str:
    """Numbers in words: ``1 to 7``, ``3, 5 and 9``."""
    if len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    *most, last = map(str, numbers)
    return f"{', '.join(most)} and {last}" if most else last
