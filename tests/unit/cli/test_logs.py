"""``hostcore logs``: what it shows, and what it waits for."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import attrs
import orjson
import pytest

from hostcore.events.writer import now_ms
from hostcore.runs.directory import RunDirectory
from hostcore.runs.lease import Lease, ProcessIdentity
from hostcore.runs.result import RunResult
from hostcore_hookspecs.errors import RunError
from hostcore_hookspecs.events import (
    CheckpointSaved,
    EpochStarted,
    Metrics,
    RunFailed,
    RunStarted,
    RunSubmitted,
    RunSucceeded,
    Warning,
)

SUBMITTED = RunSubmitted(trainer="mine", max_steps=20, total_steps=20, num_rows=1000, devices=["cpu"])
LIFE = [
    (None, SUBMITTED),
    (0, RunStarted(device="cpu")),
    (0, EpochStarted()),
    (10, Metrics(metrics={"train/loss": 0.25, "grad": None}, nonfinite=["grad"], samples_per_second=1234.0)),
    (10, Warning(code="x", message="first line\nsecond line")),
    (20, CheckpointSaved(path="checkpoints/step-000020", bytes=1200, final=True)),
    (20, RunSucceeded()),
]


@pytest.fixture
def ended(run: Callable, tell: Callable) -> RunDirectory:
    """A run that has ended."""
    directory = run("a", status="succeeded")
    tell(directory, *LIFE)
    return directory


class TestTheLines:
    def test_say_when_at_which_step_what_and_what_matters_of_it(self, hostcore: Callable, ended: RunDirectory) -> None:
        said = hostcore("logs", "a")
        assert (said.code, said.err) == (0, "")
        told = [line[19:].split(maxsplit=2) for line in said.out.splitlines()]
        assert told[0] == ["-", "run_submitted", "attempt 1: mine, 20 steps, 1,000 rows, on cpu"]
        assert told[2] == ["0", "epoch_started", "epoch 1"]
        assert told[3] == ["10", "metrics", "train/loss 0.25  grad nan  (1,234 samples/s)"]
        assert told[6] == ["20", "checkpoint_saved", "final checkpoint checkpoints/step-000020 saved (1.2 kB)"]
        assert told[7] == ["20", "run_succeeded", "succeeded at step 20"]

    def test_have_the_debug_values_of_a_step_long_ones_in_part(
        self, hostcore: Callable, run: Callable, tell: Callable
    ) -> None:
        short, long = (Metrics(metrics={}, debug={"clipped": text}) for text in ("größer", "x" * 600))
        tell(run("a", status="succeeded"), (10, short), (20, long))
        first, second = (line.split(maxsplit=4)[4] for line in hostcore("logs", "a").out.splitlines())
        assert first == 'debug {"clipped": "größer"}'
        assert second.endswith("x…")
        assert len(second) < len("x" * 600)

    def test_go_on_below_where_a_message_has_several(self, hostcore: Callable, ended: RunDirectory) -> None:
        first, second = hostcore("logs", "a").out.splitlines()[4:6]
        assert first.endswith("warning: first line")
        assert second.strip() == "second line"
        assert second.index("second") == first.index("warning:")

    def test_are_those_of_the_file_as_json(self, hostcore: Callable, ended: RunDirectory) -> None:
        said = hostcore("logs", "a", "--json")
        assert said.out.encode() == ended.events.read_bytes()

    def test_of_an_event_of_a_newer_hostcore_are_shown_as_they_are(self, hostcore: Callable, ended) -> None:
        line = orjson.loads(ended.events.read_bytes().splitlines()[0])
        newer = {**{key: line[key] for key in line if key != "event"}, "event": "teleported", "where": "home"}
        with ended.events.open("ab") as log:
            log.write(orjson.dumps(newer) + b"\n")
        last = hostcore("logs", "a").out.splitlines()[-1]
        assert "teleported" in last
        assert '"where":"home"' in last

    def test_that_are_no_events_are_an_error_that_names_the_file(self, hostcore: Callable, ended) -> None:
        ended.events.write_text("not json\n")
        said = hostcore("logs", "a")
        assert (said.code, said.out) == (2, "")
        assert str(ended.events) in said.err
        assert "hostcore verify" in said.err

    def test_do_not_include_half_a_line(self, hostcore: Callable, ended: RunDirectory) -> None:
        with ended.events.open("ab") as log:
            log.write(b'{"schema":"hostcore.ev')
        assert len(hostcore("logs", "a", "--json").out.splitlines()) == len(LIFE)


class TestWhichLines:
    @pytest.fixture(autouse=True)
    def twice(self, ended: RunDirectory, tell: Callable) -> None:
        """The run has a second attempt."""
        (ended.attempts / "2.json").write_text("{}")
        tell(ended, (None, SUBMITTED), (20, RunStarted(device="cpu")), attempt=2)

    @pytest.mark.parametrize(
        ("options", "numbers"),
        [
            ([], list(range(1, 10))),
            (["-n", "2"], [8, 9]),
            (["-n", "0"], []),
            (["-n", "100"], list(range(1, 10))),
            (["--attempt", "2"], [8, 9]),
            (["--attempt", "1", "-n", "1"], [7]),
            (["--since", "6"], [7, 8, 9]),
            (["--since", "99"], []),
        ],
    )
    def test_can_be_chosen(self, hostcore: Callable, options: list[str], numbers: list[int]) -> None:
        lines = hostcore("logs", "a", "--json", *options).out.splitlines()
        assert [orjson.loads(line)["seq"] for line in lines] == numbers

    def test_of_an_attempt_that_never_was_are_an_error(self, hostcore: Callable) -> None:
        said = hostcore("logs", "a", "--attempt", "3", "--json")
        assert said.code == 2
        (error,) = said.json["errors"]
        assert (error["code"], error["hint"]) == ("run.unknown_attempt", "its newest is attempt 2")


class TestTheOutput:
    def test_is_what_the_newest_worker_printed(self, hostcore: Callable, ended: RunDirectory) -> None:
        ended.rank_output(1, 0).write_text("one\ntwo\nno end")
        assert hostcore("logs", "a", "--output").out == "one\ntwo\nno end\n"
        assert hostcore("logs", "a", "--output", "-n", "1").out == "two\nno end\n"

    def test_of_an_earlier_attempt_or_another_rank_can_be_asked_for(
        self, hostcore: Callable, ended: RunDirectory
    ) -> None:
        for rank in range(2):
            ended.contract(1, rank).write_text("{}")
            ended.rank_output(1, rank).write_text(f"rank {rank}\n")
        assert hostcore("logs", "a", "--output", "--rank", "1").out == "rank 1\n"
        said = hostcore("logs", "a", "--output", "--rank", "2")
        assert (said.code, "its ranks are 0 to 1" in said.err) == (2, True)
        assert hostcore("logs", "a", "--rank", "1").code == 2
        (ended.attempts / "2.json").write_text("{}")
        ended.rank_output(1, 0).write_text("first\n")
        ended.rank_output(2, 0).write_text("second\n")
        assert hostcore("logs", "a", "--output").out == "second\n"
        assert hostcore("logs", "a", "--output", "--attempt", "1").out == "first\n"

    @pytest.mark.parametrize("option", [["--json"], ["--since", "1"]])
    def test_is_no_events(self, hostcore: Callable, ended: RunDirectory, option: list[str]) -> None:
        assert hostcore("logs", "a", "--output", *option).code == 2


HOLD = """
import attrs, json, sys
from hostcore.runs.lease import ProcessIdentity
print(json.dumps(attrs.asdict(ProcessIdentity.current())), flush=True)
sys.stdin.read()
"""


@attrs.frozen
class Following:
    """A follower in a process of its own, and the lines that it has printed."""

    process: "subprocess.Popen[bytes]"
    lines: "Queue[bytes]" = attrs.field(factory=Queue)

    def next(self) -> bytes:
        return self.lines.get(timeout=300)

    def end(self) -> tuple[int, str]:
        code = self.process.wait(timeout=300)
        return code, self.process.stderr.read().decode()

    def pump(self) -> None:
        for line in self.process.stdout:
            self.lines.put(line)


class TestAFollower:
    @pytest.fixture
    def supervisor(self) -> Iterator["subprocess.Popen[bytes]"]:
        """A process that stands for a run's supervisor, as far as leases can tell."""
        process = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        yield process
        process.kill()
        process.communicate()

    @pytest.fixture
    def running(self, run: Callable, supervisor: Any) -> RunDirectory:
        """A run that the supervisor holds."""
        directory = run("a")
        identity = ProcessIdentity(**orjson.loads(supervisor.stdout.readline()))
        Lease(process=identity, attempt=1, step=0, last_progress_ms=0, renewed_ms=now_ms()).write(directory.lease)
        return directory

    @pytest.fixture
    def follow(self, tmp_path: Path) -> Iterator[Callable[..., Following]]:
        """``follow("--json")``: a follower of the run."""
        started: list[Following] = []

        def start(*options: str) -> Following:
            process = subprocess.Popen(
                [sys.executable, "-m", "hostcore", "logs", "a", "-f", *options],
                cwd=tmp_path,
                env={name: value for name, value in os.environ.items() if not name.startswith("HOSTCORE_")},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            started.append(Following(process))
            threading.Thread(target=started[-1].pump, daemon=True).start()
            return started[-1]

        yield start
        for one in started:
            one.process.kill()
            one.process.wait()

    def test_shows_events_as_they_come_and_ends_with_the_run(self, follow, running, tell) -> None:
        following = follow("--json")
        tell(running, (None, SUBMITTED), (0, RunStarted(device="cpu")))
        assert orjson.loads(following.next())["event"] == "run_submitted"
        assert orjson.loads(following.next())["event"] == "run_started"
        with running.events.open("rb+") as log:  # a line that is being written
            whole = log.read().splitlines(keepends=True)[0]
            half = whole.replace(b'"seq":1', b'"seq":3')
            log.write(half[:40])
        result = RunResult(
            run_id="a", status="failed", exit_code=1, attempt=1, step=0, epoch=0, started_ms=0, ended_ms=now_ms()
        )
        with running.events.open("ab") as log:
            log.write(half[40:])
        assert following.next() == half
        tell(running, (0, RunFailed(error=RunError(type="X", message="y"))))
        result.write(running.result)
        running.lease.unlink()
        assert orjson.loads(following.next())["event"] == "run_failed"
        assert following.end() == (0, "")

    def test_of_the_output_goes_on_with_the_next_attempt(self, follow, running) -> None:
        following = follow("--output")
        running.rank_output(1, 0).write_text("one\nhalf")
        assert following.next() == b"one\n"
        running.rank_output(2, 0).write_text("two\n")
        (running.attempts / "2.json").write_text("{}")
        assert [following.next(), following.next()] == [b"half\n", b"two\n"]

    def test_ends_quietly_upon_ctrl_c(self, follow, running, tell) -> None:
        tell(running, (None, SUBMITTED))
        following = follow()
        following.next()
        following.process.send_signal(signal.SIGINT)
        assert following.end() == (130, "")
