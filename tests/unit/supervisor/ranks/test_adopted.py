"""Ranks that an engine has started, as two supervisors over real sockets; their workers are actors."""

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pytest
from actors import GONE, SECONDS, SUMMARY, Actor, engine, join

from hostcore.errors import Errors
from hostcore.events.reader import read_events
from hostcore.job.sections import EnvironmentSpec
from hostcore.plugins.errors import as_content
from hostcore.runs.result import INVALID, RunResult
from hostcore.supervisor import environment
from hostcore.supervisor.attempt.documents import write_contracts, write_record
from hostcore.supervisor.attempt.journal import Journal
from hostcore.supervisor.attempt.supervise import supervise
from hostcore.supervisor.environment import EnvironmentBuilder
from hostcore.supervisor.interrupts import Asked, Interrupts
from hostcore.supervisor.opening import open_run
from hostcore.supervisor.ranks import rank_agent, rendezvous
from hostcore.supervisor.ranks.rank_agent import RankZeroGone, run_rank_agent
from hostcore.supervisor.ranks.rendezvous import Rendezvous
from hostcore_hookspecs import HostcoreError
from hostcore_hookspecs.events import ENDS, RunFailed, RunPreempted, RunStarted, RunSucceeded

TERM = Asked(status="preempted", reason="received SIGTERM", requested_by="signal:SIGTERM")
CANCEL = Asked(status="cancelled", reason="interrupted by the user", requested_by="user")


@attrs.frozen(eq=False)
class Pair:
    """Rank 0 runs a run, rank 1 serves it."""

    runs: Path
    plan: Any
    rendezvous: Rendezvous
    interrupts: list[Interrupts]
    result: "Future[RunResult]"
    code: "Future[int]"
    _actors: dict[int, Actor]
    _changed: threading.Condition

    def actor(self, rank: int) -> Actor:
        with self._changed:
            assert self._changed.wait_for(lambda: rank in self._actors, SECONDS)
        return self._actors[rank]

    def begin(self) -> tuple[Actor, Actor]:
        actors = (self.actor(0), self.actor(1))
        for actor in actors:
            actor.say("ready", SUMMARY)
        for actor in actors:
            assert actor.hear() == ("go", {})
        actors[0].write(RunStarted(device="cpu", world_size=2))
        return actors

    @property
    def ends(self) -> list[tuple[str, int | None]]:
        """The terminal events, each with the rank that said it."""
        told = [event for event, _ in read_events(self.plan.directory.events) if event.name in ENDS]
        return [(event.name, event.src[0] if event.src else None) for event in told]


@pytest.fixture
def pair(plan: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """Both, with the run under way as far as its workers."""
    actors: dict[int, Actor] = {}
    changed = threading.Condition()

    def actor(rank: int) -> Callable[..., Actor]:
        def make(contract: Path, output: Path, environment: Any) -> Actor:
            with changed:
                actors[rank] = Actor(rank, contract, output)
                changed.notify_all()
            return actors[rank]

        return make

    monkeypatch.setattr(rendezvous, "WorkerProcess", actor(0))
    monkeypatch.setattr(rank_agent, "WorkerProcess", actor(1))
    planned = attrs.evolve(plan(), spec=attrs.evolve(plan().spec, world_size=2))
    runs, interrupts = tmp_path / "runs", [Interrupts(), Interrupts()]

    def run(ranks: Rendezvous) -> RunResult:
        try:
            with ranks:
                ranks.gather()
                result = supervise(planned, open_run(planned), interrupts[0], spawn=ranks.spawn)
                raise SystemExit(result.exit_code)
        except SystemExit:
            return result

    with ThreadPoolExecutor(max_workers=2) as threads:
        code = threads.submit(run_rank_agent, engine(1), runs, interrupts[1])
        ranks = Rendezvous(engine(0), runs, interrupts[0])
        yield Pair(runs, planned, ranks, interrupts, threads.submit(run, ranks), code, actors, changed)
        for one in actors.values():
            one.kill()
        interrupts[0].first = interrupts[1].first = TERM


class TestARun:
    def test_of_two_supervisors_has_one_directory_one_end_and_one_exit_code(self, pair: Pair) -> None:
        first, second = pair.begin()
        second.end(RunSucceeded())
        first.end(RunSucceeded())
        assert pair.result.result(SECONDS).status == "succeeded"
        assert pair.code.result(SECONDS) == 0
        assert pair.ends == [("run_succeeded", 0)]
        assert sorted(path.name for path in pair.runs.iterdir()) == ["a"], "the place where the ranks met is gone"

    def test_that_fails_elsewhere_is_told_with_that_failure(self, pair: Pair) -> None:
        first, second = pair.begin()
        second.write(RunFailed(error=attrs.evolve(GONE, type="ValueError", message="the loss has exploded", rank=1)))
        first.fail(GONE)
        second.exit(1)
        result = pair.result.result(SECONDS)
        assert (result.status, result.error.type, result.error.rank) == ("failed", "ValueError", 1)
        assert (pair.code.result(SECONDS), pair.ends) == (1, [("run_failed", 1)])

    def test_whose_worker_dies_elsewhere_is_told_with_its_death(self, pair: Pair) -> None:
        first, second = pair.begin()
        second.exit(-9)
        result = pair.result.result(SECONDS)
        assert result.error.message.startswith("the worker of rank 1 was killed by SIGKILL")
        assert first.done == ["kill"]

    def test_that_one_rank_finds_invalid_is_refused_by_all(self, pair: Pair) -> None:
        pair.actor(0).say("ready", SUMMARY)
        pair.actor(1).say("invalid", as_content(HostcoreError("there is no device 'cuda:1' here")))
        with pytest.raises(Errors, match="no device 'cuda:1'"):
            pair.result.result(SECONDS)
        assert pair.code.result(SECONDS) == 2
        assert not pair.plan.directory.path.exists()

    @pytest.mark.parametrize("heard_by", [0, 1])
    def test_is_stopped_by_a_signal_to_any_rank(self, pair: Pair, heard_by: int) -> None:
        actors = pair.begin()
        pair.interrupts[heard_by].first = TERM
        for actor in actors:
            assert actor.hear()[0] == "stop"
        for actor in actors:
            actor.end(RunPreempted(reason=TERM.reason))
        assert pair.result.result(SECONDS).requested_by in ("signal:SIGTERM", None)
        assert pair.code.result(SECONDS) == 75


class TestASupervisorThatIsGone:
    def test_takes_the_worker_of_rank_0_with_it(self, plan: Callable, tmp_path: Path, monkeypatch: Any) -> None:
        planned = attrs.evolve(plan(), spec=attrs.evolve(plan().spec, world_size=2))
        first: list[Actor] = []
        monkeypatch.setattr(
            rendezvous, "WorkerProcess", lambda *files_: first.append(Actor(0, *files_[:2])) or first[0]
        )
        with Rendezvous(engine(0), tmp_path / "runs", Interrupts()) as ranks, ThreadPoolExecutor(1) as threads:
            with closing(join(ranks, tmp_path / "runs")) as line:
                ranks.gather()
                result = threads.submit(supervise, planned, open_run(planned), Interrupts(), spawn=ranks.spawn)
                assert [line.receive(SECONDS)[0] for _ in range(2)] == ["welcome", "start"]
            error = result.result(SECONDS).error
        assert (error.type, error.rank) == ("WorkerDied", 1)
        assert "was lost with the supervisor that watched it there" in error.message
        assert first[0].done == ["kill"]

    def test_as_rank_0_ends_the_others(self, tmp_path: Path) -> None:
        ranks = Rendezvous(engine(0), tmp_path, Interrupts())
        ranks.__enter__()
        with ThreadPoolExecutor(1) as threads:
            code = threads.submit(run_rank_agent, engine(1), tmp_path, Interrupts())
            ranks.gather()
            ranks._lines[1].close()
            with pytest.raises(RankZeroGone):
                code.result(SECONDS)


def test_the_end_that_a_worker_has_written_is_passed_on_before_its_exit(
    plan: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 may see the log of another machine's worker late."""
    opening, started = open_run(plan()), threading.Event()
    write_record(plan(), opening.record_before, started_ms=0, attempt=1, world_size=plan().spec.ranks)
    write_contracts(attrs.evolve(plan(), spec=attrs.evolve(plan().spec, world_size=2)), opening)
    actors: list[Actor] = []

    def start(contract: Path, output: Path, _: Any) -> Actor:
        actors.append(Actor(1, contract, output))
        started.set()
        return actors[0]

    monkeypatch.setattr(rank_agent, "WorkerProcess", start)
    directory = opening.directory
    with ThreadPoolExecutor(1) as threads, Rendezvous(engine(0), tmp_path / "runs", Interrupts()) as ranks:
        code = threads.submit(run_rank_agent, engine(1), tmp_path / "runs", Interrupts())
        ranks.gather()
        worker = ranks.spawn(1, directory.contract(1, 1), directory.rank_output(1, 1))
        assert started.wait(SECONDS)
        actors[0].end(RunSucceeded(reason="enough"), step=7)
        kind, content = worker.channel.receive(SECONDS)
        assert worker.wait().code == 0
    assert code.result(SECONDS) == 1
    journal = Journal(opening, plan().job, ranks=2)
    directory.rank_events(1, 1).unlink()
    assert kind == "said"
    journal.hear_end(1, content["line"].encode(), content["offset"])
    assert (journal.said[1].payload, journal.said[1].src) == (RunSucceeded(reason="enough"), (1, 1, 0))


class Building:
    """Builds an environment and tells of it, and comes to no end by itself."""

    def __init__(self) -> None:
        self.begun, self.ended, self.over = threading.Event(), threading.Event(), threading.Event()
        self.lock: str | None = None

    def __call__(self, *_: Any, lock: str | None, tell: Callable[[str], object], **__: Any) -> Any:
        self.lock = lock
        self.begun.set()
        try:
            while not self.over.wait(0.01):
                tell("environment: building it")
        finally:
            self.ended.set()


@pytest.fixture
def building(monkeypatch: pytest.MonkeyPatch) -> Iterator[Building]:
    """What builds the environment on another machine. It has ended when the supervisor there has."""
    building = Building()
    monkeypatch.setattr(rank_agent, "job_python", building)
    yield building
    assert building.ended.is_set() == building.begun.is_set()
    building.over.set()


class TestAnEnvironment:
    """Of a job, which another machine has to build."""

    @pytest.fixture
    def elsewhere(self, plan: Callable, tmp_path: Path, building: Building) -> Iterator[Any]:
        """``elsewhere()``: rank 0 has told rank 1, and sees its worker so."""
        spec = attrs.evolve(plan().spec, environment=EnvironmentSpec(requirements=("numpy",)), world_size=2)
        planned = attrs.evolve(plan(), spec=spec, python="/of/rank-0/bin/python", lock="# the lock\n")
        opening = open_run(planned)
        write_record(planned, opening.record_before, started_ms=0, attempt=1, world_size=2)
        write_contracts(planned, opening)
        directory = opening.directory
        with ThreadPoolExecutor(1) as threads, Rendezvous(engine(0), tmp_path / "runs", Interrupts()) as ranks:
            threads.submit(run_rank_agent, engine(1), tmp_path / "runs", Interrupts())
            ranks.gather()
            yield lambda: ranks.spawn(1, directory.contract(1, 1), directory.rank_output(1, 1))

    def test_that_is_being_built_ends_with_the_run_that_is_cancelled(
        self, elsewhere: Callable, building: Building
    ) -> None:
        worker = elsewhere()
        assert building.begun.wait(SECONDS)
        worker.kill()
        assert worker.wait().code == INVALID
        assert building.ended.wait(SECONDS)
        assert building.lock == "# the lock\n"

    def test_that_is_being_built_ends_with_the_run_that_has_ended(
        self, elsewhere: Callable, building: Building
    ) -> None:
        elsewhere()
        assert building.begun.wait(SECONDS)

    @pytest.mark.parametrize(
        ("broken", "code"), [("the builder", "environment.unusable"), ("the run directory", "run.unwritable")]
    )
    def test_is_told_apart_from_the_run_directory_where_a_disk_fails(
        self, elsewhere: Callable, monkeypatch: pytest.MonkeyPatch, broken: str, code: str
    ) -> None:
        def fails(*_: Any, **__: Any) -> Any:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(rank_agent, "job_python", environment.job_python)
        monkeypatch.setattr(EnvironmentBuilder, "build", fails)
        monkeypatch.setattr(EnvironmentBuilder, "__abstractmethods__", frozenset())
        monkeypatch.setattr(environment, "load_extension", lambda *_: EnvironmentBuilder)
        if broken == "the run directory":
            monkeypatch.setattr(rank_agent.RunDirectory, "read_lock", fails)
        worker = elsewhere()
        kind, (error,) = worker.channel.receive(SECONDS)
        assert (kind, error["code"]) == ("invalid", code)
        assert "No space left on device" in error["message"]
        assert worker.wait().code == INVALID

    def test_that_cannot_be_built_there_is_an_error_of_the_job_that_names_the_machine(
        self, elsewhere: Callable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(*_: Any, **__: Any) -> Any:
            raise HostcoreError("the disk is full", code="environment.failed", pointer="/environment")

        monkeypatch.setattr(rank_agent, "job_python", fails)
        worker = elsewhere()
        kind, (error,) = worker.channel.receive(SECONDS)
        assert (kind, error["code"], error["pointer"]) == ("invalid", "environment.failed", "/environment")
        assert error["message"] == f"on {socket.gethostname()}: the disk is full"
        assert worker.wait().code == INVALID


class TestACtrlC:
    """To all ranks at once, as from a terminal or a launcher."""

    def test_that_another_rank_has_passed_on_before_it_came_here_forces_nothing(self) -> None:
        with Interrupts() as interrupts:
            interrupts.hear(CANCEL, hurried=False, forced=False)
            signal.raise_signal(signal.SIGINT)
            assert (interrupts.first, interrupts.forced) == (CANCEL, False)
            signal.raise_signal(signal.SIGINT)
            assert interrupts.forced

    def test_that_was_heard_here_first_forces_nothing_either(self) -> None:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
            interrupts.hear(CANCEL, hurried=False, forced=False)
            assert not interrupts.forced

    def test_after_another_rank_was_asked_to_stop_forces_as_ever(self) -> None:
        with Interrupts() as interrupts:
            interrupts.hear(TERM, hurried=True, forced=False)
            signal.raise_signal(signal.SIGINT)
            assert interrupts.forced
