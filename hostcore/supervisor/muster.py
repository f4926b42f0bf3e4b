"""Rank 0's side of ranks that an engine has started: it runs the run, and has the others start their workers for it.

::

    rank 0                                                the supervisor of another rank
    listens, and says where in <runs>/.ranks/…json  ◀──── waits for that file, connects, says which rank it is
    "welcome", with a name for this start           ────▶
    opens the run; "start" with contract and output ────▶ starts its worker
    hears and tells that worker over this line     ◀────▶ passes on what either says, "kill", "abort"; signals
                                                   ◀──── "exited"
    writes result.json; "end" with the exit code    ────▶ ends with that code

So for everything that follows, a worker elsewhere is a worker like any other. The file is the only thing that must be
seen by all ranks before there is a run; the run directory, which they need as well, lies beside it.
"""

import json
import os
import secrets
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore.runs.channel import Channel
from hostcore.runs.result import FAILED, INVALID
from hostcore.supervisor.engine import Engine
from hostcore.supervisor.interrupts import Asked, Interrupts
from hostcore.supervisor.spawn import Worker, WorkerExit, WorkerProcess
from hostcore_hookspecs.errors import HostcoreError

#: The folder below that of the runs where ranks look for rank 0.
FOLDER: Final = ".ranks"
#: How long the ranks may take to find each other: as long as torch's own rendezvous.
JOIN_SECONDS: Final = 300.0
#: How long rank 0 waits for the others when it has nothing for them but its end.
_LATE_SECONDS: Final = 10.0
_HELLO_SECONDS: Final = 5.0
#: How long another rank may take to kill its worker.
_KILL_SECONDS: Final = 10.0
_TICK_SECONDS: Final = 0.1


class RanksMissing(HostcoreError):
    """Ranks that an engine has started do not find each other."""

    code = "ranks.missing"


def keep_alive(connection: socket.socket) -> socket.socket:
    """Have the kernel notice within half a minute when the machine on the other side is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4), ("TCP_NODELAY", 1)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return connection


@attrs.frozen(kw_only=True)
class Place:
    """Where rank 0 is to be found."""

    host: str
    port: int
    #: Both sides know it from the file alone.
    token: str

    def write(self, path: Path) -> None:
        """Replace the file of an earlier start. Nobody but this user may read it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(attrs.asdict(self), file)
        temporary.replace(path)

    @classmethod
    def read(cls, path: Path) -> "Place | None":
        """What the file says; None while there is none."""
        try:
            return cls(**json.loads(path.read_text()))
        except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
            return None


def _listen(*, on_loopback: bool) -> socket.socket:
    """A socket that listens on the loopback device, or on all; there the token keeps strangers out."""
    if on_loopback:
        return socket.create_server(("127.0.0.1", 0), backlog=128)
    with suppress(OSError):  # no version 6 here
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
    return socket.create_server(("", 0), backlog=128)


class Muster:
    """The ranks of an engine's start, as rank 0 sees them. To be entered before anything else is done.

    Left, it tells the others that they may go, and with which exit code.

    :param runs: The folder of all runs, the same for all ranks.
    """

    def __init__(self, engine: Engine, runs: Path, interrupts: Interrupts) -> None:
        self.engine = engine
        self._interrupts = interrupts
        self._file = runs / FOLDER / f"{engine.name}.json"
        self._lines: dict[int, _Line] = {}
        #: The engine may start the ranks again, and keeps its store: there, each start needs a place of its own.
        self._start = secrets.token_hex(8)
        self._token = secrets.token_hex(16)
        self._listening: socket.socket | None = None

    @property
    def world_size(self) -> int:
        """How many there are."""
        return self.engine.world_size

    def __enter__(self) -> "Muster":
        self._listening = _listen(on_loopback=self.engine.is_local)
        port = self._listening.getsockname()[1]
        Place(host=socket.gethostname(), port=port, token=self._token).write(self._file)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: object) -> None:
        with suppress(RanksMissing):
            self._wait_for_all(_LATE_SECONDS if self._interrupts.first is None else _LATE_SECONDS / 5)
        code = error.code if isinstance(error, SystemExit) else INVALID if isinstance(error, HostcoreError) else FAILED
        for line in self._lines.values():
            line.send("end", {"code": code if isinstance(code, int) else FAILED})
            line.close()
        self._close_door()

    def gather(self, seconds: float = JOIN_SECONDS) -> None:
        """Wait for all other ranks, or until somebody asks to stop.

        :raises RanksMissing: When they do not come in time.
        """
        self._wait_for_all(seconds, unless=lambda: self._interrupts.first is not None)

    def _wait_for_all(self, seconds: float, *, unless: Callable[[], bool] = lambda: False) -> None:
        due = time.monotonic() + seconds
        while self._listening is not None and not unless():
            if select.select([self._listening], [], [], _TICK_SECONDS)[0]:
                self._admit(self._listening.accept()[0])
            missing = [rank for rank in range(1, self.engine.world_size) if rank not in self._lines]
            if not missing:
                self._close_door()
            elif time.monotonic() >= due:
                raise RanksMissing(
                    f"rank {', '.join(map(str, missing))} did not come within {seconds:g} s",
                    file=str(self._file),
                    hint="HOSTCORE_RUNS_DIR must name the same folder for all ranks, on all machines",
                )

    def _admit(self, connection: socket.socket) -> None:
        line = _Line(keep_alive(connection), self._interrupts)
        try:
            kind, content = line.receive(_HELLO_SECONDS)
            rank = content["rank"]
            right = kind == "join" and secrets.compare_digest(content["token"], self._token)
            # One that a dead agent has left behind belongs to an earlier start, of more ranks most likely.
            right = right and content["world_size"] == self.engine.world_size
        except (EOFError, TimeoutError, ValueError, KeyError, TypeError):
            right = False
        if right and rank in range(1, self.engine.world_size) and rank not in self._lines:
            self._lines[rank] = line
            line.send("welcome", {"start": self._start})
        else:
            line.close()

    def _close_door(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None
            found = Place.read(self._file)
            if found is None or found.token == self._token:  # not that of a start that has taken over
                self._file.unlink(missing_ok=True)
            with suppress(OSError):  # others meet there as well
                self._file.parent.rmdir()

    def spawn(self, rank: int, contract: Path, output: Path) -> Worker:
        """Start the worker of a rank; see :class:`hostcore.supervisor.spawn.Spawn`."""
        if rank == self.engine.rank:
            return WorkerProcess(contract, output, self.engine.environment(self._start))
        line = self._lines[rank]
        line.send("start", {"contract": str(contract), "output": str(output)})
        return _WorkerElsewhere(line)


class _Line(Channel):
    """The line to the supervisor of another rank, and through it to its worker.

    What its supervisor says for itself is acted upon here; ``receive`` gives what its worker says.
    """

    def __init__(self, connection: socket.socket, interrupts: Interrupts) -> None:
        super().__init__(connection)
        self._interrupts = interrupts
        self.exit: WorkerExit | None = None

    def send(self, kind: str, content: Any) -> None:
        with suppress(OSError):  # the reader of this end sees that the other is gone
            super().send(kind, content)

    def receive(self, timeout_seconds: float | None = None) -> tuple[str, Any]:
        while True:
            try:
                kind, content = super().receive(timeout_seconds)
            except TimeoutError:
                raise
            except (EOFError, OSError) as error:
                self.exit = self.exit or WorkerExit(FAILED, lost=True)
                raise EOFError(str(error)) from error
            if kind == "exited":
                self.exit = WorkerExit(**content)
                raise EOFError("the worker has ended")
            if kind != "asked":
                return kind, content
            self._interrupts.hear(Asked(**content["first"]), hurried=content["hurried"], forced=content["forced"])


class _WorkerElsewhere:
    """A worker that the supervisor of another rank has started."""

    def __init__(self, line: _Line) -> None:
        self.channel: Channel = line
        self._line = line

    def poll(self) -> WorkerExit | None:
        """How it ended; None while it runs, as far as was heard."""
        return self._line.exit

    def wait(self) -> WorkerExit:
        """Wait for its end, but no longer than a supervisor that listens needs to kill it."""
        due = time.monotonic() + _KILL_SECONDS
        while self._line.exit is None and (left := due - time.monotonic()) > 0:
            with suppress(EOFError, TimeoutError):
                self._line.receive(left)
        return self._line.exit or WorkerExit(FAILED, lost=True)

    def kill(self) -> None:
        """Have it killed."""
        self._line.send("kill", {})

    def abort(self) -> None:
        """Have it aborted."""
        self._line.send("abort", {})

    def close(self) -> None:
        """The line stays open, for the end of the run."""
