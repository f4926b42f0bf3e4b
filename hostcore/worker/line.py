"""The worker's end of the line to its supervisor, heard by a thread from the first moment on.

A worker that was started before its job was planned (:mod:`hostcore.supervisor.workers.early`) gets the line later,
with what it is to do. That is heard by a thread, too, because the main thread imports torch meanwhile.
"""

import json
import os
import queue
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from hostcore.interruption import end_session
from hostcore.runs.channel import Channel
from hostcore.worker.stop import StopSwitch

#: How long a worker whose supervisor is gone may take to write a checkpoint.
ORPHAN_SECONDS: Final = 4.0
#: Of what a worker is told later.
_MOST_BYTES: Final = 64 * 1024
#: What Linux takes in one message.
_MOST_DESCRIPTORS: Final = 253


class SupervisorLine:
    """Passes on what the supervisor says.

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
        threading.Thread(target=self._listen, daemon=True, name="supervisor line").start()

    def send(self, kind: str, content: Any) -> None:
        """Tell the supervisor something; see :mod:`hostcore.runs.channel`."""
        self._channel.send(kind, content)

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


class Told(NamedTuple):
    """What a worker has to know."""

    #: The path of the contract file.
    contract: str
    line: SupervisorLine
    #: What its environment has besides.
    environment: Mapping[str, str]


class Handover:
    """Hears what the worker is to do. When that cannot be, or the supervisor is gone without a word, the process ends.

    :param source: Connected to the supervisor.
    :param connect: Makes the line of a descriptor.
    """

    def __init__(self, source: socket.socket, connect: Callable[[int], SupervisorLine]) -> None:
        self._source = source
        self._connect = connect
        #: Gets what the worker was told.
        self.told: queue.SimpleQueue[Told] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True, name="handover").start()

    def _listen(self) -> None:
        try:
            self.told.put(self._hear())
        except BaseException:  # noqa: BLE001 - the main thread would wait for ever
            try:
                traceback.print_exc()
            finally:
                os._exit(1)

    def _hear(self) -> Told:
        with self._source:
            said, descriptors, _, _ = socket.recv_fds(self._source, _MOST_BYTES, _MOST_DESCRIPTORS)
            while said and not said.endswith(b"\n"):
                more = self._source.recv(_MOST_BYTES)
                said = said + more if more else b""
        if not said:
            os._exit(0)
        line, output, *leases = descriptors
        for descriptor in leases:
            os.set_inheritable(descriptor, True)  # whatever the worker starts holds its GPUs, too
        _write_to(output)
        told = json.loads(said)
        return Told(told["contract"], self._connect(line), told["environment"])


def _write_to(output: int) -> None:
    """Make a descriptor the output of this process, with what it has written until now."""
    earlier = os.dup(1)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    if written := os.pread(earlier, os.fstat(earlier).st_size, 0):
        os.write(1, written)
        os.ftruncate(earlier, 0)
    os.close(earlier)
