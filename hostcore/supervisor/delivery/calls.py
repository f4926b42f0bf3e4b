"""The calls of one reporter's methods: each until it succeeds, with retries, a breaker, and an eye on hangs."""

import threading
import time
from collections.abc import Callable
from typing import Any, Final

import attrs

from hostcore.plugins.errors import one_line
from hostcore.supervisor.delivery.breaker import Breaker, Intervals
from hostcore.supervisor.delivery.retries import QuickRetries, call_with_retries
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import FatalError, HostcoreError

#: In an outage it looks that often whether it should try at once, or no more.
LOOK_SECONDS: Final = 0.25


@attrs.frozen(kw_only=True)
class Patience:
    """What a reporter may do before it is told of."""

    #: A call that takes longer is told as a failure. It is waited for all the same: a thread cannot be stopped.
    hang_seconds: float = 30.0
    quick: QuickRetries = attrs.field(factory=QuickRetries)
    intervals: Intervals = attrs.field(factory=Intervals)


@attrs.frozen
class _Call:
    """A call that is going on."""

    method: str
    since: float


class Calls:
    """Calls the methods of one reporter, from one thread; tells once of each outage, and once that it is over.

    :param label: How messages name the reporter.
    :param tell: Takes what the run's log should have of it.
    :param save: Writes down how far it has come: done when it fails, since what comes then nobody knows.
    :param missed: How many events wait for it.
    """

    def __init__(
        self,
        label: str,
        *,
        tell: Callable[[events.Payload], object],
        save: Callable[[], object],
        missed: Callable[[], int],
        patience: Patience | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        #: What it failed with last, in one line; None if nothing is wrong with it now.
        self.problem: str | None = None
        #: The exception behind that, if there is one.
        self.error: BaseException | None = None
        #: Whether it must not be called any more.
        self.has_given_up = False
        self._label = label
        self._tell = tell
        self._save = save
        self._missed = missed
        self._patience = patience or Patience()
        self._clock = clock
        self._breaker = Breaker(self._patience.intervals, clock=clock)
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._call: _Call | None = None
        #: Since when it fails or hangs, if that was told.
        self._told_since: float | None = None

    # -- for the thread that serves it ---------------------------------------------------------------------------------

    def insist(self, method: str, call: Callable[..., object], *arguments: Any) -> bool:
        """Call until it returns.

        :return: Whether it has. Otherwise it has given up, or there is no more time.
        """
        while not self._ended.is_set():
            if seconds := self._breaker.admit():
                self._ended.wait(min(seconds, LOOK_SECONDS))
                continue
            # The probe of an outage is a single call; before it, a few retries may keep it from being one.
            limits = QuickRetries(retries=0) if self._breaker.is_open else self._patience.quick
            try:
                call_with_retries(self.timed(method, call), *arguments, limits=limits)
            except FatalError as error:
                self.give_up(error)
            except BaseException as error:  # noqa: BLE001 - whatever a reporter raises, the run and the others go on
                self._breaker.failed(error)
                self._note_failure(error)
            else:
                self._breaker.succeeded()
                self._recover()
                return True
        return False

    def once(self, method: str, call: Callable[..., object], *arguments: Any) -> None:
        """Call once, whatever comes of it."""
        try:
            self.timed(method, call)(*arguments)
        except BaseException as error:  # noqa: BLE001 - as above
            if not self.has_given_up:
                self._note_failure(error)

    def timed(self, method: str, call: Callable[..., object]) -> Callable[..., object]:
        """The same call, watched for a hang while it goes on."""

        def watched(*arguments: Any) -> object:
            self._call = _Call(method, self._clock())
            try:
                return call(*arguments)
            finally:
                with self._lock:
                    self._call = None

        return watched

    def give_up(self, error: BaseException) -> None:
        """Call nothing any more."""
        self.has_given_up = True
        self._ended.set()
        self.problem, self.error = _in_words(error), error
        message = f"{self.problem}; it gets no more events in this attempt"
        self._tell(events.ReporterFailed(reporter=self._label, message=message))
        self._save()

    def _note_failure(self, error: BaseException) -> None:
        self.problem, self.error = _in_words(error), error
        if self._told_since is None:
            self._told_since = self._clock()
            self._tell(events.ReporterFailed(reporter=self._label, message=self.problem))
            self._save()

    def _recover(self) -> None:
        if self._told_since is None:
            return
        seconds = self.outage_seconds
        self._told_since = self.problem = self.error = None
        message = f"{self._label} works again after {seconds:.0f} s; events to catch up with: {self._missed()}"
        self._tell(events.Warning(code="reporter.recovered", message=message))

    # -- for all others ------------------------------------------------------------------------------------------------

    @property
    def outage_seconds(self) -> float:
        """How long nothing has got through; 0 if nothing is wrong."""
        since = self._told_since
        return 0.0 if since is None else max(0.0, self._clock() - since)

    @property
    def hangs(self) -> bool:
        """Whether a call takes longer than it should."""
        call = self._call
        return call is not None and self._clock() - call.since > self._patience.hang_seconds

    def look(self) -> None:
        """Tell of a call that does not return, once."""
        with self._lock:  # it cannot return just now
            call = self._call
            if call is None or not self.hangs or self._told_since is not None:
                return
            self._told_since = call.since
            self.problem = f"has not returned from {call.method} for {self._patience.hang_seconds:g} s"
        self._tell(events.ReporterFailed(reporter=self._label, message=self.problem))

    def hurry(self) -> None:
        """Time is short: what fails is tried again soon."""
        self._breaker.hurry()

    def end(self) -> None:
        """Call nothing any more; a call that is going on is the last but one: ``close`` may follow."""
        self._ended.set()


def _in_words(error: BaseException) -> str:
    if not isinstance(error, HostcoreError):
        return one_line(error)
    text = one_line(error).removeprefix(f"{type(error).__module__}.")
    return f"{text} ({' '.join(error.hint.split())})" if error.hint else text
