"""The supervisor of a rank other than 0 that an engine has started.

It opens no run and claims nothing: it starts a worker on request of rank 0, forwards messages between both, and ends
when rank 0 sends the exit code. See :mod:`hostcore_engines.ranks.rendezvous` for the protocol.

Where this machine does not see the run directory, it makes the worker a folder here, brings the job's inputs here, and
sends to rank 0 what the worker writes: see :mod:`hostcore_engines.ranks.rank_files`.
"""

import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from hostcore.events.codec import CorruptLog, encode_payload
from hostcore.events.merger import Entry, RankTail
from hostcore.plugins.errors import as_content
from hostcore.plugins.installed import discover
from hostcore.plugins.resolve import select
from hostcore.runs.channel import Channel
from hostcore.runs.contract import WorkerContract
from hostcore.runs.directory import RunDirectory
from hostcore.runs.documents import read_document
from hostcore.runs.record import RunRecord
from hostcore.runs.result import EXIT_CODES, INVALID
from hostcore.secrets.reference import remember_secrets
from hostcore.supervisor.abandoned import ORPHAN_SECONDS
from hostcore.supervisor.attempt.ending import is_end
from hostcore.supervisor.engine import ADMISSION_VARIABLE, Engine
from hostcore.supervisor.environment import job_python
from hostcore.supervisor.interrupts import Interrupts
from hostcore.supervisor.plan import load_here
from hostcore.supervisor.remote.inputs import fetch_inputs
from hostcore.supervisor.workers.session import TICK_SECONDS, WorkerSession
from hostcore.supervisor.workers.spawn import WorkerExit, WorkerProcess
from hostcore.supervisor.writable import unwritable
from hostcore_builtin_plugins.background import in_background
from hostcore_engines.ranks.rank_files import NodeFolder, Sender, files_of
from hostcore_engines.ranks.rendezvous import (
    FOLDER,
    JOIN_SECONDS,
    LONGEST_HELLO,
    RanksMissing,
    RankZeroAddress,
    keep_alive,
    proof,
)
from hostcore_hookspecs.errors import HostcoreError

if TYPE_CHECKING:
    from concurrent.futures import Future

Tell = Callable[[str], object]

_CONNECT_SECONDS: Final = 5.0
#: Time for a cancelled preparation to end, in seconds; it is cancelled at its next line of progress.
_END_SECONDS: Final = 15.0


class _Cancelled(Exception):
    """The preparation is not needed any more."""


class RankZeroGone(HostcoreError):
    """Rank 0's supervisor has ended without saying how the run did."""

    code = "ranks.gone"


def run_rank_agent(engine: Engine, runs: Path, interrupts: Interrupts, tell: Tell = lambda _: None) -> int:
    """Serve rank 0 to the end of the run.

    :param runs: The folder of all runs, the same for all ranks; or of this machine, if the ranks share a secret.
    :param interrupts: Entered. What is asked of this process is passed on to rank 0.
    :param tell: Called with lines about inputs brought to this machine.
    :return: The exit code: that of rank 0.
    :raises RanksMissing: When rank 0 is not found in time.
    :raises RankZeroGone: When it breaks off; then the worker here has ended, too.
    """
    file = runs / FOLDER / f"{engine.name}.json"
    due = time.monotonic() + JOIN_SECONDS
    while interrupts.first is None:
        for place in _places(engine, file):
            joined = _join(engine, place, file.parent)
            if joined is not None:
                line, start, shared = joined
                folder = None if shared else NodeFolder(file.parent, engine.name, start)
                return _RankAgent(engine, line, interrupts, start=start, folder=folder, tell=tell).run()
        if time.monotonic() >= due:
            raise RanksMissing(
                f"rank {engine.rank} has not found rank 0 within {JOIN_SECONDS:g} s",
                file=str(file),
                hint="rank 0 leaves that file: HOSTCORE_RUNS_DIR must name the same folder for all ranks, on all "
                "machines, and rank 0 must be reachable under its host name. Machines that share no folder need the "
                f"same {ADMISSION_VARIABLE}, and reach rank 0 at {engine.master_addr}, ports {engine.ports[0]} to "
                f"{engine.ports[-1]}",
            )
        time.sleep(TICK_SECONDS)
    return EXIT_CODES[interrupts.first.status]


def _places(engine: Engine, file: Path) -> Iterator[RankZeroAddress]:
    """Yield possible addresses of rank 0: from its file; and the ports next to the engine's, if there is a secret."""
    if (place := RankZeroAddress.read(file)) is not None:
        yield place
    for port in engine.ports if engine.secret else []:
        yield RankZeroAddress(host=engine.master_addr, port=port, token=engine.secret)


def _join(engine: Engine, place: RankZeroAddress, folder: Path) -> tuple[Channel, str, bool] | None:
    """The line to rank 0, its name for the start, and whether it sees the folder; None if it is not there.

    The file may be of an earlier start, and something else may listen at the port.

    :param folder: Where ranks look for rank 0, on this machine.
    """
    here = ["127.0.0.1"] if place.host == socket.gethostname() else []
    for host in dict.fromkeys([*here, engine.master_addr, place.host]):
        try:
            connection = keep_alive(socket.create_connection((host, place.port), timeout=_CONNECT_SECONDS))
        except OSError:
            continue
        line = Channel(connection)
        with suppress(OSError, EOFError, ValueError, KeyError, TypeError, RecursionError):  # a connection's port
            # A rank that knows the token has read the file, and sees the folder.
            with _probe(folder) if place.token == engine.secret else nullcontext("") as probe:
                welcomed = _greet(engine, line, place.token, probe)
            if welcomed is not None:
                return line, *welcomed
        line.close()
    return None


def _greet(engine: Engine, line: Channel, token: str, probe: str) -> tuple[str, bool] | None:
    """Prove to rank 0 that this is one of its ranks, and have it prove that it is rank 0.

    :param probe: The name of a file that rank 0 sees if it sees the folder of this rank; empty if that is known.
    :return: Its name for the start, and whether it sees the folder; None if it is not rank 0.
    """
    kind, content = line.receive(_CONNECT_SECONDS, longest=LONGEST_HELLO)
    if kind != "challenge":
        return None
    theirs, nonce = content["nonce"], secrets.token_hex(16)
    own = proof(token, "join", theirs, nonce, engine.rank, engine.world_size, engine.meeting, probe)
    line.send("join", {"rank": engine.rank, "nonce": nonce, "probe": probe, "proof": own})
    kind, content = line.receive(_CONNECT_SECONDS, longest=LONGEST_HELLO)
    start, shared = content["start"], content["shared"]
    expected = proof(token, "welcome", nonce, theirs, start, shared)
    if kind != "welcome" or not secrets.compare_digest(content["proof"], expected):
        return None
    return str(start), bool(shared)


@contextmanager
def _probe(folder: Path) -> Iterator[str]:
    """A file of a new name, which rank 0 sees if it sees this folder. A name never asked for is in no cache of NFS."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{secrets.token_hex(16)}.probe"
    path.touch()
    try:
        yield path.name
    finally:
        path.unlink(missing_ok=True)
        with suppress(OSError):  # there is more in it
            folder.rmdir()


class _RankAgent:
    """Serves rank 0.

    :param line: The line to it.
    :param start: Its name for this start of the ranks.
    :param folder: The worker's, if this machine does not see the run directory.
    :param tell: Called with lines about inputs brought to this machine.
    """

    def __init__(
        self,
        engine: Engine,
        line: Channel,
        interrupts: Interrupts,
        *,
        start: str,
        folder: NodeFolder | None = None,
        tell: Tell = lambda _: None,
    ) -> None:
        self._engine = engine
        self._folder = folder
        self._told = tell
        #: The worker is not to be started any more.
        self._cancelled = threading.Event()
        #: What the worker is started with, while that is being brought to this machine.
        self._preparing: Future[tuple[WorkerContract, Path, Path]] | None = None
        self._sender: Sender | None = None
        self._start = start
        self._line = line
        self._interrupts = interrupts
        self._passed_on: Any = None
        self._contract: WorkerContract | None = None
        #: The worker of this rank, once it was started.
        self._workers = WorkerSession()
        self._exit_told = False

    def run(self) -> int:
        """Forward messages between rank 0 and the worker.

        :return: The exit code.
        """
        self._workers.wake_for(self._line)
        try:
            while True:
                self._pass_on()
                with suppress(TimeoutError):  # that was all
                    while True:
                        kind, content = self._line.receive(0)
                        if kind == "end":
                            self._workers.end()
                            self._stop_preparing()
                            if self._folder is not None:
                                self._folder.remove()
                            return int(content["code"])
                        self._obey(kind, content)
        except (EOFError, OSError) as error:
            self._end_without_rank_zero()
            raise RankZeroGone(
                "rank 0 is gone, and did not report the end of the run", hint=f"its own output has the cause: {error}"
            ) from error
        finally:
            self._stop_preparing()
            self._workers.close()
            self._line.close()

    def _obey(self, kind: str, content: Any) -> None:
        """Carry out a message of rank 0, or forward it to the worker."""
        if kind == "start" and self._folder is not None:
            folder = self._folder  # fetching the inputs may take long, and rank 0 may cancel the start meanwhile
            self._preparing = in_background(lambda: self._prepare(folder, **content), "bringing the inputs")
        elif kind == "start":
            self._start_here(Path(content["contract"]), Path(content["output"]))
        elif kind == "took":
            if self._sender is not None:
                self._sender.took()
        elif kind in ("kill", "abort"):
            if self._preparing is not None:
                self._cancelled.set()
                self._tell_exit(WorkerExit(INVALID))
            self._workers.kill() if kind == "kill" else self._workers.abort()
        else:
            self._workers.send(kind, content)

    def _start_here(self, path: Path, output: Path) -> None:
        """Start the worker of a rank that sees the run directory; one of an environment, once that is here, too."""
        told = self._contract = WorkerContract.read(path)
        remember_secrets(read_document(Path(told.job_spec_path)))
        if not told.has_environment:
            self._workers.start(self._spawn, [(path, output)])
            return

        def prepare() -> tuple[WorkerContract, Path, Path]:
            here = _with_python(told, RunDirectory(Path(told.run_dir)).read_lock(), self._tell)
            if here != told:
                here.write(path)
            return here, path, output

        self._preparing = in_background(prepare, "building the environment")

    def _prepare(
        self, folder: NodeFolder, contract: Mapping[str, Any], record: Mapping[str, Any], lock: str | None
    ) -> tuple[WorkerContract, Path, Path]:
        """Make the worker's folder, and bring what the job needs to this machine."""
        remember_secrets(record)
        local, path, output = folder.prepare(contract, record, rank=self._engine.rank)
        local = _with_python(local, lock, self._tell)
        local = attrs.evolve(local, inputs=_inputs(Path(local.job_spec_path), self._tell))
        local.write(path)
        return local, path, output

    def _tell(self, line: str) -> None:
        """Report progress of the preparation; raises when it is cancelled."""
        if self._cancelled.is_set():
            raise _Cancelled
        self._told(line)

    def _stop_preparing(self) -> None:
        """End what is being prepared before this process ends: what that has started would go on without it."""
        self._cancelled.set()
        if self._preparing is not None:
            wait([self._preparing], _END_SECONDS)

    @property
    def _worker_folder(self) -> Path:
        """Folder that the worker writes to."""
        if self._folder is not None:
            return self._folder.path
        assert self._contract is not None
        return Path(self._contract.run_dir)

    def _start_prepared(self) -> None:
        """Start the worker once everything is here; or report the error to rank 0."""
        if self._preparing is None or self._cancelled.is_set() or not self._preparing.done():
            return
        prepared, self._preparing = self._preparing, None
        try:
            self._contract, contract, output = prepared.result()
        except (HostcoreError, OSError) as error:
            if isinstance(error, OSError):
                error = unwritable(self._worker_folder, error)
            self._line.send("invalid", as_content(error))
            self._tell_exit(WorkerExit(INVALID))
            return
        if self._folder is not None:
            self._sender = Sender(files_of(self._contract, output), self._line.send)
        self._workers.start(self._spawn, [(contract, output)])

    def _spawn(self, rank: int, contract: Path, output: Path) -> WorkerProcess:  # noqa: ARG002 - it is the only one here
        return WorkerProcess(contract, output, self._engine.environment(self._start))

    def _pass_on(self) -> None:
        """Send rank 0 the worker's messages, files and exit, and the requests to this process."""
        self._start_prepared()
        for _, kind, content in self._workers.listen():
            self._line.send(kind, content)
        heard = self._interrupts
        asked = heard.first and {"first": attrs.asdict(heard.first), "hurried": heard.hurried, "forced": heard.forced}
        if asked and asked != self._passed_on:
            self._passed_on = asked
            self._line.send("asked", asked)
        exits = [member.exit for member in self._workers.members]  # before its files are looked at a last time
        has_all = self._sender is None or self._sender.send()
        if has_all and exits and exits[0] is not None:
            self._tell_exit(exits[0])

    def _tell_exit(self, exit_: WorkerExit) -> None:
        if self._exit_told:
            return
        self._exit_told = True
        if self._folder is None and (end := self._end()) is not None:
            self._line.send("said", end)
        self._line.send("exited", attrs.asdict(exit_))

    def _end(self) -> dict[str, Any] | None:
        """The terminal event in the worker's log, which rank 0's machine may see later; None if there is none."""
        assert self._contract is not None
        log = RankTail(Path(self._contract.events_path), rank=self._engine.rank, attempt=self._contract.attempt)
        last: Entry | None = None
        with suppress(CorruptLog):  # rank 0 will report it
            for entry in log.read():
                last = entry if is_end(entry) else last
        if last is None or last.src is None or last.time_ms is None:
            return None
        line = encode_payload(last.payload, time_ms=last.time_ms, step=last.step, epoch=last.epoch)
        return {"line": line.decode(), "offset": last.src[2]}

    def _end_without_rank_zero(self) -> None:
        """End after the loss of rank 0: close the worker's channel, and give it time for a last checkpoint."""
        for member in self._workers.members:
            member.worker.channel.hang_up()
        due = time.monotonic() + ORPHAN_SECONDS
        while not self._workers.is_over and time.monotonic() < due:
            list(self._workers.listen())


def _with_python(contract: WorkerContract, lock: str | None, tell: Tell) -> WorkerContract:
    """Return the contract for this machine, where the job's environment is in another place.

    :param contract: As rank 0 has written it; the run's record is here.
    :param lock: What rank 0's environment was built from, and so is the one here; None for an interpreter.
    :raises HostcoreError: When there is no such interpreter here, or the environment cannot be built.
    """
    spec = RunRecord.read(Path(contract.job_spec_path)).spec()
    if spec.environment is None:
        return contract
    try:
        python, _ = job_python(spec.environment, discover(), lock=lock, job_dir=spec.job_dir, tell=tell)
    except HostcoreError as error:
        error.message = f"on {socket.gethostname()}: {error.message}"
        raise
    if spec.environment.used_by == "programs":
        return attrs.evolve(contract, programs_python=python.executable)
    return attrs.evolve(contract, python=python.executable)


def _inputs(record: Path, tell: Tell) -> dict[str, str]:
    """Bring the inputs and weights of a job to this machine, as rank 0 has brought them to its own.

    :param record: The run's record, here.
    :raises HostcoreError: What cannot be found or brought here.
    """
    recorded = RunRecord.read(record)
    spec = recorded.spec()
    if not spec.inputs and not spec.weights:
        return {}
    selected = select(spec, recorded.selectable(), room="supervisor")
    resolvers = [one for one in selected if one.ref.kind == "resolver"]
    here = load_here(resolvers, job_dir=spec.job_dir, import_paths=spec.import_paths)
    return fetch_inputs(spec, here["resolver"], tell)
