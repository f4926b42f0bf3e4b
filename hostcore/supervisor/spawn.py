"""Starting a worker and knowing how it died."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import attrs

from hostcore.runs.channel import Channel

_SIGNAL_HINTS: Mapping[int, str] = {
    signal.SIGKILL: "something killed it; usually the system, for taking too much memory",
    signal.SIGSEGV: "a segmentation fault in native code; the Python traceback above ends where it was called",
    signal.SIGBUS: "a memory-mapped file was cut short, or the shared memory is full",
}


@attrs.frozen
class WorkerExit:
    """How a worker's process ended."""

    #: As in ``subprocess``: negative for a signal.
    code: int

    def __str__(self) -> str:
        if self.code < 0:
            return f"was killed by {_signal_name(-self.code)}"
        return f"exited with code {self.code}"

    @property
    def hint(self) -> str | None:
        """What usually causes such a death."""
        return _SIGNAL_HINTS.get(-self.code)


def _signal_name(number: int) -> str:
    """``SIGKILL``; a real-time signal has a number only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Worker(Protocol):
    """A worker that was started."""

    @property
    def channel(self) -> Channel:
        """The line to it."""

    def poll(self) -> WorkerExit | None:
        """How it ended; None while it runs."""

    def wait(self) -> WorkerExit:
        """Wait for its end."""

    def kill(self) -> None:
        """End it and its children at once."""


class Spawn(Protocol):
    """Starts a worker."""

    def __call__(self, contract: Path, output: Path, environment: Mapping[str, str]) -> Worker:
        """Start a worker.

        :param contract: The contract file.
        :param output: The file for its standard output and standard error.
        :param environment: Added to this process's environment.
        """


class WorkerProcess:
    """A worker in a process and a session of its own, so that a Ctrl-C in the terminal does not reach it."""

    def __init__(self, contract: Path, output: Path, environment: Mapping[str, str]) -> None:
        self.channel, theirs = Channel.pair()
        with output.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "hostcore.worker", str(contract), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        theirs.close()

    def poll(self) -> WorkerExit | None:
        """How it ended; None while it runs."""
        code = self._process.poll()
        return None if code is None else WorkerExit(code)

    def wait(self) -> WorkerExit:
        """Wait for its end."""
        return WorkerExit(self._process.wait())

    def kill(self) -> None:
        """Kill it and everything of its session: what it started may outlive it, with a device in its hands."""
        with suppress(ProcessLookupError, PermissionError):  # all are gone
            os.killpg(self._process.pid, signal.SIGKILL)
