"""Starting workers, and knowing how they died."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

import attrs

from hostcore.interruption import signal_name
from hostcore.runs.channel import Channel
from hostcore.runs.contract import InvalidContract, WorkerContract
from hostcore.runs.documents import CorruptDocument, UnreadableDocument
from hostcore.secrets.output import ScrubbedOutput
from hostcore.secrets.scrub import known
from hostcore.supervisor.device_leases import HeldDevices
from hostcore.supervisor.engine import (
    MASTER_SOCKET_VARIABLE,
    RANK_VARIABLES,
    SUPERVISOR_VARIABLE,
    threads_for,
    without_ranks,
)
from hostcore.supervisor.workers.control_group import oom_kills
from hostcore_hookspecs.errors import HostcoreError

#: How long a connection of this machine to itself may take.
_LOOPBACK_SECONDS: Final = 10.0


class WorkerNotStarted(HostcoreError):
    """The system does not start another process."""

    code = "worker.start"


@attrs.frozen
class WorkerExit:
    """End of a worker's process."""

    #: As in ``subprocess``: negative for a signal.
    code: int
    #: Whether the kernel killed something for lack of memory while it ran.
    out_of_memory: bool = False
    #: Whether the way it ended is unknown: the supervisor that watched it on its machine is gone.
    lost: bool = False

    def __str__(self) -> str:
        if self.lost:
            return "was lost with the supervisor that watched it there"
        if self.code < 0:
            return f"was killed by {signal_name(-self.code)}"
        return f"exited with code {self.code}"

    @property
    def signal(self) -> int:
        """The signal that killed it; 0 if none did."""
        return max(-self.code, 0)


class Worker(Protocol):
    """A worker that was started."""

    @property
    def channel(self) -> Channel:
        """The line to it."""

    @property
    def pid(self) -> int | None:
        """Its process number; None if it runs on another machine."""

    def poll(self) -> WorkerExit | None:
        """Return its exit; None while it runs."""

    def wait(self) -> WorkerExit:
        """Wait for its end."""

    def kill(self) -> None:
        """End it and its children at once."""

    def abort(self) -> None:
        """Let it write the tracebacks of its threads into its output, and die of that."""

    def close(self) -> None:
        """Close the line to it."""


class Spawn(Protocol):
    """Starts the worker of a rank; rank 0 is started first."""

    def __call__(self, rank: int, contract: Path, output: Path) -> Worker:
        """Start a worker.

        :param contract: The contract file.
        :param output: The file for its standard output and standard error.
        """


class LocalRanks:
    """Starts all ranks of a run on this machine. Of several, rank 0 inherits a listening socket where they meet.

    No other process can take its port in between, because it is never free.

    :param ranks: How many there will be.
    :param devices: The GPUs that they get, all of them the same.
    """

    def __init__(self, ranks: int, devices: HeldDevices | None = None) -> None:
        self._ranks = ranks
        self._devices = devices or HeldDevices()
        self._port = self._meeting = 0

    def __call__(self, rank: int, contract: Path, output: Path) -> "WorkerProcess":
        """See :class:`Spawn`."""
        leases = self._devices.inherited
        if rank > 0 or self._ranks == 1:
            return WorkerProcess(contract, output, self.environment(rank), inherited=leases)
        with self.listening() as meeting:
            environment = self.environment(0)
            return WorkerProcess(contract, output, environment, inherited=[meeting.fileno(), *leases])

    @contextmanager
    def listening(self) -> Iterator[socket.socket]:
        """Listen where they meet, as long as rank 0 needs to inherit the socket."""
        with socket.create_server(("127.0.0.1", 0), backlog=max(128, self._ranks)) as meeting:
            self._port, self._meeting = meeting.getsockname()[1], meeting.fileno()
            _require_loopback(meeting)
            yield meeting

    def environment(self, rank: int) -> dict[str, str]:
        """That of this process, without the ranks that something around it has; of several ranks, with their own.

        Of several, rank 0 comes first, while this listens.
        """
        around = without_ranks(os.environ)
        around |= self._devices.environment
        if self._ranks == 1:
            return around
        values = (rank, rank, self._ranks, self._ranks, "127.0.0.1", self._port)
        own = dict(zip(RANK_VARIABLES, map(str, values), strict=True))
        if rank == 0:
            own[MASTER_SOCKET_VARIABLE] = str(self._meeting)
        return {**threads_for(self._ranks), **around, **own}


def _require_loopback(meeting: socket.socket) -> None:
    """See that a process of this machine reaches a listening socket: torch tries for five minutes.

    :raises WorkerNotStarted: When it cannot be reached.
    """
    try:
        with socket.create_connection(meeting.getsockname(), timeout=_LOOPBACK_SECONDS):
            meeting.accept()[0].close()
    except OSError as error:
        raise WorkerNotStarted(
            f"the ranks cannot meet: 127.0.0.1 cannot be reached: {error.strerror or error}",
            pointer="/devices",
            hint="several ranks of one machine need its loopback device: ip link set lo up",
        ) from error


class WorkerProcess:
    """A worker in a process and a session of its own, so that a Ctrl-C in the terminal does not reach it.

    It runs in the Python that its contract names.

    :param environment: All of it.
    :param inherited: File descriptors that it is to have, too.
    """

    def __init__(
        self,
        contract: Path,
        output: Path,
        environment: Mapping[str, str],
        *,
        inherited: Sequence[int] = (),
    ) -> None:
        self.channel, theirs = Channel.pair()
        self._oom_kills = oom_kills()
        self._scrubbed: ScrubbedOutput | None = None
        python = _python_of(contract)
        with ExitStack() as opened:
            opened.callback(theirs.close)
            log, output_ends = self._open(output, opened)
            try:
                self._process = subprocess.Popen(
                    [python, "-P", "-m", "hostcore.worker", str(contract), *map(str, (theirs.fileno(), *output_ends))],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**environment, "PYTHONUNBUFFERED": "1", SUPERVISOR_VARIABLE: str(os.getpid())},
                    pass_fds=[theirs.fileno(), *output_ends, *inherited],
                    start_new_session=True,
                )
            except OSError as error:
                raise WorkerNotStarted(f"the worker cannot be started: {error}", file=python) from error

    def _open(self, output: Path, opened: ExitStack) -> tuple[int, tuple[int, ...]]:
        """Return the descriptor that the worker writes to, and those by which it takes over the copying.

        It writes to the file; while secrets are known, to a pipe from which a thread here copies to the file.
        """
        log = opened.enter_context(output.open("ab")).fileno()
        if not known():
            return log, ()
        try:
            self._scrubbed = ScrubbedOutput(log)
        except OSError as error:
            raise WorkerNotStarted(f"the worker's output cannot be scrubbed: {error}", file=str(output)) from error
        opened.callback(self._scrubbed.close)
        return self._scrubbed.pipe, self._scrubbed.inherited

    @property
    def pid(self) -> int:
        """Its process number."""
        return self._process.pid

    def poll(self) -> WorkerExit | None:
        """Return its exit; None while it runs."""
        code = self._process.poll()
        return None if code is None else self._exit(code)

    def wait(self) -> WorkerExit:
        """Wait for its end."""
        return self._exit(self._process.wait())

    def _exit(self, code: int) -> WorkerExit:
        if self._scrubbed is not None:
            scrubbed, self._scrubbed = self._scrubbed, None
            scrubbed.settle()
        return WorkerExit(code, out_of_memory=code == -signal.SIGKILL and oom_kills() > self._oom_kills)

    def abort(self) -> None:
        """Send SIGABRT, upon which its ``faulthandler`` writes the tracebacks of all threads."""
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGABRT)

    def kill(self) -> None:
        """Kill it and its process group: what it started may outlive it, with a device in its hands."""
        with suppress(ProcessLookupError, PermissionError):  # all are gone
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Close the line to it."""
        self.channel.close()


def _python_of(contract: Path) -> str:
    """Return the Python of a worker. Errors of its contract are left to the worker."""
    try:
        return WorkerContract.read(contract).python or sys.executable
    except (InvalidContract, CorruptDocument, UnreadableDocument):
        return sys.executable
