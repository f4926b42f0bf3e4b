"""Writing rank logs, merging them into one, and reading that back."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from hostcore.events.codec import CorruptLog, decode_event, encode_event
from hostcore.events.merger import Entry, EventLog, RankTail
from hostcore.events.reader import read_events
from hostcore.events.writer import RankLog
from hostcore_hookspecs.events import Payload, RunStarted, Warning


def warning(text: str) -> Warning:
    return Warning(code="test", message=text)


def own(payload: Payload) -> Entry:
    return Entry(payload=payload, step=1, epoch=0)


@pytest.fixture
def open_log(tmp_path: Path) -> Callable[..., EventLog]:
    """``open_log(attempt=2)``: the event log of a run, as its next supervisor opens it."""

    def make(attempt: int = 1) -> EventLog:
        return EventLog(tmp_path / "events.jsonl", run_id="a", attempt=attempt, clock=lambda: 1000)

    return make


@pytest.fixture
def rank_log(tmp_path: Path) -> RankLog:
    """What rank 0 of attempt 1 appends to."""
    return RankLog(tmp_path / "rank-0.attempt-1.jsonl", clock=lambda: 500)


def merge(log: EventLog, rank: RankLog, *, attempt: int = 1) -> RankTail:
    """Merge what is new in a rank log, as a supervisor does that has just started."""
    tail = RankTail(rank.path, rank=0, attempt=attempt, after=log.merged.get((0, attempt)))
    for entry in tail.read():
        log.append(entry)
    return tail


def messages(path: Path) -> list[str]:
    return [event.payload.message for event, _ in read_events(path)]


class TestTheEventLog:
    def test_writes_many_events_at_once(
        self, open_log: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log, write, written = open_log(), os.write, []
        log.append(own(warning("first")))
        monkeypatch.setattr(os, "write", lambda *given: written.append(given) or write(*given))
        lines = log.extend([own(warning(text)) for text in "abc"])
        assert len(written) == 1
        assert messages(tmp_path / "events.jsonl") == ["first", "a", "b", "c"]
        content = (tmp_path / "events.jsonl").read_bytes()
        assert [decode_event(content[line.begin : line.end]) for line in lines] == [line.event for line in lines]

    def test_goes_on_counting_without_a_gap_in_the_next_attempt(self, open_log: Callable, tmp_path: Path) -> None:
        assert list(read_events(tmp_path / "events.jsonl")) == []
        for attempt in (1, 2, 3):
            log = open_log(attempt)
            log.append(own(warning("x")))
            log.append(own(warning("y")))
            log.close()
        read = [event for event, _ in read_events(tmp_path / "events.jsonl")]
        assert [(event.seq, event.attempt) for event in read] == [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3)]

    def test_cuts_a_torn_last_line_off(self, open_log: Callable, tmp_path: Path) -> None:
        log = open_log()
        event = log.append(own(warning("whole")))
        log.close()
        with (tmp_path / "events.jsonl").open("ab") as file:
            file.write(b'{"schema":"hostcore.event/1","seq":2,"mess')
        assert list(read_events(tmp_path / "events.jsonl")) == [(event, len(encode_event(event)))]
        again = open_log(2)
        again.append(own(warning("next")))
        assert messages(tmp_path / "events.jsonl") == ["whole", "next"]
        assert again.last_seq == 2

    def test_that_holds_something_else_is_refused_and_left_as_it_is(self, open_log: Callable, tmp_path: Path) -> None:
        path = tmp_path / "events.jsonl"
        path.write_bytes(b"my shopping list\n")
        with pytest.raises(CorruptLog) as caught:
            open_log()
        assert caught.value.file == str(path)
        assert path.read_bytes() == b"my shopping list\n"


class TestMerging:
    def test_an_event_says_where_it_was_first_written(self, open_log: Callable, rank_log: RankLog) -> None:
        log = open_log()
        rank_log.write(RunStarted(device="cpu"), step=0, epoch=0)
        rank_log.write(warning("second"), step=7, epoch=1)
        merge(log, rank_log)
        first, second = [event for event, _ in read_events(rank_log.path.with_name("events.jsonl"))]
        lines = rank_log.path.read_bytes().splitlines(keepends=True)
        assert (first.src, second.src) == ((0, 1, 0), (0, 1, len(lines[0])))
        assert [first.time_ms, log.append(own(warning("x"))).time_ms] == [500, 1000], "that at which the rank saw it"
        for rank, attempt in ((1, 1), (0, 2)):
            for place in (0, 10):
                log.append(Entry(payload=warning("y"), step=None, epoch=None, src=(rank, attempt, place)))
        assert open_log().merged == {(0, 1): len(lines[0]), (1, 1): 10, (0, 2): 10}
        assert (second.step, second.epoch, second.attempt) == (7, 1, 1)
        with rank_log.path.open("rb") as file:
            file.seek(second.src[2])
            assert orjson.loads(file.readline())["message"] == "second"

    def test_only_what_is_new_and_whole_is_read(self, rank_log: RankLog) -> None:
        later = rank_log.path.with_name("later.jsonl")
        tail = RankTail(later, rank=0, attempt=1)
        assert list(tail.read()) == []  # the log is not there yet
        rank_log.write(warning("a"))
        line = rank_log.path.read_bytes()
        for content, new in ((line + line[:20], 1), (line + line[:20], 0), (line + line, 1), (line * 2, 0)):
            later.write_bytes(content)
            assert [entry.payload.message for entry in tail.read()] == ["a"] * new

    @pytest.mark.parametrize("line", [b"{}", b"null", b"x", b'{"event":"warning","code":"a","message":"b"}'], ids=repr)
    def test_a_line_that_is_no_event_is_an_error_that_names_the_log(self, tmp_path: Path, line: bytes) -> None:
        path = tmp_path / "rank-0.attempt-1.jsonl"
        path.write_bytes(line + b"\n")
        with pytest.raises(CorruptLog, match="not an event") as caught:
            list(RankTail(path, rank=0, attempt=1).read())
        assert caught.value.file == str(path)

    @pytest.mark.parametrize("merged_before", range(5))
    def test_every_event_is_merged_exactly_once_after_a_restart_at_any_place(
        self, open_log: Callable, rank_log: RankLog, merged_before: int
    ) -> None:
        for text in "abcd":
            rank_log.write(warning(text))
        log = open_log()
        for _, entry in zip(range(merged_before), RankTail(rank_log.path, rank=0, attempt=1).read(), strict=False):
            log.append(entry)
        log.append(own(warning("own")))  # the supervisor dies here, without closing anything
        restarted = open_log()
        merge(restarted, rank_log)
        rank_log.write(warning("e"))
        merge(restarted, rank_log)
        before, after = ["a", "b", "c", "d"][:merged_before], ["a", "b", "c", "d"][merged_before:]
        assert messages(rank_log.path.with_name("events.jsonl")) == [*before, "own", *after, "e"]


class TestAFullDisk:
    """The limit on the size of a file stands in for a full disk: a write is cut short, the next one refused."""

    SCRIPT = """
        import resource, sys
        from pathlib import Path
        from hostcore.events.merger import Entry, EventLog
        from hostcore.events.writer import RankLog
        from hostcore_hookspecs.events import Warning

        path, kind = Path(sys.argv[1]), sys.argv[2]
        log = RankLog(path) if kind == "rank" else EventLog(path, run_id="a", attempt=1)

        def write(text):
            payload = Warning(code="test", message=text)
            if kind == "rank":
                log.write(payload)
            else:  # the first of them would fit
                log.extend([Entry(payload=payload, step=None, epoch=None)] * (2 if text == "lost" else 1))

        def room(size):
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

        write("before")
        for left in (0, 1, 20):
            room(path.stat().st_size + left)
            try:
                write("lost")
            except OSError as error:
                print(error.strerror)
        room(resource.RLIM_INFINITY)
        write("after")
    """

    @pytest.mark.parametrize("kind", ["rank", "events"])
    def test_is_an_error_and_leaves_only_whole_lines(self, tmp_path: Path, kind: str) -> None:
        path = tmp_path / "log.jsonl"
        script = [sys.executable, "-c", textwrap.dedent(self.SCRIPT), str(path), kind]
        run = subprocess.run(script, capture_output=True, text=True, check=True)
        assert run.stdout.splitlines() == ["File too large", "No space left on device", "No space left on device"]
        assert [orjson.loads(line)["message"] for line in path.read_bytes().splitlines()] == ["before", "after"]
        if kind == "events":
            assert [event.seq for event, _ in read_events(path)] == [1, 2], "the numbers of lost ones are used again"


def test_a_log_that_is_closed_refuses_a_late_event_and_spares_files_opened_since(tmp_path: Path) -> None:
    log = RankLog(tmp_path / "rank.jsonl")
    log.close()
    with (tmp_path / "other").open("wb") as other:  # gets the number that the log's descriptor had
        with pytest.raises(OSError, match="Bad file descriptor"):
            log.write(Warning(code="late", message=""))
        other.flush()
    assert (tmp_path / "other").read_bytes() == b""
