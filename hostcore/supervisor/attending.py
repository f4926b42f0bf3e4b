"""The supervisor of a rank other than 0 that an engine has started.

It opens no run and claims nothing: it starts a worker when rank 0 says so, passes on what either says, and ends when
rank 0 says how. See :mod:`hostcore.supervisor.muster` for the whole conversation.
"""

import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore.events.codec import CorruptLog, encode_payload
from hostcore.events.merger import Entry, RankTail
from hostcore.job.secrets import remember_secrets
from hostcore.runs.channel import Channel
from hostcore.runs.contract import WorkerContract
from hostcore.runs.documents import read_document
from hostcore.runs.result import EXIT_CODES
from hostcore.supervisor.abandoned import ORPHAN_SECONDS
from hostcore.supervisor.ending import is_end
from hostcore.supervisor.engine import Engine
from hostcore.supervisor.group import WorkerGroup
from hostcore.supervisor.interrupts import Interrupts
from hostcore.supervisor.muster import FOLDER, JOIN_SECONDS, Place, RanksMissing, keep_alive
from hostcore.supervisor.spawn import WorkerProcess
from hostcore_hookspecs.errors import HostcoreError

_TICK_SECONDS: Final = 0.1
_CONNECT_SECONDS: Final = 5.0


class RankZeroGone(HostcoreError):
    """Rank 0's supervisor has ended without saying how the run did."""

    code = "ranks.gone"


def attend(engine: Engine, runs: Path, interrupts: Interrupts) -> int:
    """Serve rank 0 to the end of the run.

    :param runs: The folder of all runs, the same for all ranks.
    :param interrupts: Entered. What is asked of this process is passed on to rank 0.
    :return: The exit code: that of rank 0.
    :raises RanksMissing: When rank 0 is not found in time.
    :raises RankZeroGone: When it breaks off; then the worker here has ended, too.
    """
    file = runs / FOLDER / f"{engine.name}.json"
    due = time.monotonic() + JOIN_SECONDS
    while interrupts.first is None:
        place = Place.read(file)
        joined = _join(engine, place) if place else None
        if joined is not None:
            line, start = joined
            return _Attendant(engine, line, interrupts, start=start).run()
        if time.monotonic() >= due:
            raise RanksMissing(
                f"rank {engine.rank} has not found rank 0 within {JOIN_SECONDS:g} s",
                file=str(file),
                hint="rank 0 leaves that file: HOSTCORE_RUNS_DIR must name the same folder for all ranks, on all "
                "machines, and rank 0 must be reachable under its host name",
            )
        time.sleep(_TICK_SECONDS)
    return EXIT_CODES[interrupts.first.status]


def _join(engine: Engine, place: Place) -> tuple[Channel, str] | None:
    """The line to rank 0, and its name for the start; None if it is not there: the file may be of an earlier start."""
    here = ["127.0.0.1"] if place.host == socket.gethostname() else []
    for host in dict.fromkeys([*here, engine.master_addr, place.host]):
        try:
            connection = keep_alive(socket.create_connection((host, place.port), timeout=_CONNECT_SECONDS))
        except OSError:
            continue
        line = Channel(connection)
        with suppress(OSError, EOFError, ValueError, KeyError, TypeError):  # a stranger's port
            line.send("join", {"rank": engine.rank, "world_size": engine.world_size, "token": place.token})
            kind, content = line.receive(_CONNECT_SECONDS)
            if kind == "welcome":
                return line, str(content["start"])
        line.close()
    return None


class _Attendant:
    """Serves rank 0.

    :param line: The line to it.
    :param start: Its name for this start of the ranks.
    """

    def __init__(self, engine: Engine, line: Channel, interrupts: Interrupts, *, start: str) -> None:
        self._engine = engine
        self._start = start
        self._line = line
        self._interrupts = interrupts
        self._passed_on: Any = None
        self._contract: WorkerContract | None = None
        #: The worker of this rank, once it was started.
        self._workers = WorkerGroup()
        self._exit_told = False

    def run(self) -> int:
        """Pass on what rank 0 and the worker say.

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
                            return int(content["code"])
                        self._follow(kind, content)
        except (EOFError, OSError) as error:
            self._let_go()
            raise RankZeroGone(
                "rank 0 is gone, and did not say how the run has ended", hint=f"what it says itself tells more: {error}"
            ) from error
        finally:
            self._workers.close()
            self._line.close()

    def _follow(self, kind: str, content: Any) -> None:
        """Do what rank 0 says."""
        if kind == "start":
            contract, output = Path(content["contract"]), Path(content["output"])
            self._contract = WorkerContract.read(contract)
            remember_secrets(read_document(Path(self._contract.job_spec_path)))
            self._workers.start(self._spawn, [(contract, output)])
        elif kind == "kill":
            self._workers.kill()
        elif kind == "abort":
            self._workers.abort()
        else:
            self._workers.send(kind, content)

    def _spawn(self, rank: int, contract: Path, output: Path) -> WorkerProcess:  # noqa: ARG002 - it is the only one here
        return WorkerProcess(contract, output, self._engine.environment(self._start))

    def _pass_on(self) -> None:
        """Tell rank 0 what the worker says, how it has ended, and what was asked of this process."""
        for _, kind, content in self._workers.listen(_TICK_SECONDS):
            self._line.send(kind, content)
        heard = self._interrupts
        asked = heard.first and {"first": attrs.asdict(heard.first), "hurried": heard.hurried, "forced": heard.forced}
        if asked and asked != self._passed_on:
            self._passed_on = asked
            self._line.send("asked", asked)
        for member in self._workers.members:
            if member.exit is not None and not self._exit_told:
                self._exit_told = True
                if (end := self._end()) is not None:
                    self._line.send("said", end)
                self._line.send("exited", attrs.asdict(member.exit))

    def _end(self) -> dict[str, Any] | None:
        """The terminal event in the worker's log, which rank 0's machine may see later; None if there is none."""
        assert self._contract is not None
        log = RankTail(Path(self._contract.events_path), rank=self._engine.rank, attempt=self._contract.attempt)
        last: Entry | None = None
        with suppress(CorruptLog):  # rank 0 will say so
            for entry in log.read():
                last = entry if is_end(entry) else last
        if last is None or last.src is None or last.time_ms is None:
            return None
        line = encode_payload(last.payload, time_ms=last.time_ms, step=last.step, epoch=last.epoch)
        return {"line": line.decode(), "offset": last.src[2]}

    def _let_go(self) -> None:
        """Rank 0 is gone: the worker hears that, and has the time for a last checkpoint."""
        for member in self._workers.members:
            member.worker.channel.hang_up()
        due = time.monotonic() + ORPHAN_SECONDS
        while not self._workers.is_over and time.monotonic() < due:
            list(self._workers.listen(_TICK_SECONDS))
