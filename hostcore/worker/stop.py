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
        self._unheard: deque[StopRequest] = deque()

    def request(self, reason: str, requested_by: str, *, status: str = "succeeded") -> None:
        """Ask the run to stop."""
        request = StopRequest(status, reason, requested_by)
        self.first = self.first or request
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


class ComponentStop:
    """The switch as components have it in their context: a request says which of them asked.

    :param asker: Names the component that is running.
    """

    def __init__(self, switch: StopSwitch, asker: Callable[[], str]) -> None:
        self._switch = switch
        self._asker = asker

    @property
    def requested(self) -> bool:
        """Whether anybody has asked."""
        return self._switch.requested

    def request(self, reason: str, requested_by: str) -> None:  # noqa: ARG002 - a component does not know its name
        """Ask the run to stop."""
        self._switch.request(reason, self._asker())
