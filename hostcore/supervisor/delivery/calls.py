"""The call of a plugin's method: its deadline, the quick retries after a failure, and the circuit breaker after those.

A method may raise anything, at any time, and may never return. What follows is the same for reporters and uploaders::

    failure ─▶ a few retries within two seconds ─▶ an outage: one probe at growing intervals ─▶ success ends it
"""

import math
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

import attrs

from hostcore_hookspecs.errors import FatalError, TransientError

T = TypeVar("T")

#: The least time between two quick retries, doubled each time.
_FIRST_WAIT_SECONDS: Final = 0.1
_LONGEST_WAIT_SECONDS: Final = 1.0
_JITTER_SECONDS: Final = 0.1
_NICENESS: Final = 10


@attrs.frozen(kw_only=True)
class QuickRetries:
    """Limits of the quick retries. The first comes at once."""

    #: 0: none.
    retries: int = 4
    #: No retry begins later than that after the first.
    seconds: float = 2.0


#: For the probe of an outage, and for ``close``.
ONCE: Final = QuickRetries(retries=0)


@attrs.frozen(kw_only=True)
class Intervals:
    """The intervals between two probes of an outage."""

    #: After the failure that begins an outage; doubled after each further one.
    first_seconds: float = 1.0
    most_seconds: float = 30.0
    #: An outage that begins sooner than that after the one before keeps its interval: what fails, recovers and
    #: fails again is neither probed nor reported every second.
    steady_seconds: float = 60.0


def call_with_retries(call: Callable[..., T], *arguments: Any, limits: QuickRetries) -> T:
    """Call, and call again if it raises, with short waits in between.

    :raises BaseException: What it raised last. A :class:`FatalError` at once, and so what asks to be left alone for
        longer than these waits.
    """
    try:
        return call(*arguments)
    except BaseException as error:
        if not limits.retries or not _is_worth_another(error):
            raise
    stamina = _stamina()
    for attempt in stamina.retry_context(
        on=_is_worth_another,
        attempts=limits.retries,
        timeout=limits.seconds,
        wait_initial=_FIRST_WAIT_SECONDS,
        wait_max=_LONGEST_WAIT_SECONDS,
        wait_jitter=_JITTER_SECONDS,
    ):
        with attempt:
            return call(*arguments)
    raise AssertionError("stamina raises what the last attempt has raised")


def _is_worth_another(error: BaseException) -> bool:
    return not isinstance(error, FatalError) and _asked_seconds(error) <= _FIRST_WAIT_SECONDS


def _stamina() -> Any:
    """Return stamina, imported by the first failure. The host reports a failure once, stamina each retry.

    By itself it logs through structlog or logging, which print where they are not set up. In a program that uses
    stamina already, that is the program's business.
    """
    is_first = "stamina" not in sys.modules
    import stamina

    if is_first:
        stamina.instrumentation.set_on_retry_hooks([])
    return stamina


class Breaker:
    """A circuit breaker: knows whether there is an outage, and when to try again. Safe to use from several threads.

    ::

        if seconds := breaker.admit():
            ...  # wait; then ask again
        try:
            deliver()
        except BaseException as error:
            if breaker.failed(error):
                ...  # an outage begins: report it, once
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
        """True during an outage."""
        return self._began is not None

    @property
    def outage_seconds(self) -> float:
        """The time that the outage has lasted; 0 without one."""
        began = self._began
        return 0.0 if began is None else max(0.0, self._clock() - began)

    def admit(self) -> float:
        """Return the seconds to wait; 0: try now.

        In an outage a single caller is admitted, as the probe; the others wait for its result, or, should it hang, for
        another interval.
        """
        if self._began is None:  # the usual case, without the lock
            return 0.0
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

        :param error: A :class:`TransientError` may have the time that the other side wants to be left alone.
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
        if self._began is None:
            return False
        with self._lock:
            ends = self._began is not None
            self._began, self._ended = None, self._clock()
            return ends

    def hurry(self) -> None:
        """Begin anew with the first interval, and try now unless the other side has asked to be left alone."""
        with self._lock:
            self._interval = self._intervals.first_seconds
            self._probe_at = max(self._clock(), self._asked_until)


def _asked_seconds(error: BaseException) -> float:
    seconds = error.retry_after_seconds if isinstance(error, TransientError) else None
    # A plugin may have taken anything from a response.
    return float(seconds) if isinstance(seconds, int | float) and math.isfinite(seconds) and seconds > 0 else 0.0


def lower_priority() -> None:
    """Have the operating system prefer all other threads to the calling one, where threads have priorities (Linux)."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
