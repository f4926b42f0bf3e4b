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
from hostcore.supervisor.memory import oom_kills
from hostcore_hookspecs.errors import HostcoreError


class WorkerNotStarted(HostcoreError):
    """The system does not start another process."""

    code = "worker.start"


@attrs.frozen
class WorkerExit:
    """How a worker's process ended."""

    #: As in ``subprocess``: negative for a signal.
    code: int
    #: Whether the kernel killed something for lack of memory while it ran.
    out_of_memory: bool = False

    def __str__(self) -> str:
        if self.code < 0:
            return f"was killed by {_signal_name(-self.code)}"
        return f"exited with code {self.code}"

    @property
    def signal(self) -> int:
        """The signal that killed it; 0 if none did."""
        return max(-self.code, 0)


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

    def abort(self) -> None:
        """Let it write the tracebacks of its threads into its output, and die of that."""


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
        self._oom_kills = oom_kills()
        command = [sys.executable, "-P", "-m", "hostcore.worker", str(contract), str(theirs.fileno())]
        with output.open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            except OSError as error:
                raise WorkerNotStarted(f"the worker cannot be started: {error}", file=sys.executable) from error
        theirs.close()

    def poll(self) -> WorkerExit | None:
        """How it ended; None while it runs."""
        code = self._process.poll()
        return None if code is None else self._exit(code)

    def wait(self) -> WorkerExit:
        """Wait for its end."""
        return self._exit(self._process.wait())

    def _exit(self, code: int) -> WorkerExit:
        return WorkerExit(code, out_of_memory=code == -signal.SIGKILL and oom_kills() > self._oom_kills)

    def abort(self) -> None:
        """Send SIGABRT, upon which its ``faulthandler`` writes the tracebacks of all threads."""
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGABRT)

    def kill(self) -> None:
        """Kill it and its process group: what it started may outlive it, with a device in its hands."""
        with suppress(ProcessLookupError, PermissionError):  # all are gone
            os.killpg(self._process.pid, signal.SIGKILL)
