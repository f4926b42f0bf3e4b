"""A subscriber: the threads that call one reporter or uploader, and their answer to failures, hangs and outages.

In flow the items of a :class:`Source`, out flow calls of a plugin, and the outcome of each goes back to the source::

    source.next ─▶ item ─▶ open, report_event | upload_artifact, … close ─▶ source.taken
                    ▲                         │
                    └──── source.put_back ◀───┘ failure, hang

A failure is repeated a few times within two seconds; then it is an outage, with one probe at growing intervals, unless
other items get through meanwhile. A thread cannot be stopped: a hang is reported by the thread that watches, and the
item is delivered again by another thread, if there may be one. The threads are daemons of our own, since those of an
executor are joined when the interpreter ends, and one that hangs would keep the process.
"""

import itertools
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Any, Final, Generic, TypeVar

import attrs

from hostcore.plugins.errors import one_line
from hostcore.supervisor.delivery.calls import (
    ONCE,
    Breaker,
    Intervals,
    QuickRetries,
    call_with_retries,
    lower_priority,
)
from hostcore.supervisor.delivery.subscription import Subscription
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import FatalError, TransientError

#: Between two looks at a lock, or at the end of a thread.
_POLL_SECONDS: Final = 0.25

Emit = Callable[[events.Payload], object]
"""Takes an event for the run's log."""


@attrs.frozen(kw_only=True)
class DeliveryLimits:
    """The limits of the calls of one subscriber."""

    #: A call that takes longer is reported as a failure.
    hang_seconds: float = 30.0
    quick: QuickRetries = attrs.field(factory=QuickRetries)
    intervals: Intervals = attrs.field(factory=Intervals)
    #: Calls at once, and calls that may hang beside them.
    at_once: int = 1
    lost: int = 0

    def hang_of(self, size: int) -> float:  # noqa: ARG002 - for those whose calls take longer with it
        """Return how long a call may take, in seconds.

        :param size: Of the item, in bytes.
        """
        return self.hang_seconds


@attrs.define(kw_only=True, eq=False)
class Item:
    """One event, or one file, to be delivered."""

    #: The path under which its failures are reported; empty for events.
    name: str = ""
    #: The method that hangs if its call does.
    method: str
    #: In bytes.
    size: int = 0
    #: Delivers it. Called in a thread of the subscriber, without a lock.
    call: Callable[[], Any]
    #: Failures since it was taken last.
    failures: int = 0
    #: When it may be tried again, on the clock.
    not_before: float = 0.0


I = TypeVar("I", bound=Item)  # noqa: E741


@attrs.define(kw_only=True, eq=False)
class Call(Generic[I]):
    """A call under way."""

    method: str
    #: None for ``open`` and ``close``.
    item: I | None
    #: On the clock.
    since: float
    #: The time that it may take, in seconds.
    limit: float
    #: How many items had been taken when it began.
    taken_before: int
    #: True for the single try of an outage.
    is_probe: bool
    #: True once it was reported that it hangs.
    is_reported: bool = False
    #: True if it hangs, and is not waited for.
    is_lost: bool = False

    @property
    def name(self) -> str:
        """The name of its item."""
        return "" if self.item is None else self.item.name


class Hang(TimeoutError):
    """A call that does not return."""

    def __init__(self, call: Call[Any]) -> None:
        super().__init__(f"has not returned from {call.method} for {call.limit:.0f} s")


class Source(ABC, Generic[I]):
    """The items of one subscription: the next one, and the outcome of each.

    Its state is read and changed while ``changed`` is held, which nothing holds during I/O: the supervisor's loop may
    wait for it.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        #: Why nothing of it can be delivered in this attempt; None if it can.
        self.refused: str | None = None

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """True if every item was taken or given up."""

    @abstractmethod
    def next(self, now: float, *, busy: Collection[I], probing: bool) -> I | None:
        """Return the item to deliver now, if there is one.

        :param busy: Items of calls under way.
        :param probing: True for the single try of an outage.
        """

    @abstractmethod
    def wait_seconds(self, now: float, *, busy: Collection[I]) -> float | None:
        """Return the time to the next item that waits, in seconds; None if none does."""

    def begin(self, item: I) -> None:
        """Note that the call of an item begins."""

    @abstractmethod
    def taken(self, item: I, result: Any, *, was_lost: bool) -> None:
        """Note that an item was delivered.

        :param result: What its call returned.
        :param was_lost: True if the item was put back meanwhile, because the call took too long.
        """

    def wants(self, item: I) -> bool:  # noqa: ARG002
        """Return True if an item is still to be delivered."""
        return True

    @abstractmethod
    def put_back(self, item: I, *, until: float) -> None:
        """Have an item tried again.

        :param until: Not before that time.
        """

    @abstractmethod
    def give_up(self, item: I, problem: str) -> None:
        """Note that an item cannot be delivered in this attempt."""

    @abstractmethod
    def refuse(self, problem: str) -> None:
        """Note that nothing can be delivered in this attempt, and emit that."""

    def retry_now(self) -> None:
        """Have all items that wait tried again at once."""

    @abstractmethod
    def described(self, call: Call[I], error: BaseException) -> str:
        """Note why a call has failed, and return it in one line."""

    @abstractmethod
    def failure(self, name: str, problem: str) -> events.Payload:
        """Return the event of a failure after which the item is tried again."""

    @abstractmethod
    def recovered(self, seconds: float) -> events.Payload:
        """Return the event of the end of an outage.

        :param seconds: The time that it has lasted.
        """

    @abstractmethod
    def close_failed(self, problem: str, *, in_outage: bool) -> None:
        """Note that ``close`` has failed, and emit that.

        :param in_outage: True if an outage was reported, and has not ended.
        """

    def leave(self) -> None:
        """Write what is to outlive the process; called by the last thread when it ends, without the lock."""


class Outage:
    """The outage of one subscriber: emitted once when it begins, and once when it is over.

    An item that fails while others get through is no outage: it waits by itself, and is emitted once, too.
    """

    def __init__(self, source: Source[Any], intervals: Intervals, *, emit: Emit, clock: Callable[[], float]) -> None:
        self.breaker = Breaker(intervals, clock=clock)
        #: True from the event of a failure to the next success.
        self.is_reported = False
        self._source = source
        self._intervals = intervals
        self._emit = emit
        self._clock = clock
        self._since: float | None = None
        self._number = 0
        #: The outage in which a name was reported last.
        self._reported: dict[str, int] = {}

    @property
    def seconds(self) -> float:
        """The time for which nothing has got through; 0 without an outage."""
        return 0.0 if self._since is None else max(0.0, self._clock() - self._since)

    def put_back(self, call: Call[Any], error: BaseException, problem: str, *, others_pass: bool) -> None:
        """Have an item tried again. While others get through, it alone has to wait.

        :param others_pass: True if others were delivered since its call began.
        """
        item = call.item
        assert item is not None
        item.failures += 1
        pause = min(self._intervals.first_seconds * 2 ** min(item.failures - 1, 16), self._intervals.most_seconds)
        self._source.put_back(item, until=self._clock() + pause)
        asked = isinstance(error, TransientError) and bool(error.retry_after_seconds)
        if call.is_probe or (not self.breaker.is_open and (asked or not others_pass)):
            # An item that fails by itself, again and again, is no news each time.
            self._number += self._fail(call, error) and call.name not in self._reported
        if self._reported.get(call.name) != self._number:
            self._report(call, problem)

    def block(self, call: Call[Any], error: BaseException, problem: str, *, report: bool = False) -> None:
        """Begin an outage, or go on with it: no other call can be made now.

        :param report: Emit it also if an outage was reported before.
        """
        if self._fail(call, error) or not self.is_reported or report:
            self._number += 1
            self._report(call, problem)

    def note_success(self, call: Call[Any]) -> None:
        """Note that a call has succeeded; an outage is over with that."""
        seconds, self._since = self.seconds, None
        if call.item is None or call.item.failures:
            self._reported.pop(call.name, None)  # the next failure is news
        if not self.breaker.succeeded() and not self.is_reported:
            return
        if self.is_reported:
            self._emit(self._source.recovered(seconds))
        self.is_reported = False
        self._source.retry_now()

    def _fail(self, call: Call[Any], error: BaseException) -> bool:
        if self._since is None:
            self._since = call.since if isinstance(error, Hang) else self._clock()
        return self.breaker.failed(error)

    def _report(self, call: Call[Any], problem: str) -> None:
        self._reported[call.name] = self._number
        self.is_reported = self.is_reported or self.breaker.is_open
        self._emit(self._source.failure(call.name, problem))


S = TypeVar("S", bound=Source[Any])


class Subscriber(Generic[S]):
    """Delivers the items of a source to one subscription, in threads of its own.

    :param emit: Takes the events about it.
    :param clock: Seconds, from anywhere; decides when something is tried again, and which call hangs.
    """

    def __init__(
        self,
        subscription: Subscription,
        source: S,
        *,
        limits: DeliveryLimits,
        emit: Emit,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.subscription = subscription
        self.source = source
        self._limits = limits
        self._emit = emit
        self._clock = clock
        self._changed = source.changed
        self._outage = Outage(source, limits.intervals, emit=emit, clock=clock)
        self._calls: list[Call[Any]] = []
        self._taken = 0
        self._opened = self._closed = False
        #: No more items will come; nothing more is to be delivered.
        self._finishing = self._abandoned = False
        self._numbers = itertools.count(1)
        self._threads = 0
        self._context: Any = None
        self._holds = False

    # -- for the supervisor -------------------------------------------------------------------------------------------

    def start(self, context: Any) -> None:
        """Start the threads.

        :param context: The argument of ``open``.
        """
        with self._changed:
            self._context = context
            for _ in range(self._limits.at_once):
                self._start_thread()

    def poll(self) -> None:
        """Emit calls that do not return, and let others take their places."""
        with self._changed:
            now = self._clock()
            for call in list(self._calls):
                if not call.is_reported and now - call.since > call.limit:
                    self._note_hang(call)

    def hurry(self, *, last: bool = False) -> None:
        """Try what has failed again now, since the run waits for it.

        :param last: No more items will come: the subscription is closed after the last of them.
        """
        with self._changed:
            self._finishing = self._finishing or last
            self._outage.breaker.hurry()
            self.source.retry_now()
            self._changed.notify_all()

    def abandon(self) -> None:
        """Deliver nothing more, and end as soon as no call is under way; ``close`` may follow."""
        with self._changed:
            self._abandoned = True
            self._changed.notify_all()

    def join(self, seconds: float) -> None:
        """Wait for the end of the threads, unless one hangs."""
        end = time.monotonic() + seconds
        with self._changed:
            while not self.is_over and not self._hangs and (rest := end - time.monotonic()) > 0:
                self._changed.wait(min(rest, _POLL_SECONDS))

    @property
    def is_over(self) -> bool:
        """True when all threads have ended."""
        return self._threads == 0

    @property
    def is_idle(self) -> bool:
        """True if every item was taken or given up; and, once no more comes, the subscription is closed."""
        with self._changed:
            return self.source.is_empty and (self._closed or not self._finishing or not self._opened)

    @property
    def outage_seconds(self) -> float:
        """The time for which nothing has got through; 0 without an outage."""
        with self._changed:
            return self._outage.seconds

    def calls_longer_than(self, seconds: float, *, method: str) -> bool:
        """Return True if a call of a method has taken longer."""
        with self._changed:
            now = self._clock()
            return any(call.method == method and now - call.since > seconds for call in self._calls)

    @property
    def busy(self) -> list[Any]:
        """The items of calls under way that are waited for."""
        with self._changed:
            return [call.item for call in self._calls if call.item is not None and not call.is_lost]

    @property
    def _hangs(self) -> bool:
        now = self._clock()
        return any(now - call.since > call.limit for call in self._calls)

    # -- in the threads ------------------------------------------------------------------------------------------------

    def _start_thread(self) -> None:
        self._threads += 1
        name = f"hostcore {self.subscription.name} {next(self._numbers)}"
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        lower_priority()
        try:
            if self._acquire():
                self._deliver_all()
        except BaseException as error:  # noqa: BLE001 - of hostcore's own: emitted, not printed by the thread
            with self._changed:
                self.source.refuse(one_line(error))
        finally:
            self._leave()

    def _acquire(self) -> bool:
        """Wait until the thread of an earlier attempt has left the component.

        :return: False if the delivery was abandoned before.
        """
        in_use = self.subscription.in_use
        if in_use is None:
            return True
        with self._changed:
            call = self._new_call("a call of an earlier attempt")
        try:
            while not self._abandoned:
                if in_use.acquire(timeout=_POLL_SECONDS):
                    self._holds = True
                    return True
            return False
        finally:
            with self._changed:
                self._calls.remove(call)

    def _leave(self) -> None:
        with self._changed:
            is_last = self._threads == 1
        if is_last:
            self.source.leave()
            if self._holds and self.subscription.in_use is not None:
                self.subscription.in_use.release()
        with self._changed:
            self._threads -= 1
            self._changed.notify_all()

    def _deliver_all(self) -> None:
        while (call := self._next()) is not None:
            result: Any = None
            error: BaseException | None = None
            try:
                result = self._perform(call)
            except BaseException as raised:  # noqa: BLE001 - whatever a plugin raises, the run and the others go on
                error = raised
            self._settle(call, result, error)
            if call.is_lost:
                return  # another thread has its place

    def _perform(self, call: Call[Any]) -> Any:
        # The probe of an outage is a single call; before it, a few retries may keep it from being one.
        quick = ONCE if call.is_probe or call.method == "close" or self._abandoned else self._limits.quick
        if call.item is not None:
            return call_with_retries(call.item.call, limits=quick)
        if call.method == "open":
            return call_with_retries(self.subscription.open, self._context, limits=quick)
        return call_with_retries(self.subscription.close, limits=quick)

    def _next(self) -> Call[Any] | None:
        """Return the next call to make; None when there will be none."""
        with self._changed:
            while not self._is_through():
                call, wait = self._choose()
                if call is not None:
                    return call
                self._changed.wait(wait)
            return None

    @property
    def _is_ending(self) -> bool:
        return self._abandoned or self.source.refused is not None

    def _is_through(self) -> bool:
        if self._closed:
            return True
        return self._is_ending and (not self._opened or any(not call.is_lost for call in self._calls))

    def _choose(self) -> tuple[Call[Any] | None, float | None]:
        """Return a call to make now, or how long to wait for one; for ever, if None."""
        going = [call for call in self._calls if not call.is_lost]
        if not self._opened:
            return (None, None) if self._calls else self._admitted("open")
        if self._is_ending or (self._finishing and self.source.is_empty):
            return (None if going else self._new_call("close")), None
        busy = [call.item for call in going if call.item is not None]
        now = self._clock()
        item = self.source.next(now, busy=busy, probing=self._outage.breaker.is_open)
        if item is None:
            return None, self.source.wait_seconds(now, busy=busy)
        return self._admitted(item.method, item)

    def _admitted(self, method: str, item: Item | None = None) -> tuple[Call[Any] | None, float | None]:
        seconds = self._outage.breaker.admit()
        return (None, seconds) if seconds else (self._new_call(method, item), None)

    def _new_call(self, method: str, item: Item | None = None) -> Call[Any]:
        if item is not None:
            self.source.begin(item)
        call = Call(
            method=method,
            item=item,
            since=self._clock(),
            limit=self._limits.hang_of(item.size if item else 0),
            taken_before=self._taken,
            is_probe=self._outage.breaker.is_open,
        )
        self._calls.append(call)
        return call

    def _settle(self, call: Call[Any], result: Any, error: BaseException | None) -> None:
        """Take in the outcome of a call."""
        with self._changed:
            self._calls.remove(call)
            if call.method == "close":
                self._closed = True
                if error is not None and not call.is_reported:
                    self._note_close(call, error)
            elif error is None:
                self._note_success(call, result)
            elif not call.is_lost:
                self._note_failure(call, error)
            self._changed.notify_all()

    def _note_success(self, call: Call[Any], result: Any) -> None:
        self._outage.note_success(call)
        if call.item is None:
            self._opened = True
            return
        call.item.failures = 0
        self._taken += 1
        self.source.taken(call.item, result, was_lost=call.is_lost)

    def _note_failure(self, call: Call[Any], error: BaseException) -> None:
        item = call.item
        if item is not None and not self.source.wants(item):
            return
        if self._abandoned:
            if item is not None:
                self.source.put_back(item, until=0.0)
            return
        problem = self.source.described(call, error)
        if not isinstance(error, FatalError):
            if item is None:
                self._outage.block(call, error, problem)
            else:
                self._outage.put_back(call, error, problem, others_pass=self._taken > call.taken_before)
        elif item is None:
            self.source.refuse(problem)
        else:
            self.source.give_up(item, problem)

    def _note_close(self, call: Call[Any], error: BaseException) -> None:
        self.source.close_failed(self.source.described(call, error), in_outage=self._outage.is_reported)

    def _note_hang(self, call: Call[Any]) -> None:
        """Emit a call that does not return. An item is delivered again by another thread, if there may be one."""
        call.is_reported = True
        error = Hang(call)
        if call.method == "close":
            self._closed = True
            self._note_close(call, error)
            self._changed.notify_all()
            return
        problem = self.source.described(call, error)
        if call.item is None or sum(one.is_lost for one in self._calls) >= self._limits.lost:
            # Where several are delivered at once, each that hangs without a thread in its place is news.
            self._outage.block(call, error, problem, report=call.item is not None and self._limits.lost > 0)
            return
        call.is_lost = True
        self._start_thread()
        if self.source.wants(call.item):
            self._outage.put_back(call, error, problem, others_pass=self._taken > call.taken_before)
        self._changed.notify_all()
