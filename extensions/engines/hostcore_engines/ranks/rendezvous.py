"""Rank 0's side of ranks that an engine has started: it runs the run, and has the others start their workers for it.

::

    rank 0                                                the supervisor of another rank
    listens; its address is in <runs>/.ranks/…json  ◀──── waits for that file, connects
    "challenge", with a random number               ────▶
    proves that it knows the token as well         ◀──── "join": which rank it is, and a proof that it knows the token
    "welcome", with a name for this start           ────▶
    opens the run; "start" with contract and output ────▶ starts its worker
    exchanges messages with that worker            ◀────▶ forwards them, "kill", "abort"; signals
                                                   ◀──── "exited"
    writes result.json; "end" with the exit code    ────▶ ends with that code

So for everything that follows, a worker elsewhere is a worker like any other.

Machines that share no folder find rank 0 by the variables of their engine, ``MASTER_ADDR`` and ``MASTER_PORT``:
rank 0 listens at one of the ports right behind the latter, and ``HOSTCORE_RANKS_SECRET``, which all ranks have in their
environment, takes the place of the token. Without that secret nothing listens there, and only the file leads to rank 0.

A rank that has come by the port may see the folder all the same: it leaves a file of a random name there, and the
welcome states whether rank 0 sees it. If it does not, contract, logs and checkpoints do not go through the run
directory: see :mod:`hostcore_engines.ranks.rank_files` and :mod:`hostcore.worker.ranks.nodes`.
"""

import errno
import hmac
import json
import os
import re
import resource
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore.job.paths import is_object_store
from hostcore.job.spec import JobSpec
from hostcore.runs.channel import Channel
from hostcore.runs.contract import WorkerContract
from hostcore.runs.directory import RunDirectory
from hostcore.runs.documents import read_document
from hostcore.runs.result import FAILED, INVALID
from hostcore.supervisor.engine import ADMISSION_VARIABLE, Engine
from hostcore.supervisor.interrupts import Asked, Interrupts
from hostcore.supervisor.workers.spawn import Worker, WorkerExit, WorkerProcess
from hostcore_builtin_plugins.background import in_background
from hostcore_engines.ranks.rank_files import Received, files_of
from hostcore_hookspecs.errors import HostcoreError

#: The folder below that of the runs where ranks look for rank 0.
FOLDER: Final = ".ranks"
#: How long the ranks may take to find each other: as long as torch's own rendezvous.
JOIN_SECONDS: Final = 300.0
#: How long rank 0 waits for the others when it has nothing for them but its end.
_LATE_SECONDS: Final = 10.0
#: How long a connection may take to prove that it is a rank; if there are more than these, the oldest is closed.
_HELLO_SECONDS: Final = 5.0
_MOST_UNPROVEN: Final = 64
#: In bytes, of messages before that proof.
LONGEST_HELLO: Final = 4096
#: How long another rank may take to kill its worker.
_KILL_SECONDS: Final = 10.0
_TICK_SECONDS: Final = 0.1
#: Files that a supervisor has open besides its lines to the ranks, at the most.
_OWN_FILES: Final = 512
#: The file by which a rank shows that it sees the folder of the runs.
_PROBE: Final = re.compile(r"[0-9a-f]{32}\.probe")


class NoSharedStorage(HostcoreError):
    """Machines that share neither the folder of the runs nor a store have nowhere to keep checkpoints."""

    code = "ranks.storage"


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
class RankZeroAddress:
    """Address of rank 0."""

    host: str
    port: int
    #: Both sides know it from the file alone, or it is the secret that they share.
    token: str = attrs.field(repr=False)

    def write(self, path: Path) -> None:
        """Replace the file of an earlier start. Only this user may read it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(attrs.asdict(self), file)
        temporary.replace(path)

    @classmethod
    def read(cls, path: Path) -> "RankZeroAddress | None":
        """Read the address from its file; None while there is none."""
        try:
            return cls(**json.loads(path.read_text()))
        except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
            return None


def proof(token: str, *said: object) -> str:
    """Return an HMAC that proves knowledge of the token, which is not sent itself."""
    return hmac.new(token.encode(), json.dumps(said).encode(), "sha256").hexdigest()


def _listen(ports: Sequence[int], *, on_loopback: bool) -> socket.socket:
    """A socket that listens on the loopback device, or on all; there the token keeps other processes out.

    :param ports: The first of them that is free is taken; none for any.
    :raises RanksMissing: When none is free.
    """
    for port in ports or [0]:
        try:
            return _listen_at(port, on_loopback=on_loopback)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
    raise RanksMissing(
        f"none of the ports {ports[0]} to {ports[-1]} is free, where the other ranks look for rank 0",
        hint=f"they follow MASTER_PORT: choose another one; or unset {ADMISSION_VARIABLE} where all ranks see one "
        "folder of runs",
    )


def _listen_at(port: int, *, on_loopback: bool) -> socket.socket:
    if on_loopback:
        return socket.create_server(("127.0.0.1", port), backlog=128)
    try:
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise  # else there is no version 6 here
    return socket.create_server(("", port), backlog=128)


def _readable(
    watched: "Sequence[socket.socket | _RankChannel]", seconds: float
) -> "list[socket.socket | _RankChannel]":
    """Those that something can be read from, once there is one. Unlike ``select``, for any number of open files."""
    with selectors.PollSelector() as selector:
        for one in watched:
            selector.register(one, selectors.EVENT_READ, one)
        return [key.data for key, _ in selector.select(seconds)]


def _allow_files(ranks: int) -> None:
    """Raise this process's limit on open files, as far as it may be raised: each rank has a line."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ranks + _OWN_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):  # where it may not be raised, a machine refuses the rank that is too many
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class Rendezvous:
    """The ranks of an engine's start, as rank 0 sees them. To be entered before anything else is done.

    On exit it sends the others the exit code, and lets them end.

    :param runs: The folder of all runs, the same for all ranks.
    """

    def __init__(self, engine: Engine, runs: Path, interrupts: Interrupts) -> None:
        self.engine = engine
        self._interrupts = interrupts
        self._file = runs / FOLDER / f"{engine.name}.json"
        self._lines: dict[int, _RankChannel] = {}
        #: Those who have connected, and have not proved to be ranks: the random number that each was given, until when.
        self._unproven: dict[_RankChannel, tuple[str, float]] = {}
        #: The ranks that do not see the folder of the runs.
        self._without_folder: set[int] = set()
        #: The engine may start the ranks again, and keeps its store: there, each start needs a place of its own.
        self._start = secrets.token_hex(8)
        self._token = secrets.token_hex(16)
        self._listening: socket.socket | None = None
        #: Admits those who come, until it has all ranks or none is listened for any more.
        self._admitting: Future[None] | None = None
        self._stopped = threading.Event()

    def __enter__(self) -> "Rendezvous":
        _allow_files(self.engine.world_size)
        ports = self.engine.ports if self.engine.secret else []
        # Who shares a secret comes from another machine, whatever this one is called here.
        on_loopback = self.engine.is_local if not ports else self.engine.world_size == self.engine.local_world_size
        self._listening = _listen(ports, on_loopback=on_loopback)
        port = self._listening.getsockname()[1]
        RankZeroAddress(host=socket.gethostname(), port=port, token=self._token).write(self._file)
        # Beside what rank 0 does before it waits for them: an environment may take longer to build than ranks look.
        self._admitting = in_background(partial(self._admit_all, self._listening), "admitting ranks")
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: object) -> None:
        with suppress(RanksMissing):
            self._wait_for_all(_LATE_SECONDS if self._interrupts.first is None else _LATE_SECONDS / 5)
        code = error.code if isinstance(error, SystemExit) else INVALID if isinstance(error, HostcoreError) else FAILED
        for line in self._lines.values():
            line.send("end", {"code": code if isinstance(code, int) else FAILED})
            line.close()
        self._stop_listening()

    def gather(self, seconds: float = JOIN_SECONDS) -> None:
        """Wait for all other ranks, or until the run is asked to stop.

        :raises RanksMissing: When they do not come in time.
        """
        self._wait_for_all(seconds, unless=lambda: self._interrupts.first is not None)

    def require_storage(self, spec: JobSpec) -> None:
        """See that checkpoints outlive this machine, if it is the only one that sees the folder of the runs.

        :raises NoSharedStorage: When the job names no place for them, or a place of one machine.
        """
        base = spec.checkpoint_base_uri
        if not self._without_folder or (base is not None and is_object_store(base)):
            return
        apart = ", ".join(map(str, sorted(self._without_folder)))
        where = "no checkpoint_base_uri" if base is None else f"a folder as its checkpoint_base_uri, {base}"
        raise NoSharedStorage(
            f"the machines do not share the folder of the runs (rank {apart} sees another one than rank 0), and the "
            f"job has {where}",
            pointer="/checkpoint_base_uri",
            hint="have HOSTCORE_RUNS_DIR name a folder that all machines share (on Kubernetes a ReadWriteMany volume), "
            'or set "checkpoint_base_uri" to an object store: "s3://bucket/runs"',
        )

    def _wait_for_all(self, seconds: float, *, unless: Callable[[], bool] = lambda: False) -> None:
        due = time.monotonic() + seconds
        while self._admitting is not None and self._listening is not None and not unless():
            wait([self._admitting], min(_TICK_SECONDS, max(0.0, due - time.monotonic())))
            if self._admitting.done():
                self._admitting.result()
                self._stop_listening()
            elif time.monotonic() >= due:
                raise RanksMissing(
                    f"rank {', '.join(map(str, self._missing))} did not come within {seconds:g} s",
                    file=str(self._file),
                    hint="HOSTCORE_RUNS_DIR must name the same folder for all ranks, on all machines; or all of them "
                    f"need the same {ADMISSION_VARIABLE}, and reach rank 0 at MASTER_ADDR",
                )

    @property
    def _missing(self) -> list[int]:
        return [rank for rank in range(1, self.engine.world_size) if rank not in self._lines]

    def _admit_all(self, listening: socket.socket) -> None:
        """Admit the ranks that come. In a thread of its own; until that has ended, all who come belong to it."""
        while self._missing and not self._stopped.is_set():
            ready = _readable([listening, *self._unproven], _TICK_SECONDS)
            for line in [one for one in self._unproven if one in ready]:
                self._admit(line)
            if listening in ready:
                self._challenge(listening.accept()[0])
            for line in [one for one, (_, until) in self._unproven.items() if time.monotonic() >= until]:
                self._reject(line)

    def _challenge(self, connection: socket.socket) -> None:
        """Ask one who has connected for a proof; it is not waited for."""
        while len(self._unproven) >= _MOST_UNPROVEN:
            self._reject(next(iter(self._unproven)))
        line, nonce = _RankChannel(keep_alive(connection), self._interrupts), secrets.token_hex(16)
        self._unproven[line] = nonce, time.monotonic() + _HELLO_SECONDS
        line.send("challenge", {"nonce": nonce})

    def _reject(self, connection: "_RankChannel") -> None:
        self._unproven.pop(connection)
        connection.close()

    def _admit(self, line: "_RankChannel") -> None:
        """Admit one who proves to be a rank that is missing, and turn any other away."""
        nonce, _ = self._unproven[line]
        try:
            kind, content = line.receive_hello()
            rank, theirs, probe = content["rank"], content["nonce"], content["probe"]
            # A rank that outlived its agent belongs to an earlier start, most likely of more ranks.
            said = ("join", nonce, theirs, rank, self.engine.world_size, self.engine.meeting, probe)
            tokens = [one for one in (self._token, self.engine.secret) if one]
            known = [one for one in tokens if secrets.compare_digest(content["proof"], proof(one, *said))]
            right = kind == "join" and bool(known) and isinstance(rank, int)
        except TimeoutError:
            return  # there is more to come
        except (EOFError, OSError, ValueError, KeyError, TypeError, RecursionError):
            right = False
        del self._unproven[line]
        if right and rank in range(1, self.engine.world_size) and rank not in self._lines:
            self._lines[rank] = line
            shared = known[0] == self._token or self._sees(probe)
            if not shared:
                self._without_folder.add(rank)
            answer = proof(known[0], "welcome", theirs, nonce, self._start, shared)
            line.send("welcome", {"start": self._start, "shared": shared, "proof": answer})
        else:
            line.close()

    def _sees(self, probe: object) -> bool:
        """Return whether a file that a rank has left in its folder of runs is seen here."""
        return isinstance(probe, str) and bool(_PROBE.fullmatch(probe)) and (self._file.parent / probe).exists()

    def _stop_listening(self) -> None:
        self._stopped.set()
        if self._admitting is not None:
            wait([self._admitting])
        for connection in list(self._unproven):
            self._reject(connection)
        if self._listening is not None:
            self._listening.close()
            self._listening = None
            found = RankZeroAddress.read(self._file)
            if found is None or found.token == self._token:  # not that of a start that has taken over
                self._file.unlink(missing_ok=True)
            with suppress(OSError):  # others meet there as well
                self._file.parent.rmdir()

    def spawn(self, rank: int, contract: Path, output: Path) -> Worker:
        """Start the worker of a rank; see :class:`hostcore.supervisor.workers.spawn.Spawn`."""
        if rank == self.engine.rank:
            return WorkerProcess(contract, output, self.engine.environment(self._start))
        line = self._lines[rank]
        told: dict[str, Any] = {"contract": str(contract), "output": str(output)}
        if rank in self._without_folder:
            written = WorkerContract.read(contract)
            line.received = Received(files_of(written, output))
            told = {
                "contract": attrs.asdict(written),
                "record": read_document(Path(written.job_spec_path)),
                "lock": RunDirectory(Path(written.run_dir)).read_lock() if written.has_environment else None,
            }
        line.send("start", told)
        return _WorkerElsewhere(line)


class _RankChannel(Channel):
    """Channel to the supervisor of another rank, and through it to its worker.

    Messages of its supervisor are handled here; ``receive`` returns those of its worker.
    """

    def __init__(self, connection: socket.socket, interrupts: Interrupts) -> None:
        super().__init__(connection)
        self._interrupts = interrupts
        self.exit: WorkerExit | None = None
        #: Takes what the worker writes, if its machine does not see the run directory.
        self.received: Received | None = None

    def send(self, kind: str, content: Any) -> None:
        with suppress(OSError):  # the reader of this end sees that the other is gone
            super().send(kind, content)

    def receive_hello(self) -> tuple[str, Any]:
        """Receive a message of a peer that has not proved to be a rank."""
        return super().receive(0, longest=LONGEST_HELLO)

    def receive(self, timeout_seconds: float | None = None, *, longest: int | None = None) -> tuple[str, Any]:
        while True:
            try:
                kind, content = super().receive(timeout_seconds, longest=longest)
            except TimeoutError:
                raise
            except (EOFError, OSError) as error:
                self.exit = self.exit or WorkerExit(FAILED, lost=True)
                raise EOFError(str(error)) from error
            if kind == "exited":
                self.exit = WorkerExit(**content)
                raise EOFError("the worker has ended")
            if kind == "wrote" and self.received is not None:
                self.received.write(content)
                self.send("took", {})
                continue
            if kind != "asked":
                return kind, content
            self._interrupts.hear(Asked(**content["first"]), hurried=content["hurried"], forced=content["forced"])


class _WorkerElsewhere:
    """A worker that the supervisor of another rank has started."""

    pid = None

    def __init__(self, line: _RankChannel) -> None:
        self.channel: Channel = line
        self._line = line

    def poll(self) -> WorkerExit | None:
        """Return the worker's exit; None while it runs, as far as known here."""
        return self._line.exit

    def wait(self) -> WorkerExit:
        """Wait for its end, but no longer than a supervisor that listens needs to kill it."""
        due = time.monotonic() + _KILL_SECONDS
        while self._line.exit is None and (left := due - time.monotonic()) > 0:
            with suppress(EOFError, OSError):
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
