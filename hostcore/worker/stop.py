"""Stopping: requests come from components, the supervisor and signals, and the loop acts at the next batch boundary.

Imports nothing heavy: the worker's entry installs the signal handlers before it imports anything else.

Signals are noted at any moment, also while native code keeps Python from running handlers. Python runs its handlers
between two bytecodes of the main thread, so one call into native code can delay them for minutes. The interpreter's own
C handler also writes the signal's number into a pipe (``signal.set_wakeup_fd``), which a thread reads at once. The
first of the two notes the signal.
"""

import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, NamedTuple

from hostcore.interruption import Interruption, handle

_SIGNALS: Final = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
#: In the pipe, in place of a signal's number: the reader has ended.
_END: Final = 0


class EndRequest(NamedTuple):
    """One request to stop."""

    #: The status that the run ends with.
    status: str
    reason: str
    requested_by: str


class StopSwitch:
    """Notes requests to stop. Safe to use from signal handlers and threads: it takes no lock."""

    def __init__(self) -> None:
        #: Whether there is a request. Read by the loop at every step.
        self.requested = False
        #: The request that counts: the first.
        self.first: EndRequest | None = None
        #: The first that does not leave the run as succeeded: nothing long is begun or gone on with any more.
        self.interrupted: EndRequest | None = None
        #: The first that leaves the run as succeeded; none that follows the announcement of an interruption, which a
        #: component may answer by a request of its own.
        self.ending: EndRequest | None = None
        #: Whether components know of the interruption.
        self.announced = False
        #: Whether a signal has come: a KeyboardInterrupt comes from it then, in whatever handler it was raised.
        self.signalled = False
        self._unheard: deque[EndRequest] = deque()

    def request(self, reason: str, requested_by: str, *, status: str = "succeeded") -> None:
        """Ask the run to stop."""
        request = EndRequest(status, reason, requested_by)
        self.first = self.first or request
        if status != "succeeded":
            self.interrupted = self.interrupted or request
        elif not self.announced:
            self.ending = self.ending or request
        self._unheard.append(request)
        self.requested = True

    def unheard(self) -> Iterator[EndRequest]:
        """The requests since the last call, oldest first."""
        while self._unheard:
            yield self._unheard.popleft()

    def sleep(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Wait, but not longer than until the run is asked to stop."""
        end = clock() + seconds
        while not self.requested and (left := end - clock()) > 0:
            time.sleep(min(left, 0.05))


@contextmanager
def noted_by(stop: StopSwitch) -> Iterator[None]:
    """Note SIGTERM, SIGUSR1 (preempted) and SIGINT (cancelled) instead of dying from them. In the main thread only.

    A Ctrl-C after any of them raises :class:`Interruption` in the main thread.
    """
    notes, process = _SignalCounts(stop), os.getpid()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    thread = threading.Thread(target=_read, args=(reader, notes), daemon=True, name="signals")
    thread.start()
    handlers: dict[signal.Signals, Any] = {number: handle(number, notes.handle) for number in _SIGNALS}
    # Without a warning: a full pipe holds thousands of signals, and more of them change nothing.
    earlier = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    try:
        yield
    finally:
        signal.set_wakeup_fd(earlier)
        for number, handler in handlers.items():
            handle(number, handler)
        if os.getpid() == process:  # not in a forked child, whose pipe it is not
            os.write(writer, bytes([_END]))  # not just closed: a forked child may hold it open
            thread.join()
        os.close(writer)
        os.close(reader)


def _read(reader: int, notes: "_SignalCounts") -> None:
    while _END not in (received := os.read(reader, 64)):
        for number in received:
            notes.arrived(number)


class _SignalCounts:
    """Counts of the signals that have come, as the thread and as the handler have seen them."""

    def __init__(self, stop: StopSwitch) -> None:
        self._stop = stop
        self._arrived: Counter[int] = Counter()
        self._handled: Counter[int] = Counter()
        self._noted: Counter[int] = Counter()
        # Reentrant: a second signal may interrupt the handler of a first.
        self._lock = threading.RLock()

    def arrived(self, number: int) -> None:
        """The thread has read of a signal."""
        with self._lock:
            self._arrived[number] += 1
            self._note(number, self._arrived[number])

    def handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of a handler
        """Python's handler, in the main thread. Two of a kind that came close together are handled once."""
        with self._lock:
            self._handled[number] = max(self._handled[number] + 1, self._arrived[number])
            self._note(number, self._handled[number])
            forces = number == signal.SIGINT and self._noted.total() > 1
        if forces:
            raise Interruption

    def _note(self, number: int, count: int) -> None:
        if number not in _SIGNALS or count <= self._noted[number]:
            return
        self._noted[number] = count
        self._stop.signalled = True
        name = signal.Signals(number).name
        if number == signal.SIGINT:
            self._stop.request("interrupted by the user", "user", status="cancelled")
        else:
            self._stop.request(f"received {name}", f"signal:{name}", status="preempted")
