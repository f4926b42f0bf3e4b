"""The worker's end of the line to its supervisor, read by a thread from the first moment on."""

import signal
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from hostcore.interruption import end_session
from hostcore.runs.channel import Channel
from hostcore.worker.stop import StopSwitch

#: How long a worker whose supervisor is gone may take to write a checkpoint.
ORPHAN_SECONDS: Final = 4.0


class SupervisorLine:
    """Handles the supervisor's messages.

    :param when_gone: Called in the line's own thread when the supervisor is gone.
    """

    def __init__(self, channel: Channel, stop: StopSwitch, when_gone: Callable[[], None] | None = None) -> None:
        self._channel = channel
        self._stop = stop
        self._when_gone = when_gone
        self._answered = threading.Event()
        #: Whether the supervisor has given the word to start.
        self.may_go = False
        #: Whether the supervisor was gone after it had given the word to start.
        self.was_left_alone = False
        self._thread = threading.Thread(target=self._listen, daemon=True, name="supervisor line")
        self._thread.start()

    def send(self, kind: str, content: Any) -> None:
        """Send the supervisor a message; see :mod:`hostcore.runs.channel`."""
        self._channel.send(kind, content)

    def close(self) -> None:
        """End the line, and wait for the end of its thread."""
        self._channel.end()
        self._thread.join()

    def wait_for_go(self) -> bool:
        """Wait for the word to start; False if the supervisor is gone, which may only have wanted to check the job."""
        self._answered.wait()
        return self.may_go

    def _listen(self) -> None:
        while True:
            try:
                kind, content = self._channel.receive()
            except (EOFError, OSError):
                break
            if kind == "go":
                self.may_go = True
                self._answered.set()
            else:
                self._stop.request(content["reason"], content["requested_by"], status=content["status"])
        self.was_left_alone = self.may_go
        self._stop.request("the supervisor is gone", "host", status="preempted")
        self._answered.set()
        if self._when_gone is not None:
            self._when_gone()


def end_with_all(seconds: float = ORPHAN_SECONDS) -> None:
    """End this process and its session, with everything that plugins have started in it, when its time is over."""
    # Should something hold Python's lock all that time, the kernel's alarm ends at least the process itself.
    signal.setitimer(signal.ITIMER_REAL, seconds + 0.5)
    time.sleep(seconds)
    end_session()
