"""Ranks that an engine has started, as two supervisors over real sockets; their workers are actors."""

import json
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
from actors import GONE, SECONDS, SUMMARY, Actor
from ports import free_ports

from hostcore.errors import Errors
from hostcore.events.reader import read_events
from hostcore.runs.channel import Channel, errors_as_content
from hostcore.runs.result import RunResult
from hostcore.supervisor import attending, muster
from hostcore.supervisor.attending import RankZeroGone, attend
from hostcore.supervisor.briefing import write_contracts, write_record
from hostcore.supervisor.engine import Engine
from hostcore.supervisor.interrupts import Asked, Interrupts
from hostcore.supervisor.journal import Journal
from hostcore.supervisor.muster import Muster, NoSharedStorage, Place, RanksMissing, proof
from hostcore.supervisor.opening import open_run
from hostcore.supervisor.rank_files import Received, Sender
from hostcore.supervisor.reporting import Audience
from hostcore.supervisor.supervise import supervise
from hostcore_hookspecs import HostcoreError
from hostcore_hookspecs.events import ENDS, RunFailed, RunPreempted, RunStarted, RunSucceeded

TERM = Asked(status="preempted", reason="received SIGTERM", requested_by="signal:SIGTERM")
CANCEL = Asked(status="cancelled", reason="interrupted by the user", requested_by="user")

#: The name of threads that say what a rank says.
ANSWERING = "answering rank 0"


def engine(rank: int, **changes: Any) -> Engine:
    whole = Engine(
        rank=rank,
        local_rank=rank,
        world_size=2,
        local_world_size=2,
        master_addr="127.0.0.1",
        master_port=29500,
        launch="none",
    )
    return attrs.evolve(whole, **changes)


@attrs.frozen(eq=False)
class Pair:
    """Rank 0 runs a run, rank 1 serves it."""

    runs: Path
    plan: Any
    muster: Muster
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

    monkeypatch.setattr(muster, "WorkerProcess", actor(0))
    monkeypatch.setattr(attending, "WorkerProcess", actor(1))
    planned = attrs.evolve(plan(), spec=attrs.evolve(plan().spec, world_size=2))
    runs, interrupts = tmp_path / "runs", [Interrupts(), Interrupts()]

    def run(ranks: Muster) -> RunResult:
        try:
            with ranks:
                ranks.gather()
                result = supervise(planned, open_run(planned), interrupts[0], spawn=ranks.spawn)
                raise SystemExit(result.exit_code)
        except SystemExit:
            return result

    with ThreadPoolExecutor(max_workers=2) as threads:
        code = threads.submit(attend, engine(1), runs, interrupts[1])
        ranks = Muster(engine(0), runs, interrupts[0])
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
        pair.actor(1).say("invalid", errors_as_content(HostcoreError("there is no device 'cuda:1' here")))
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
        monkeypatch.setattr(muster, "WorkerProcess", lambda *files_: first.append(Actor(0, *files_[:2])) or first[0])
        with Muster(engine(0), tmp_path / "runs", Interrupts()) as ranks, ThreadPoolExecutor(1) as threads:
            with closing(join(ranks, tmp_path / "runs")) as line:
                ranks.gather()
                result = threads.submit(supervise, planned, open_run(planned), Interrupts(), spawn=ranks.spawn)
                assert [line.receive(SECONDS)[0] for _ in range(2)] == ["welcome", "start"]
            error = result.result(SECONDS).error
        assert (error.type, error.rank) == ("WorkerDied", 1)
        assert "was lost with the supervisor that watched it there" in error.message
        assert first[0].done == ["kill"]

    def test_as_rank_0_ends_the_others(self, tmp_path: Path) -> None:
        ranks = Muster(engine(0), tmp_path, Interrupts())
        ranks.__enter__()
        with ThreadPoolExecutor(1) as threads:
            code = threads.submit(attend, engine(1), tmp_path, Interrupts())
            ranks.gather()
            ranks._lines[1].close()
            with pytest.raises(RankZeroGone):
                code.result(SECONDS)


def join(ranks: Muster, runs: Path, **changes: Any) -> Channel:
    """A line as another rank has it; welcomed, unless something about it is wrong."""
    (file,) = (runs / ".ranks").iterdir()
    place = Place.read(file)
    assert place is not None
    return greet(place.port, **{"token": place.token, **changes})


def greet(port: int, token: str, **changes: Any) -> Channel:
    """A line to rank 0, on which a thread says what a rank says, once rank 0 looks after it."""
    line = Channel(socket.create_connection(("127.0.0.1", port)))
    said = {
        "token": token,
        "rank": 1,
        "world_size": 2,
        "meeting": engine(1).meeting,
        "nonce": "mine",
        "probe": "",
        **changes,
    }

    def answer() -> None:
        try:
            _, challenge = line.receive(SECONDS)
        except EOFError:  # rank 0 has all its ranks, and has closed the line
            return
        knows = proof(
            *(said["token"], "join", challenge["nonce"], said["nonce"]),
            *(said["rank"], said["world_size"], said["meeting"], said["probe"]),
        )
        line.send("join", {key: said[key] for key in ("rank", "nonce", "probe")} | {"proof": knows})

    threading.Thread(target=answer, name=ANSWERING, daemon=True).start()
    return line


def wait_for_answers() -> None:
    """Wait until no thread reads from a line any more."""
    for thread in threading.enumerate():
        if thread.name == ANSWERING:
            thread.join(SECONDS)


def test_the_end_that_a_worker_has_written_is_passed_on_before_its_exit(
    plan: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 may see the log of another machine's worker late."""
    opening, started = open_run(plan()), threading.Event()
    write_record(plan(), opening, started_ms=0)
    write_contracts(attrs.evolve(plan(), spec=attrs.evolve(plan().spec, world_size=2)), opening)
    actors: list[Actor] = []

    def start(contract: Path, output: Path, _: Any) -> Actor:
        actors.append(Actor(1, contract, output))
        started.set()
        return actors[0]

    monkeypatch.setattr(attending, "WorkerProcess", start)
    directory = opening.directory
    with ThreadPoolExecutor(1) as threads, Muster(engine(0), tmp_path / "runs", Interrupts()) as ranks:
        code = threads.submit(attend, engine(1), tmp_path / "runs", Interrupts())
        ranks.gather()
        worker = ranks.spawn(1, directory.contract(1, 1), directory.rank_output(1, 1))
        assert started.wait(SECONDS)
        actors[0].end(RunSucceeded(reason="enough"), step=7)
        kind, content = worker.channel.receive(SECONDS)
        assert worker.wait().code == 0
    assert code.result(SECONDS) == 1
    journal = Journal(opening, plan().job, Audience([]), ranks=2)
    directory.rank_events(1, 1).unlink()
    assert kind == "said"
    journal.hear_end(1, content["line"].encode(), content["offset"])
    assert (journal.said[1].payload, journal.said[1].src) == (RunSucceeded(reason="enough"), (1, 1, 0))


class TestTheMeeting:
    @pytest.mark.parametrize(
        "changes",
        [
            *({"token": "x"}, {"rank": 2}, {"rank": 0}, {"rank": "1"}, {"rank": None}, {"world_size": 3}),
            {"meeting": "another-launch"},
        ],
        ids=str,
    )
    def test_turns_strangers_away_and_waits_on(self, tmp_path: Path, changes: dict[str, Any]) -> None:
        with ExitStack() as open_ones:
            ranks = open_ones.enter_context(Muster(engine(0), tmp_path, Interrupts()))
            stranger = open_ones.enter_context(closing(join(ranks, tmp_path, **changes)))
            line = open_ones.enter_context(closing(join(ranks, tmp_path)))
            ranks.gather()
            kind, content = line.receive(SECONDS)
            assert (kind, content["start"], content["shared"]) == ("welcome", ranks._start, True)
            wait_for_answers()
            with pytest.raises(EOFError):
                stranger.receive(SECONDS)

    def test_that_not_all_come_to_is_an_error_that_says_where_it_was(self, tmp_path: Path) -> None:
        with Muster(engine(0), tmp_path, Interrupts()) as ranks:
            with pytest.raises(RanksMissing, match="rank 1 did not come within 0 s") as caught:
                ranks.gather(0)
            ranks._close_door()
        assert "HOSTCORE_RUNS_DIR" in caught.value.hint
        assert caught.value.file.endswith("127.0.0.1-29500-none.json")

    def test_is_not_that_of_an_earlier_start_whose_rank_0_was_killed(self, tmp_path: Path) -> None:
        stale = Muster(engine(0), tmp_path, Interrupts())
        stale.__enter__()
        stale._listening.close()
        with ThreadPoolExecutor(1) as threads:
            code = threads.submit(attend, engine(1), tmp_path, Interrupts())
            with Muster(engine(0), tmp_path, Interrupts()) as ranks:
                ranks.gather()
            assert code.result(SECONDS) == 1

    def test_stays_where_it_is_when_that_of_an_earlier_start_ends(self, tmp_path: Path) -> None:
        """The agent of an earlier rank 0 may be gone, and rank 0 not yet."""
        with ExitStack() as earlier:
            left = earlier.enter_context(Muster(engine(0, world_size=1), tmp_path, Interrupts()))
            with Muster(engine(0), tmp_path, Interrupts()) as ranks:
                left._close_door()
                with closing(join(ranks, tmp_path)) as line:
                    ranks.gather()
                    kind, content = line.receive(SECONDS)
        assert (kind, content["start"]) == ("welcome", ranks._start)
        assert ranks._start != left._start

    def test_names_the_start_for_the_workers_of_all(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        told: list[Any] = []
        started = threading.Event()
        monkeypatch.setattr(attending.WorkerContract, "read", lambda path: attrs.make_class("C", ["job_spec_path"])(""))
        monkeypatch.setattr(attending, "read_document", lambda path: {})

        def start(contract: Path, output: Path, environment: Any) -> Actor:
            told.append(environment["HOSTCORE_START"])
            started.set()
            raise OSError("that is all")

        for module in (muster, attending):
            monkeypatch.setattr(module, "WorkerProcess", start)
        with ThreadPoolExecutor(1) as threads, Muster(engine(0), tmp_path, Interrupts()) as ranks:
            code = threads.submit(attend, engine(1), tmp_path, Interrupts())
            ranks.gather()
            ranks.spawn(1, tmp_path / "c", tmp_path / "o")
            assert started.wait(SECONDS)
            with pytest.raises(OSError):
                ranks.spawn(0, tmp_path / "c", tmp_path / "o")
        assert code.exception(SECONDS) is not None
        assert told == [ranks._start] * 2

    def test_is_known_to_this_user_alone(self, tmp_path: Path) -> None:
        with Muster(engine(0), tmp_path, Interrupts()) as ranks:
            (file,) = (tmp_path / ".ranks").iterdir()
            assert file.stat().st_mode & 0o777 == 0o600
            ranks._close_door()

    def test_ends_for_the_others_as_rank_0_does_whatever_became_of_it(self, tmp_path: Path) -> None:
        with ThreadPoolExecutor(1) as threads:
            code = threads.submit(attend, engine(1), tmp_path, Interrupts())
            with pytest.raises(HostcoreError), Muster(engine(0), tmp_path, Interrupts()):
                raise HostcoreError("the job is invalid")
            assert code.result(SECONDS) == 2

    def test_is_left_by_a_rank_that_is_asked_to_stop_before_rank_0_was_there(self, tmp_path: Path) -> None:
        interrupts = Interrupts()
        interrupts.first = TERM
        assert attend(engine(1), tmp_path, interrupts) == 75


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


SECRET = "a secret of this test alone"


class TestMachinesThatShareNoFolder:
    """Each rank has a folder of runs of its own."""

    @pytest.fixture
    def engines(self) -> tuple[Engine, Engine]:
        port = free_ports(9)
        first, second = (engine(rank, master_port=port, local_world_size=1, secret=SECRET) for rank in range(2))
        return first, second

    def test_meet_by_their_secret_and_know_that_they_share_none(self, engines: Any, tmp_path: Path) -> None:
        with ThreadPoolExecutor(1) as threads:
            code = threads.submit(attend, engines[1], tmp_path / "1", Interrupts())
            with Muster(engines[0], tmp_path / "0", Interrupts()) as ranks:
                ranks.gather()
                with pytest.raises(NoSharedStorage) as refused:
                    ranks.require_storage(attrs.make_class("Spec", ["checkpoint_base_uri"])(None))
                assert refused.value.pointer == "/checkpoint_base_uri"
                ranks.require_storage(attrs.make_class("Spec", ["checkpoint_base_uri"])("s3://bucket/runs"))
            assert code.result(SECONDS) == 1
        assert not list(tmp_path.glob("1/.ranks")), "nothing stays of the meeting"

    def test_meet_also_where_an_operator_calls_the_machine_of_rank_0_localhost_there(
        self, engines: Any, tmp_path: Path
    ) -> None:
        with ThreadPoolExecutor(1) as threads:
            code = threads.submit(attend, engines[1], tmp_path / "1", Interrupts())
            with Muster(attrs.evolve(engines[0], master_addr="localhost"), tmp_path / "0", Interrupts()) as ranks:
                assert ranks._listening.getsockname()[0] in ("::", "0.0.0.0")
                ranks.gather(SECONDS)
            assert code.result(SECONDS) == 1

    def test_that_share_it_after_all_are_found_to(self, engines: Any, tmp_path: Path) -> None:
        with Muster(engines[0], tmp_path, Interrupts()) as ranks, ThreadPoolExecutor(1) as threads:
            (tmp_path / ".ranks").joinpath(f"{engines[0].name}.json").unlink()  # only the port leads to rank 0
            code = threads.submit(attend, engines[1], tmp_path, Interrupts())
            ranks.gather()
            ranks.require_storage(attrs.make_class("Spec", ["checkpoint_base_uri"])(None))
            ranks.__exit__(None, None, None)
            assert code.result(SECONDS) == 1

    @pytest.mark.parametrize("token", ["", "another secret, just as long"])
    def test_turn_away_who_does_not_know_the_secret(self, engines: Any, tmp_path: Path, token: str) -> None:
        with Muster(engines[0], tmp_path, Interrupts()) as ranks:
            port = ranks._listening.getsockname()[1]
            assert port in engines[0].doors
            meeting = engines[0].meeting
            with (
                closing(greet(port, token, meeting=meeting)) as stranger,
                closing(greet(port, SECRET, meeting=meeting)) as line,
            ):
                ranks.gather(SECONDS)
                assert line.receive(SECONDS)[0] == "welcome"
                with pytest.raises(EOFError):
                    stranger.receive(SECONDS)

    @pytest.mark.parametrize(
        "said",
        [
            b'{"asked": {"first": {"status": "cancelled", "reason": "", "requested_by": ""}, '
            b'"hurried": true, "forced": true}}',
            b'{"exited": {"code": 0}}',
            b'{"join": 5}',
            b'{"join": {"rank": 1, "nonce": ' + b"[" * 1000 + b"]" * 1000 + b', "probe": "", "proof": ""}}',
            b"[]",
            b"{}",
            b"GET / HTTP/1.1",
        ],
        ids=range(7),
    )
    def test_do_nothing_that_a_stranger_says(self, engines: Any, tmp_path: Path, said: bytes) -> None:
        interrupts = Interrupts()
        with Muster(engines[0], tmp_path, interrupts) as ranks:
            port = ranks._listening.getsockname()[1]
            with (
                socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as stranger,
                closing(greet(port, SECRET, meeting=engines[0].meeting)),
            ):
                stranger.sendall(said + b"\n")
                ranks.gather(SECONDS)
                with suppress(ConnectionResetError), stranger.makefile("rb") as line:
                    assert [*json.loads(line.readline())] == ["challenge"]
                    assert line.read() == b""
            assert interrupts.first is None

    def test_do_not_wait_for_strangers_who_say_nothing_or_have_no_end(self, engines: Any, tmp_path: Path) -> None:
        with Muster(engines[0], tmp_path, Interrupts()) as ranks, ExitStack() as stack:
            address = ("127.0.0.1", ranks._listening.getsockname()[1])
            for number in range(100):
                stranger = stack.enter_context(socket.create_connection(address, timeout=SECONDS))
                stranger.sendall(b"x" * 10_000 if number % 2 else b"")
            stack.enter_context(closing(greet(address[1], SECRET, meeting=engines[0].meeting)))
            ranks.gather(SECONDS)
            assert not ranks._strangers

    def test_do_not_follow_a_rank_0_that_does_not_know_the_secret(self, engines: Any, tmp_path: Path) -> None:
        """Something else listens at the first port that they try; the true rank 0 at the next."""
        asked = threading.Event()
        with socket.create_server(("127.0.0.1", engines[0].doors[0])) as false, ThreadPoolExecutor(2) as threads:

            def impersonate() -> None:
                line = Channel(false.accept()[0])
                line.send("challenge", {"nonce": "n"})
                _, said = line.receive(SECONDS)
                wrong = proof("a guess", "welcome", said["nonce"], "n", "start", True)
                line.send("welcome", {"start": "start", "shared": True, "proof": wrong})
                with pytest.raises(EOFError):
                    line.receive(SECONDS)
                asked.set()
                line.close()

            threads.submit(impersonate)
            code = threads.submit(attend, engines[1], tmp_path / "1", Interrupts())
            assert asked.wait(SECONDS)
            false.close()
            with Muster(attrs.evolve(engines[0]), tmp_path / "0", Interrupts()) as ranks:
                ranks.gather()
            assert code.result(SECONDS) == 1

    def test_do_not_tell_the_secret_to_the_worker(self, engines: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOSTCORE_RANKS_SECRET", SECRET)
        assert "HOSTCORE_RANKS_SECRET" not in engines[1].environment("start")

    def test_refuse_a_secret_that_can_be_guessed(self) -> None:
        place = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1", "HOSTCORE_RANKS_SECRET": "abc"}
        with pytest.raises(HostcoreError, match="3 characters"):
            Engine.of(place)


class TestTheFilesOfARankApart:
    def test_arrive_as_they_were_written_however_they_grow(self, tmp_path: Path) -> None:
        here, there = tmp_path / "here", tmp_path / "there"
        said: list[Any] = []
        sender = Sender({"events": here}, lambda kind, content: said.append((kind, content)))
        received = Received({"events": there})
        assert sender.send(), "there is nothing yet"
        here.write_bytes(b"x" * (300 << 10))
        while not sender.send():
            for _, content in said:
                received.write(content)
                received.write(content)  # a second time changes nothing
            said.clear()
            sender.took()
            if there.stat().st_size == 300 << 10:
                with here.open("ab") as more:
                    more.write(b"\nmore")
        assert there.read_bytes() == here.read_bytes()

    def test_are_sent_a_piece_at_a_time(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"x" * (300 << 10))
        said: list[Any] = []
        sender = Sender({"output": tmp_path / "a"}, lambda kind, content: said.append(content["offset"]))
        assert [sender.send() for _ in range(3)] == [False] * 3
        assert said == [0]
        sender.took()
        assert not sender.send()
        assert said == [0, 256 << 10]
