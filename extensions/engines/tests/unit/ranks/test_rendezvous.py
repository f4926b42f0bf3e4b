"""Where the ranks of an engine find each other, over real sockets: who is let in, turned away, believed."""

import json
import os
import resource
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
from ports import free_ports
from stand_ins import SECONDS, engine, greet, join, wait_for_answers

from hostcore.runs.channel import Channel
from hostcore.supervisor.engine import Engine
from hostcore.supervisor.interrupts import Asked, Interrupts
from hostcore_engines.ranks.rank_agent import run_rank_agent
from hostcore_engines.ranks.rendezvous import NoSharedStorage, RanksMissing, RankZeroAddress, Rendezvous, proof
from hostcore_hookspecs import HostcoreError

SECRET = "a secret of this test alone"
TERM = Asked(status="preempted", reason="received SIGTERM", requested_by="signal:SIGTERM")


def port_of(runs: Path) -> int:
    """Where rank 0 listens."""
    (file,) = (runs / ".ranks").iterdir()
    place = RankZeroAddress.read(file)
    assert place is not None
    return place.port


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
            ranks = open_ones.enter_context(Rendezvous(engine(0), tmp_path, Interrupts()))
            connection = open_ones.enter_context(closing(join(ranks, tmp_path, **changes)))
            line = open_ones.enter_context(closing(join(ranks, tmp_path)))
            ranks.gather()
            kind, content = line.receive(SECONDS)
            assert (kind, content["shared"]) == ("welcome", True)
            wait_for_answers()
            with pytest.raises(EOFError):
                connection.receive(SECONDS)

    def test_admits_the_others_while_rank_0_prepares_the_run(self, tmp_path: Path) -> None:
        """An environment may take longer to build than they look for rank 0."""
        with Rendezvous(engine(0), tmp_path, Interrupts()) as ranks, closing(join(ranks, tmp_path)) as line:
            (file,) = (tmp_path / ".ranks").iterdir()
            assert file.stat().st_mode & 0o777 == 0o600, "known to this user alone"
            wait_for_answers()
            assert line.receive(SECONDS)[0] == "welcome"
            ranks.gather()

    def test_that_not_all_come_to_is_an_error_that_says_where_it_was(self, tmp_path: Path) -> None:
        with Rendezvous(engine(0), tmp_path, asked := Interrupts()) as ranks:
            with pytest.raises(RanksMissing, match="rank 1 did not come within 0 s") as caught:
                ranks.gather(0)
            asked.first = TERM  # so that it does not wait for them in the end
        assert "HOSTCORE_RUNS_DIR" in caught.value.hint
        assert caught.value.file.endswith("127.0.0.1-29500-none.json")

    def test_is_not_that_of_an_earlier_start_whose_rank_0_was_killed(self, tmp_path: Path) -> None:
        with Rendezvous(engine(0, world_size=1), tmp_path, Interrupts()):
            (file,) = (tmp_path / ".ranks").iterdir()
            stale = file.read_bytes()
        file.parent.mkdir()
        file.write_bytes(stale)
        with ThreadPoolExecutor(1) as threads:
            code = threads.submit(run_rank_agent, engine(1), tmp_path, Interrupts())
            with Rendezvous(engine(0), tmp_path, Interrupts()) as ranks:
                ranks.gather()
            assert code.result(SECONDS) == 1

    def test_stays_where_it_is_when_that_of_an_earlier_start_ends(self, tmp_path: Path) -> None:
        """The agent of an earlier rank 0 may be gone, and rank 0 not yet."""
        with ExitStack() as earlier:
            earlier.enter_context(Rendezvous(engine(0, world_size=1), tmp_path, Interrupts()))
            with Rendezvous(engine(0), tmp_path, Interrupts()) as ranks:
                earlier.close()
                with closing(join(ranks, tmp_path)) as line:
                    ranks.gather()
                    assert line.receive(SECONDS)[0] == "welcome"

    def test_ends_for_the_others_as_rank_0_does_whatever_became_of_it(self, tmp_path: Path) -> None:
        with ThreadPoolExecutor(1) as threads:
            code = threads.submit(run_rank_agent, engine(1), tmp_path, Interrupts())
            with pytest.raises(HostcoreError), Rendezvous(engine(0), tmp_path, Interrupts()):
                raise HostcoreError("the job is invalid")
            assert code.result(SECONDS) == 2

    def test_is_left_by_a_rank_that_is_asked_to_stop_before_rank_0_was_there(self, tmp_path: Path) -> None:
        interrupts = Interrupts()
        interrupts.first = TERM
        assert run_rank_agent(engine(1), tmp_path, interrupts) == 75


class TestMachinesThatShareNoFolder:
    """Each rank has a folder of runs of its own."""

    @pytest.fixture
    def engines(self) -> tuple[Engine, Engine]:
        port = free_ports(9)
        first, second = (engine(rank, master_port=port, local_world_size=1, secret=SECRET) for rank in range(2))
        return first, second

    def test_meet_by_their_secret_and_know_that_they_share_none(self, engines: Any, tmp_path: Path) -> None:
        with ThreadPoolExecutor(1) as threads:
            code = threads.submit(run_rank_agent, engines[1], tmp_path / "1", Interrupts())
            with Rendezvous(engines[0], tmp_path / "0", Interrupts()) as ranks:
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
            code = threads.submit(run_rank_agent, engines[1], tmp_path / "1", Interrupts())
            with Rendezvous(attrs.evolve(engines[0], master_addr="localhost"), tmp_path / "0", Interrupts()) as ranks:
                assert ranks._listening.getsockname()[0] in ("::", "0.0.0.0")
                ranks.gather(SECONDS)
            assert code.result(SECONDS) == 1

    def test_that_share_it_after_all_are_found_to(self, engines: Any, tmp_path: Path) -> None:
        with ThreadPoolExecutor(1) as threads, Rendezvous(engines[0], tmp_path, Interrupts()) as ranks:
            (tmp_path / ".ranks").joinpath(f"{engines[0].name}.json").unlink()  # only the port leads to rank 0
            code = threads.submit(run_rank_agent, engines[1], tmp_path, Interrupts())
            ranks.gather()
            ranks.require_storage(attrs.make_class("Spec", ["checkpoint_base_uri"])(None))
        assert code.result(SECONDS) == 1

    @pytest.mark.parametrize("token", ["", "another secret, just as long"])
    def test_turn_away_who_does_not_know_the_secret(self, engines: Any, tmp_path: Path, token: str) -> None:
        with Rendezvous(engines[0], tmp_path, Interrupts()) as ranks:
            port = port_of(tmp_path)
            assert port in engines[0].ports
            meeting = engines[0].meeting
            with (
                closing(greet(port, token, meeting=meeting)) as connection,
                closing(greet(port, SECRET, meeting=meeting)) as line,
            ):
                ranks.gather(SECONDS)
                assert line.receive(SECONDS)[0] == "welcome"
                wait_for_answers()
                with pytest.raises(EOFError):
                    connection.receive(SECONDS)

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
        with Rendezvous(engines[0], tmp_path, interrupts) as ranks:
            port = port_of(tmp_path)
            with (
                socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection,
                closing(greet(port, SECRET, meeting=engines[0].meeting)),
            ):
                connection.sendall(said + b"\n")
                ranks.gather(SECONDS)
                with suppress(ConnectionResetError), connection.makefile("rb") as line:
                    assert [*json.loads(line.readline())] == ["challenge"]
                    assert line.read() == b""
            assert interrupts.first is None

    def test_do_not_wait_for_strangers_who_say_nothing_or_have_no_end(self, engines: Any, tmp_path: Path) -> None:
        with Rendezvous(engines[0], tmp_path, Interrupts()) as ranks, ExitStack() as stack:
            address = ("127.0.0.1", port_of(tmp_path))
            for number in range(100):
                connection = stack.enter_context(socket.create_connection(address, timeout=SECONDS))
                connection.sendall(b"x" * 10_000 if number % 2 else b"")
            stack.enter_context(closing(greet(address[1], SECRET, meeting=engines[0].meeting)))
            ranks.gather(SECONDS)

    def test_do_not_follow_a_rank_0_that_does_not_know_the_secret(self, engines: Any, tmp_path: Path) -> None:
        """Something else listens at the first port that they try; the true rank 0 at the next."""
        asked = threading.Event()
        with socket.create_server(("127.0.0.1", engines[0].ports[0])) as false, ThreadPoolExecutor(2) as threads:

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
            code = threads.submit(run_rank_agent, engines[1], tmp_path / "1", Interrupts())
            assert asked.wait(SECONDS)
            false.close()
            with Rendezvous(attrs.evolve(engines[0]), tmp_path / "0", Interrupts()) as ranks:
                ranks.gather()
            assert code.result(SECONDS) == 1

    def test_do_not_tell_the_secret_to_the_worker(self, engines: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOSTCORE_RANKS_SECRET", SECRET)
        assert "HOSTCORE_RANKS_SECRET" not in engines[1].environment("start")

    def test_refuse_a_secret_that_can_be_guessed(self) -> None:
        place = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1", "HOSTCORE_RANKS_SECRET": "abc"}
        with pytest.raises(HostcoreError, match="3 characters"):
            Engine.of(place)


def test_a_rank_is_heard_whose_line_is_beyond_the_files_that_select_can_watch(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2000:
        pytest.skip("this user may not open 2,000 files")
    with ExitStack() as open_ones:
        open_ones.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (2000, hard))
        ranks = open_ones.enter_context(Rendezvous(engine(0), tmp_path, Interrupts()))
        null = open_ones.enter_context(Path(os.devnull).open())
        while (descriptor := os.dup(null.fileno())) < 1024:  # as the lines to a thousand ranks would be
            open_ones.callback(os.close, descriptor)
        open_ones.callback(os.close, descriptor)
        line = open_ones.enter_context(closing(join(ranks, tmp_path)))
        ranks.gather()
        assert line.receive(SECONDS)[0] == "welcome"


def test_as_many_files_may_be_opened_as_there_are_ranks() -> None:
    """In a process of its own: the limit may not be lowered and raised at will."""
    script = """
import resource
from hostcore_engines.ranks.rendezvous import _allow_files
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 3000))
for ranks in (10, 2000, 1000, 10_000):
    _allow_files(ranks)
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["522", "2512", "2512", "3000"]
