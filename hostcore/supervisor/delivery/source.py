"""Sources: what is delivered to one subscription, item by item, and the outcome of each; see :class:`Source`."""

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar

import attrs

from hostcore.supervisor.delivery.calls import Intervals, QuickRetries
from hostcore.supervisor.delivery.subscription import Subscription
from hostcore_hookspecs import events

Emit = Callable[[events.Payload], object]
"""Takes an event for the run's log."""


@attrs.frozen(kw_only=True)
class DeliveryLimits:
    """The limits of the calls of one subscriber."""

    #: A call that takes longer is reported as a failure.
    hang_seconds: float = 30.0
    #: A call with a large item may take longer.
    bytes_per_second: float = math.inf
    #: An ``open`` that takes longer gets nothing through, as far as the end of a run is concerned.
    open_seconds: float = math.inf
    quick: QuickRetries = attrs.field(factory=QuickRetries)
    intervals: Intervals = attrs.field(factory=Intervals)
    #: Calls at once, and calls that may hang beside them.
    at_once: int = 1
    lost: int = 0


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
    #: The time at which it may be tried again, on the clock.
    not_before: float = 0.0
    #: True while a call of it is under way that is waited for.
    is_busy: bool = False


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
    #: Items that had been taken when it began.
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

    :param emit: Takes the events about the subscription.
    :param clock: Seconds, from anywhere; decides when something is tried again, and which call hangs.
    """

    def __init__(
        self, subscription: Subscription, *, limits: DeliveryLimits, emit: Emit, clock: Callable[[], float]
    ) -> None:
        self.subscription = subscription
        self.limits = limits
        self.emit = emit
        self.clock = clock
        self.changed = threading.Condition(threading.RLock())
        #: The reason for which nothing can be delivered in this attempt; None if it can.
        self.refused: str | None = None

    def prepare(self) -> None:
        """Read what the first call depends on; called by each thread before its first call, without the lock."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """True if every item was taken or given up."""

    @property
    @abstractmethod
    def is_complete(self) -> bool:
        """True if everything that there is was delivered."""

    @abstractmethod
    def next(self, now: float, *, busy: Collection[I], probing: bool) -> I | None:
        """Return the item to deliver now, if there is one.

        :param busy: Items of calls under way.
        :param probing: True for the single try of an outage.
        """

    @abstractmethod
    def wait_seconds(self, now: float, *, busy: Collection[I]) -> float | None:
        """Return the time to the next item that waits, in seconds; None if none does."""

    @abstractmethod
    def taken(self, item: I, result: Any) -> None:
        """Note that an item was delivered.

        :param result: What its call returned.
        """

    def is_last(self, item: I) -> bool:  # noqa: ARG002
        """Return True if an item is the last of its name."""
        return True

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
    def words(self, error: BaseException) -> str:
        """Return what a plugin has raised in one line. Its own code may run for that, so the lock is not held."""

    @abstractmethod
    def described(self, call: Call[I], error: BaseException, words: str) -> str:
        """Note why a call has failed, and return it in one line.

        :param words: Of the error.
        """

    @abstractmethod
    def failure(self, name: str, problem: str) -> events.Payload:
        """Return the event of a failure after which the item is tried again."""

    @abstractmethod
    def recovered(self, seconds: float) -> events.Payload:
        """Return the event of the end of an outage.

        :param seconds: The time that it has lasted.
        """

    @abstractmethod
    def close_failure(self, problem: str, *, in_outage: bool) -> events.Payload | None:
        """Return the event of a ``close`` that has failed; None if an earlier report suffices."""

    def leave(self) -> None:
        """Write what is to outlive the process; called by the last thread when it ends, without the lock."""
