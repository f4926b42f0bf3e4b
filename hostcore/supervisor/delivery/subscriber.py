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
from typing import Any, Final, Generic, TypeVar

from hostcore.plugins.errors import one_line
from hostcore.supervisor.delivery.calls import ONCE, call_with_retries, lower_priority
from hostcore.supervisor.delivery.outage import Outage
from hostcore.supervisor.delivery.source import Call, Hang, Item, Source
from hostcore_hookspecs.errors import FatalError

#: Between two looks at a lock, or at the end of a thread.
_POLL_SECONDS: Final = 0.25

S = TypeVar("S", bound=Source[Any])


class Subscriber(Generic[S]):
    """Delivers the items of a source to its subscription, in threads of its own."""

    def __init__(self, source: S) -> None:
        self.source = source
        self.subscription = source.subscription
        self._limits = source.limits
        self._clock = source.clock
        self._changed = source.changed
        self._outage = Outage(source)
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

    @property
    def is_stuck(self) -> bool:
        """True if nothing of what is left gets through. Asked again and again while a run waits for its end."""
        with self._changed:
            now, limit = self._clock(), self._limits.open_seconds
            is_left = not self.source.is_empty or any(call.item and not call.is_lost for call in self._calls)
            is_opening = any(call.method == "open" and now - call.since > limit for call in self._calls)
            return not is_left or is_opening or self._outage.seconds > 0

    @property
    def is_left_hanging(self) -> bool:
        """True if ``close`` was reported as hanging, and has not returned."""
        with self._changed:
            return self._closed and any(call.method == "close" for call in self._calls)

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
                self.source.prepare()
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
            result, words = None, ""
            error: BaseException | None = None
            try:
                result = self._perform(call)
            except BaseException as raised:  # noqa: BLE001 - whatever a plugin raises, the run and the others go on
                error, words = raised, self.source.words(raised)
            self._settle(call, result, error, words)
            if call.is_lost:
                return  # another thread has its place

    def _perform(self, call: Call[Any]) -> Any:
        # The probe of an outage is a single call; before it, a few retries may keep it from being one.
        quick = ONCE if call.is_probe or call.method == "close" or self._abandoned else self._limits.quick

        def timed() -> Any:
            if not call.is_reported:
                call.since = self._clock()  # each try has the time that a call may take
            if call.item is not None:
                return call.item.call()
            return self.subscription.open(self._context) if call.method == "open" else self.subscription.close()

        return call_with_retries(timed, limits=quick)

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
            item.is_busy = True
        call = Call(
            method=method,
            item=item,
            since=self._clock(),
            limit=self._limits.hang_seconds + (item.size if item else 0) / self._limits.bytes_per_second,
            taken_before=self._taken,
            is_probe=self._outage.breaker.is_open,
        )
        self._calls.append(call)
        return call

    def _settle(self, call: Call[Any], result: Any, error: BaseException | None, words: str) -> None:
        """Take in the outcome of a call.

        :param words: The source's, for the error.
        """
        with self._changed:
            self._calls.remove(call)
            if call.method == "close":
                self._closed = True
                if error is not None and not call.is_reported:
                    self._note_close(call, error, words)
            elif error is None:
                self._note_success(call, result)
            elif not call.is_lost:
                self._note_failure(call, error, words)
            self._changed.notify_all()

    def _note_success(self, call: Call[Any], result: Any) -> None:
        item = call.item
        # Of a lost call, the item may have been delivered meanwhile, or another call of it be under way.
        takes = item is not None and not (call.is_lost and (item.is_busy or not self.source.wants(item)))
        is_last = takes and self.source.is_last(item)
        self._outage.note_success(call, is_done=is_last)
        if item is None:
            self._opened = True
        elif takes:
            item.failures, item.is_busy = 0, False
            self._taken += 1
            self.source.taken(item, result)

    def _note_failure(self, call: Call[Any], error: BaseException, words: str) -> None:
        item = call.item
        if item is not None:
            item.is_busy = False
            if not self.source.wants(item):
                return
        if self._abandoned:
            if item is not None:
                self.source.put_back(item, until=0.0)
            return
        problem = self.source.described(call, error, words)
        if not isinstance(error, FatalError):
            if item is None:
                self._outage.block(call, error, problem)
            else:
                self._outage.put_back(call, error, problem, others_pass=self._taken > call.taken_before)
        elif item is None:
            self.source.refuse(problem)
        else:
            self.source.give_up(item, problem)

    def _note_close(self, call: Call[Any], error: BaseException, words: str) -> None:
        payload = self.source.close_failure(
            self.source.described(call, error, words), in_outage=self._outage.is_reported
        )
        if payload is not None:
            self.source.emit(payload)

    def _note_hang(self, call: Call[Any]) -> None:
        """Emit a call that does not return. An item is delivered again by another thread, if there may be one."""
        call.is_reported = True
        error = Hang(call)
        if call.method == "close":
            self._closed = True
            self._note_close(call, error, str(error))
            self._changed.notify_all()
            return
        problem = self.source.described(call, error, str(error))
        if call.item is None or sum(one.is_lost for one in self._calls) >= self._limits.lost:
            # Where several are delivered at once, each that hangs without a thread in its place is news.
            self._outage.block(call, error, problem, report=call.item is not None and self._limits.lost > 0)
            return
        call.is_lost, call.item.is_busy = True, False
        self._start_thread()
        if self.source.wants(call.item):
            self._outage.put_back(call, error, problem, others_pass=self._taken > call.taken_before)
        self._changed.notify_all()
