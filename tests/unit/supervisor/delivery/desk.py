"""A run's log, and reporters that do as they are told."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
from uploading import until

from hostcore.events.merger import Entry, EventLog, LogLine
from hostcore.runs.directory import RunDirectory
from hostcore.supervisor.delivery.calls import Intervals, QuickRetries
from hostcore.supervisor.delivery.cursor import LogView
from hostcore.supervisor.delivery.delivery import abandon
from hostcore.supervisor.delivery.events_source import EventLimits, EventSource, subscribed
from hostcore.supervisor.delivery.subscriber import Subscriber
from hostcore.supervisor.delivery.subscription import ReporterSubscription
from hostcore_hookspecs import Job, ReporterContext
from hostcore_hookspecs.events import EpochStarted, Payload

#: An outage is told at the first failure, and probed often.
IMPATIENT = EventLimits(
    quick=QuickRetries(retries=0),
    intervals=Intervals(first_seconds=0.01, most_seconds=0.02, steady_seconds=0.0),
)


class Ear:
    """A reporter that writes down what it is told, and does what it was given to do first."""

    def __init__(self, name: str = "ear", do: Callable[[str, Any], object] | None = None, **keys: Any) -> None:
        self.name = name
        #: The methods called, with the number of the event.
        self.calls: list[tuple[str, int]] = []
        #: The threads that called.
        self.threads: set[int] = set()
        self._do = do or (lambda *_: None)
        self.subscription = ReporterSubscription(
            label=f"{name} (dist 1.0)",
            name=name,
            identity=f"dist/{name}",
            open=lambda ctx: self._note("open", ctx),
            report_event=lambda event: self._note("report_event", event),
            close=lambda: self._note("close", None),
            **keys,
        )

    def _note(self, method: str, what: Any) -> None:
        self.threads.add(threading.get_ident())
        self._do(method, what)
        self.calls.append((method, getattr(what, "seq", 0)))

    @property
    def heard(self) -> list[int]:
        """The numbers of the events that it has taken."""
        return [seq for method, seq in self.calls if method == "report_event"]


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def pass_hang_time(self) -> None:
        """After this, a call that is going on is one that hangs."""
        self.now += IMPATIENT.hang_seconds + 1


@attrs.define
class Deliveries:
    """The reporters of one attempt."""

    view: LogView
    emitted: deque[Payload]
    subscribers: list[Subscriber[EventSource]]

    def announce(self, lines: Sequence[LogLine] = ()) -> None:
        self.view.note(lines)
        for one in self.subscribers:
            one.source.grow()

    def news(self) -> list[Payload]:
        for one in self.subscribers:
            one.poll()
        return [self.emitted.popleft() for _ in range(len(self.emitted))]

    def hurry(self, *, last: bool = False) -> None:
        for one in self.subscribers:
            one.hurry(last=last)

    def finish(self) -> None:
        self.hurry(last=True)

    def is_finished(self) -> bool:
        return all(one.is_over for one in self.subscribers)

    def abandon(self) -> None:
        abandon(self.subscribers)

    @property
    def taken(self) -> int:
        return sum(one.source.count for one in self.subscribers)

    @property
    def left(self) -> list[str]:
        return [one.source.left.message for one in self.subscribers if one.source.left]


@attrs.define
class Desk:
    """The supervisor's side: the log of a run, and the deliveries of its attempts."""

    directory: RunDirectory
    log: EventLog
    started: list[Deliveries] = attrs.field(factory=list)
    news: list[Payload] = attrs.field(factory=list)

    def write(self, *payloads: Payload, count: int = 1) -> None:
        for payload in payloads or [EpochStarted()] * count:
            lines = self.log.extend([Entry(payload=payload, step=0, epoch=0)])
            for one in self.started:
                one.announce(lines)

    def deliver(
        self, *ears: Ear, limits: EventLimits = IMPATIENT, clock: Callable[[], float] = time.monotonic
    ) -> Deliveries:
        """Begin an attempt."""
        context = ReporterContext(
            run_id=self.log.run_id,
            attempt=self.log.attempt,
            job=Job(),
            run_dir=str(self.directory.path),
            last_seq=self.log.last_seq,
        )
        view, emitted = LogView(self.directory.events), deque[Payload]()
        reporters = [ear.subscription for ear in ears]
        subscribers = subscribed(
            reporters, self.directory, view, context, limits=limits, emit=emitted.append, clock=clock
        )
        deliveries = Deliveries(view, emitted, subscribers)
        self.started.append(deliveries)
        return deliveries

    def finish(self, deliveries: Deliveries) -> None:
        """Wait until everything was told."""
        deliveries.finish()
        until(deliveries.is_finished)
        self.hear(deliveries)

    def hear(self, deliveries: Deliveries) -> list[Payload]:
        """All news so far."""
        self.news += deliveries.news()
        return self.news

    def cursor(self, name: str) -> Path:
        return self.directory.cursors / f"{name}.json"


def events_of(payloads: Sequence[Payload], kind: type) -> list[Any]:
    return [one for one in payloads if isinstance(one, kind)]
