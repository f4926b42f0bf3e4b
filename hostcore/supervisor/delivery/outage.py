"""The outage of one subscriber."""

from typing import Any

from hostcore.supervisor.delivery.calls import Breaker
from hostcore.supervisor.delivery.source import Call, Hang, Source
from hostcore_hookspecs.errors import TransientError


class Outage:
    """The outage of one subscriber: emitted once when it begins, and once when it is over.

    An item that fails while others get through is no outage: it waits by itself, and is emitted once, too.
    """

    def __init__(self, source: Source[Any]) -> None:
        self.breaker = Breaker(source.limits.intervals, clock=source.clock)
        #: True from the event of a failure to the next success.
        self.is_reported = False
        self._source = source
        self._since: float | None = None
        self._number = 0
        #: The outage in which a name was reported last.
        self._reported: dict[str, int] = {}

    @property
    def seconds(self) -> float:
        """The time for which nothing has got through; 0 without an outage."""
        return 0.0 if self._since is None else max(0.0, self._source.clock() - self._since)

    def put_back(self, call: Call[Any], error: BaseException, problem: str, *, others_pass: bool) -> None:
        """Have an item tried again. While others get through, it alone has to wait.

        :param others_pass: True if others were delivered since its call began.
        """
        item = call.item
        assert item is not None
        item.failures += 1
        intervals = self._source.limits.intervals
        pause = min(intervals.first_seconds * 2 ** min(item.failures - 1, 16), intervals.most_seconds)
        self._source.put_back(item, until=self._source.clock() + pause)
        asked = isinstance(error, TransientError) and bool(error.retry_after_seconds)
        if call.is_probe or (not self.breaker.is_open and (asked or not others_pass)):
            # An item that fails by itself, again and again, is no news each time.
            self._number += self._fail(call, error) and call.name not in self._reported
        if self._reported.get(call.name) != self._number:
            self._report(call, problem)

    def block(self, call: Call[Any], error: BaseException, problem: str, *, report: bool = False) -> None:
        """Begin an outage, or go on with it: no other call can be made now.

        :param report: Emit it also in an outage that was reported.
        """
        begins = self._fail(call, error) or not self.is_reported
        self._number += begins
        if begins or report:
            self._report(call, problem)

    def note_success(self, call: Call[Any], *, is_done: bool) -> None:
        """Note that a call has succeeded; an outage is over with that.

        :param is_done: True if nothing of the item's name is left.
        """
        seconds, self._since = self.seconds, None
        if is_done or call.item is None or call.item.failures:
            self._reported.pop(call.name, None)  # the next failure is news
        if not self.breaker.succeeded() and not self.is_reported:
            return
        if self.is_reported:
            self._source.emit(self._source.recovered(seconds))
        self.is_reported = False
        self._source.retry_now()

    def _fail(self, call: Call[Any], error: BaseException) -> bool:
        if self._since is None:
            self._since = call.since if isinstance(error, Hang) else self._source.clock()
        return self.breaker.failed(error)

    def _report(self, call: Call[Any], problem: str) -> None:
        self._reported[call.name] = self._number
        self.is_reported = self.is_reported or self.breaker.is_open
        self._source.emit(self._source.failure(call.name, problem))
