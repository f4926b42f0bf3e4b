"""Workers and ranks that do and say what a test tells them, so that all that ranks can do to each other is staged."""

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from hostcore.events.writer import RankLog, now_ms
from hostcore.runs.channel import Channel
from hostcore.runs.contract import WorkerContract
from hostcore.runs.result import RunResult
from hostcore.supervisor.attempt.supervise import supervise
from hostcore.supervisor.interrupts import Interrupts
from hostcore.supervisor.opening import open_run
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.workers.spawn import WorkerExit
from hostcore_hookspecs.errors import RunError
from hostcore_hookspecs.events import Payload, RunFailed, RunStarted, RunSucceeded

#: How long anything may take here that takes no time.
SECONDS = 60

SUMMARY: dict[str, Any] = {
    "device": "cpu",
    "total_steps": 10,
    "num_rows": 0,
    "data": {},
    "plugins": [],
    "environment": {},
    "deprecated": [],
}

#: What gloo says to a rank whose neighbour is gone.
GONE = RunError(
    type="RuntimeError",
    message="[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:62109.",
)


class Actor:
    """The worker of a rank. See :class:`hostcore.supervisor.workers.spawn.Worker`."""

    def __init__(self, rank: int, contract: Path, output: Path) -> None:
        self.rank = rank
        self.channel, self._own_end = Channel.pair()
        #: The time of what it writes; by the clock of this machine until a test sets it.
        self.now_ms: int | None = None
        events = Path(WorkerContract.read(contract).events_path)
        self._log = RankLog(events, clock=lambda: now_ms() if self.now_ms is None else self.now_ms)
        self.output = output
        #: What was done to it: ``kill``, ``abort``.
        self.done: list[str] = []
        self.pid = None
        self._over = threading.Event()
        self._exit = WorkerExit(0)

    def say(self, kind: str, content: Any = None) -> None:
        self._own_end.send(kind, content or {})

    def hear(self) -> tuple[str, Any]:
        return self._own_end.receive(SECONDS)

    def write(self, payload: Payload, *, step: int = 0) -> None:
        self._log.write(payload, step=step, epoch=0)

    def exit(self, code: int = 0) -> None:
        """Be gone, as the kernel would have it: the line first, then the process."""
        self._exit = WorkerExit(code)
        self._own_end.hang_up()
        self._over.set()

    def end(self, payload: Payload, *, step: int = 10) -> None:
        self.write(payload, step=step)
        self.exit(0 if isinstance(payload, RunSucceeded) else 1)

    def fail(self, error: RunError, *, step: int = 3) -> None:
        self.end(RunFailed(error=attrs.evolve(error, rank=self.rank)), step=step)

    def poll(self) -> WorkerExit | None:
        return self._exit if self._over.is_set() else None

    def wait(self) -> WorkerExit:
        assert self._over.wait(SECONDS), f"rank {self.rank} was left alive"
        return self._exit

    def kill(self) -> None:
        if not self._over.is_set():
            self.done.append("kill")
            self.exit(-signal.SIGKILL)

    def abort(self) -> None:
        self.done.append("abort")
        self.output.write_text(f"the stack of rank {self.rank}\n")
        self.exit(-signal.SIGABRT)

    def close(self) -> None:
        self.channel.close()

    def heard(self) -> list[str]:
        """What it was told to the end, once the supervisor has closed the line."""
        told = []
        while True:
            try:
                told.append(self.hear()[0])
            except EOFError:
                return told


@attrs.frozen(eq=False)
class Stage:
    """A run that is supervised in another thread, and its actors."""

    plan: RunPlan
    interrupts: Interrupts
    _result: "Future[RunResult]"
    _actors: dict[int, Actor]
    _entered: threading.Event

    @property
    def actors(self) -> list[Actor]:
        """All of them, once they have been started."""
        assert self._entered.wait(SECONDS)
        return [self._actors[rank] for rank in sorted(self._actors)]

    def begin(self) -> list[Actor]:
        """All get ready, and are told to go."""
        for actor in self.actors:
            actor.say("ready", SUMMARY)
        for actor in self.actors:
            assert actor.hear() == ("go", {})
        self.actors[0].write(RunStarted(device="cpu", world_size=len(self.actors)))
        return self.actors

    def result(self) -> RunResult:
        return self._result.result(SECONDS)


@contextmanager
def staged(plan: RunPlan) -> Iterator[Stage]:
    """Supervise a new run with actors. However the test ends, all of them are killed."""
    actors: dict[int, Actor] = {}
    entered = threading.Event()

    def spawn(rank: int, contract: Path, output: Path) -> Actor:
        actors[rank] = Actor(rank, contract, output)
        if len(actors) == plan.spec.ranks:
            entered.set()
        return actors[rank]

    interrupts = Interrupts()
    with ThreadPoolExecutor(max_workers=1) as threads:
        result = threads.submit(supervise, plan, open_run(plan), interrupts, spawn=spawn)
        result.add_done_callback(lambda _: entered.set())
        try:
            yield Stage(plan, interrupts, result, actors, entered)
        finally:
            for actor in actors.values():
                actor.kill()
