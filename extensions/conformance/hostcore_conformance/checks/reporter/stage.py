"""Tools of the reporter checks: a reporter as the host serves it, and the contents of its sink."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from hostcore_conformance.errors import ConformanceError, InvalidExample, NotApplicable
from hostcore_conformance.event_fixtures import EventFixtures
from hostcore_conformance.served import Served, patience_seconds
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.errors import FatalError, TransientError
from hostcore_hookspecs.events import Event

#: Some sinks show what they have taken a moment later. A harness may set another time, with ``settle_seconds``.
_SETTLE_SECONDS: Final = 3.0
_LOOK_SECONDS: Final = 0.05
#: How long a reporter may need to see that its sink is back.
_RECOVERY_SECONDS: Final = 15.0
_PAUSE_SECONDS: Final = 0.1


class ServedReporter(Served):
    """An instance of the reporter, in one thread."""

    def attempt_as_host(self, method: str, *arguments: Any) -> BaseException | None:
        """Call a method, and again after a :class:`TransientError`, as the host does; it closes but once.

        A busy machine may be slower than the short timeout of an example allows.

        :return: What it has raised last.
        :raises ConformanceError: It does not come back.
        """
        error = self.error(method, *arguments)
        is_tried_again = isinstance(error, TransientError) and method != "close"
        return self._again(method, *arguments, first=error) if is_tried_again else error

    def error(self, method: str, *arguments: Any) -> BaseException | None:
        """Call a method: what it has raised.

        :raises ConformanceError: It does not come back.
        """
        came = self.attempt(method, *arguments)
        return came if isinstance(came, BaseException) else None

    def require(self, method: str, *arguments: Any, fix: str, what: str = "") -> None:
        """Call a method as :meth:`attempt_as_host` does; it must not raise."""
        self.returned(self.attempt_as_host(method, *arguments), method, fix=fix, what=what)

    def open(self, fixtures: EventFixtures) -> None:
        """Open it for an attempt.

        :raises ConformanceError: It raises.
        """
        self.require("open", fixtures.ctx, fix="See that the example's settings fit the sink that the harness has.")

    def tell(self, events: Iterable[Event]) -> None:
        """Report events, none of which may fail.

        :raises ConformanceError: One does.
        """
        fix = "A reporter takes every event: what it does not show, it passes over."
        for event in events:
            self.require("report_event", event, what=f"the event {event.name} (seq {event.seq})", fix=fix)

    def tell_patiently(self, events: Iterable[Event]) -> None:
        """Report events, each again and again until it is taken, as after an outage.

        :raises ConformanceError: One is not, in good time.
        """
        for event in events:
            self.insist("report_event", event, first=self.error("report_event", event))

    def close(self) -> None:
        """Close it.

        :raises ConformanceError: It raises.
        """
        self.require("close", fix="close() is called after the last event; what it raises is recorded as a failure.")

    def insist(self, method: str, *arguments: Any, first: BaseException | None) -> None:
        """Call again what has failed, as the host does, until it succeeds.

        :param first: What it has raised; nothing is done without.
        :raises ConformanceError: It does not, in good time.
        """
        error = self._again(method, *arguments, first=first)
        if error is None:
            return
        late = "" if isinstance(error, FatalError) else f", {self._recovery_seconds:g} s after it was healed"
        raise ConformanceError(
            expected=f"{method} to succeed when it is called again, now that the sink is well",
            got=self.subject.in_words(error) + late,
            fix="Connect anew after a failure: drop the broken connection before the error is raised.",
        ) from error

    @property
    def _recovery_seconds(self) -> float:
        return min(_RECOVERY_SECONDS, patience_seconds(self.subject))

    def _again(self, method: str, *arguments: Any, first: BaseException | None) -> BaseException | None:
        """Call again what has failed, until it succeeds, fails for good, or the time is over.

        :param first: What it has raised.
        :return: What it has raised last; None once it has succeeded.
        """
        error, deadline = first, time.monotonic() + self._recovery_seconds
        while error is not None and not isinstance(error, FatalError) and time.monotonic() <= deadline:
            time.sleep(_PAUSE_SECONDS)
            error = self.error(method, *arguments)
        return error


def report(subject: Subject, fixtures: EventFixtures, events: Iterable[Event]) -> None:
    """Have a new instance opened for an attempt, given some events, and closed; none of that may fail."""
    with ServedReporter(subject) as reporter:
        reporter.open(fixtures)
        reporter.tell(events)
        reporter.close()


def is_live_only(subject: Subject) -> bool:
    """Return whether the reporter shows only what happens now."""
    return getattr(subject.owner, "LIVE_ONLY", False) is True


def harness_can(subject: Subject, name: str, purpose: str) -> Callable[..., Any]:
    """A method of the harness; of a reporter that keeps nothing, none is asked for.

    :raises NotApplicable: There is none.
    """
    if is_live_only(subject) and not callable(getattr(subject.harness, name, None)):
        raise NotApplicable("it shows what happens now, and keeps nothing (LIVE_ONLY)")
    found: Callable[..., Any] = subject.harness_method(name, purpose)
    return found


def sink_if_any(subject: Subject, fixtures: EventFixtures) -> "Sink | None":
    """Return the sink; None if the reporter keeps nothing, or the author gave nothing to look with."""
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
        self._received = subject.harness_method("received", "so that the kit can see what has arrived")
        #: The names of the events that the sink has a place for; None: of all.
        self._keeps: Collection[str] | None = getattr(subject.harness, "keeps", None)
        self._settle_seconds = float(getattr(subject.harness, "settle_seconds", _SETTLE_SECONDS))
        self._fixtures = fixtures
        self._before = len(self._received())

    def kept(self, events: Sequence[Event]) -> list[Event]:
        """Those of some events that the sink has a place for."""
        return [event for event in events if self._keeps is None or event.name in self._keeps]

    @property
    def items(self) -> list[tuple[int, Mapping[str, Any]]]:
        """Events that have arrived of the run, in the order of arrival, each with its number.

        :raises InvalidExample: The harness shows something that is no event.
        """
        seq_at = {event.time_ms: event.seq for event in self._fixtures.events}
        found = []
        for place, item in enumerate(self._received()):
            if not isinstance(item, Mapping) or not ({"seq", "time_ms"} & set(item)):
                raise InvalidExample(
                    f"received() of the harness has {item!r:.200}",
                    hint='Each is a mapping with "seq", or, where the sink has no numbers, with "time_ms".',
                )
            if item.get("run_id", self._fixtures.run_id) != self._fixtures.run_id:
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
        by_seq = {event.seq: event.name for event in self._fixtures.events}
        shown = ", ".join(f"seq {seq} ({by_seq[seq]})" for seq in seqs[:5])
        return f"{shown}, …" if len(seqs) > 5 else shown


def spans(numbers: Sequence[int]) -> str:
    """Numbers in words: ``1 to 7``, ``3, 5 and 9``."""
    if len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    *most, last = map(str, numbers)
    return f"{', '.join(most)} and {last}" if most else last
