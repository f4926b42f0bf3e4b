"""A circuit breaker: while the other side is out of order, it is left alone, and asked again at growing intervals."""

import math
import threading
import time
from collections.abc import Callable

import attrs

from hostcore_hookspecs.errors import TransientError


@attrs.frozen(kw_only=True)
class Intervals:
    """How long the other side is left alone."""

    #: After the failure that begins an outage; doubled after each further one.
    first_seconds: float = 1.0
    most_seconds: float = 30.0
    #: An outage that begins sooner than that after the one before goes on with its interval: what fails, recovers and
    #: fails again is not asked, nor told of, every second.
    steady_seconds: float = 60.0


class Breaker:
    """Knows whether there is an outage, and when to try again. Safe to use from several threads.

    ::

        if seconds := breaker.admit():
            ...  # wait; then ask again
        try:
            deliver()
        except BaseException as error:
            if breaker.failed(error):
                ...  # an outage begins: tell it, once
        else:
            if breaker.succeeded():
                ...  # it is over

    :param clock: Seconds, from anywhere.
    """

    def __init__(self, intervals: Intervals | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._intervals = intervals or Intervals()
        self._clock = clock
        self._lock = threading.Lock()
        self._interval = self._intervals.first_seconds
        self._began: float | None = None
        self._ended: float | None = None
        self._probe_at = 0.0
        #: Until when the other side has asked to be left alone.
        self._asked_until = -math.inf

    @property
    def is_open(self) -> bool:
        """Whether there is an outage."""
        return self._began is not None

    @property
    def outage_seconds(self) -> float:
        """How long the outage has lasted; 0 without one."""
        began = self._began
        return 0.0 if began is None else max(0.0, self._clock() - began)

    def admit(self) -> float:
        """How many seconds to wait; 0: try now.

        In an outage a single caller is admitted, as the probe; the others wait for what becomes of it, or, should it
        hang, for another interval.
        """
        with self._lock:
            if self._began is None:
                return 0.0
            now = self._clock()
            if now < self._probe_at:
                return self._probe_at - now
            self._probe_at = now + self._interval
            return 0.0

    def failed(self, error: BaseException) -> bool:
        """Note that a try has failed.

        :param error: A :class:`TransientError` may say how long the other side wants to be left alone.
        :return: Whether an outage begins with it.
        """
        with self._lock:
            now = self._clock()
            begins = self._began is None
            if begins:
                self._began = now
                if self._ended is None or now - self._ended >= self._intervals.steady_seconds:
                    self._interval = self._intervals.first_seconds
            self._asked_until = now + _asked_seconds(error)
            self._probe_at = max(now + self._interval, self._asked_until)
            self._interval = min(2 * self._interval, self._intervals.most_seconds)
            return begins

    def succeeded(self) -> bool:
        """Note that a try has succeeded.

        :return: Whether an outage ends with it.
        """
        if self._began is None:  # the usual case, without the lock
            return False
        with self._lock:
            ends = self._began is not None
            self._began, self._ended = None, self._clock()
            return ends

    def hurry(self) -> None:
        """Begin anew with the first interval, and try now if nobody has asked to be left alone: time is short."""
        with self._lock:
            self._interval = self._intervals.first_seconds
            self._probe_at = max(self._clock(), self._asked_until)


def _asked_seconds(error: BaseException) -> float:
    seconds = error.retry_after_seconds if isinstance(error, TransientError) else None
    # Whatever a plugin may have taken from a response.
    return float(seconds) if isinstance(seconds, int | float) and math.isfinite(seconds) and seconds > 0 else 0.0
