"""Stopping: asked for by many, at any moment; heard by the loop at the next batch boundary.

Imports nothing heavy: the worker's entry installs the signal handlers before it imports anything else.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple


class StopRequest(NamedTuple):
    """One request to stop."""

    #: The status that the run ends with.
    status: str
    reason: str
    requested_by: str


class StopSwitch:
    """Notes requests to stop. Safe to use from signal handlers and threads: it takes no lock."""

    def __init__(self) -> None:
        #: Whether anybody has asked. Read by the loop at every step.
        self.requested = False
        #: The request that counts: the first.
        self.first: StopRequest | None = None
        #: The first that does not leave the run as succeeded: nothing long is begun or gone on with any more.
        self.interrupted: StopRequest | None = None
        #: Whether a signal has come: a KeyboardInterrupt is its doing then, whoever's handler raised it.
        self.signalled = False
        self._unheard: deque[StopRequest] = deque()

    def request(self, reason: str, requested_by: str, *, status: str = "succeeded") -> None:
        """Ask the run to stop."""
        request = StopRequest(status, reason, requested_by)
        self.first = self.first or request
        if status != "succeeded":
            self.interrupted = self.interrupted or request
        self._unheard.append(request)
        self.requested = True

    def unheard(self) -> Iterator[StopRequest]:
        """The requests since the last call, oldest first."""
        while self._unheard:
            yield self._unheard.popleft()

    def sleep(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Wait, but not longer than until somebody asks to stop."""
        end = clock() + seconds
        while not self.requested and (left := end - clock()) > 0:
            time.sleep(min(left, 0.05))
