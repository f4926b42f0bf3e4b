"""The texts of records are bounded: when a record is made, and where an older version has made it too long."""

import json
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import attrs
import orjson
import pytest

from hostcore.events.bounds import MOST_NAME, MOST_TEXT, MOST_TRACEBACK, TextCutter, bounded, bounded_record
from hostcore.events.codec import decode_event
from hostcore.events.merger import Entry, EventLog, RankTail
from hostcore.events.reader import GrowingLog
from hostcore.events.writer import RankLog
from hostcore.plugins.attribution import whole_traceback
from hostcore.plugins.errors import one_line
from hostcore.secrets.scrub import forget_all, remember
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import RunError

LONG = "begin" + "x" * 100_000 + "end"
#: More than all texts of an event together may have, and less than any reader takes.
MOST_LINE = 1 << 18


class TestAText:
    def test_keeps_its_head_and_its_tail_and_says_what_is_missing(self) -> None:
        text = bounded(LONG)
        head, words, tail = text.partition(" [… ")
        assert words
        count, _, tail = tail.partition(" characters left out …] ")
        assert head.startswith("begin")
        assert tail.endswith("end")
        assert len(head) + int(count.replace(",", "")) + len(tail) == len(LONG)

    @pytest.mark.parametrize("letter", ["x", "é", "€", "😀", "\0", "\ud800"], ids=ascii)
    def test_is_bounded_in_bytes_and_bounding_it_again_changes_nothing(self, letter: str) -> None:
        text = bounded(letter * 50_000)
        assert len(text.encode(errors="replace")) <= MOST_TEXT
        assert bounded(text) == text

    @pytest.mark.parametrize("text", ["", "x" * MOST_TEXT, "€" * (MOST_TEXT // 3)], ids=["empty", "ascii", "euros"])
    def test_that_fits_stays_as_it_is(self, text: str) -> None:
        assert bounded(text) == text

    def test_shows_no_part_of_a_secret_where_it_is_cut(self) -> None:
        remember("correct horse battery staple")
        try:
            for before in range(MOST_TEXT // 2 - 80, MOST_TEXT // 2):
                assert "correct" not in bounded("x" * before + "correct horse battery staple" + LONG)
        finally:
            forget_all()


def texts(payload: events.Payload) -> Iterator[events.Payload]:
    """The payload once for each of its texts, with a long one in its place."""
    for field in attrs.fields(type(payload)):
        if isinstance(getattr(payload, field.name), str):
            yield attrs.evolve(payload, **{field.name: LONG})


LONG_EVENTS = [
    *texts(events.RunSucceeded(reason="x")),
    *texts(events.RunCancelled(reason="x")),
    *texts(events.RunPreempted(reason="x")),
    *texts(events.Warning(code="x", message="x")),
    *texts(events.StopRequested(reason="x", requested_by="x")),
    *texts(events.CheckpointSkipped(path="x", reason="x")),
    *texts(events.ReporterFailed(reporter="x", message="x")),
    *texts(events.UploadFailed(path="x", uploader="x", message="x", will_retry=False)),
    events.Metrics(metrics={LONG: 1.0}, nonfinite=[LONG]),
    events.Validation(metrics={LONG: None}, weight=1.0, nonfinite=[LONG]),
    events.RunFailed(error=RunError(type=LONG, message=LONG, traceback=LONG, plugin=LONG, hint=LONG)),
]


@pytest.mark.parametrize("payload", LONG_EVENTS, ids=lambda one: type(one).__name__)
def test_an_event_has_bounded_texts_in_both_logs_and_when_an_older_version_wrote_it(
    tmp_path: Path, payload: events.Payload
) -> None:
    rank, run = tmp_path / "rank.jsonl", tmp_path / "events.jsonl"
    of_rank = RankLog(rank)
    of_rank.write(payload, step=1, epoch=0)
    of_rank.close()
    of_run = EventLog(run, run_id="a", attempt=1)
    of_run.append(Entry(payload=payload, step=1, epoch=0))
    of_run.close()
    (entry,) = RankTail(rank, rank=0, attempt=1).read()
    for log, read in ((rank, entry.payload), (run, decode_event(run.read_bytes()).payload)):
        assert len(log.read_bytes()) < MOST_LINE
        assert "left out" in str(read)
    line = {"time_ms": 1, "event": events.NAMES[type(payload)], "step": 1, "epoch": 0, **attrs.asdict(payload)}
    rank.write_bytes(orjson.dumps(line) + b"\n")
    (entry,) = RankTail(rank, rank=0, attempt=1).read()
    assert len(str(entry.payload)) < MOST_LINE


def test_the_name_of_a_metric_is_the_same_in_all_of_a_record(tmp_path: Path) -> None:
    name = "m" * 700  # longer than a name may be, in a line that is short
    log = RankLog(tmp_path / "rank.jsonl")
    log.write(events.Metrics(metrics={name: None}, nonfinite=[name]), step=1, epoch=0)
    log.close()
    (entry,) = RankTail(tmp_path / "rank.jsonl", rank=0, attempt=1).read()
    shown = bounded(name, MOST_NAME)
    assert entry.payload == events.Metrics(metrics={shown: None}, nonfinite=(shown,))
    result = {"metrics": {name: None}, "warnings": [{"metric": name}]}
    assert bounded_record(result) == {"metrics": {shown: None}, "warnings": [{"metric": shown}]}


RECORD = {
    "a": "x" * 100_000 + '"\\\n€😀' * 3000,
    'b"\\': {"list": ["é" * 20_000, 1, None, True, "\0\\" * 9000]},
    "short": '\\ " \n 😀',
}


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
def test_the_texts_of_a_record_are_cut_wherever_it_is_in_pieces(ascii_only: bool, size: int) -> None:
    content = json.dumps(RECORD, ensure_ascii=ascii_only).encode()
    cutter = TextCutter(1 << 20)
    for at in range(0, len(content), size):
        cutter.feed(content[at : at + size])
    found = orjson.loads(cutter.record or b"")
    assert found["short"] == RECORD["short"]
    assert found['b"\\']["list"][1:4] == [1, None, True]
    long = [found["a"], found['b"\\']["list"][0], found['b"\\']["list"][4]]
    assert all(text.endswith(" bytes left out …]") for text in long)
    assert bounded_record(found) == found


class TestALogOfRecords:
    def test_has_the_record_behind_one_that_is_too_long(self, tmp_path: Path) -> None:
        lines = [b'{"seq":1}\n', b'{"seq":2,"message":"%s","more":2}\n' % (b"x" * 100_000), b'{"seq":3}\n']
        (tmp_path / "log").write_bytes(b"".join(lines))
        log = GrowingLog(tmp_path / "log")
        found = [orjson.loads(line) for line in log.records(longest=20_000) if line]
        assert [one["seq"] for one in found] == [1, 2, 3]
        assert found[1]["message"].endswith("bytes left out …]")
        assert found[1]["more"] == 2
        assert log.offset == sum(map(len, lines))

    def test_leaves_out_a_record_that_is_too_long_without_its_texts(self, tmp_path: Path) -> None:
        numbers = b",".join([b"12345678"] * 10_000)
        (tmp_path / "log").write_bytes(b'{"seq":1,"numbers":[%s]}\n{"seq":2}\n' % numbers)
        found = [line for line in GrowingLog(tmp_path / "log").records(longest=1000) if line]
        assert found == [b'{"seq":2}\n']

    def test_waits_for_the_rest_of_a_long_record(self, tmp_path: Path) -> None:
        log = GrowingLog(tmp_path / "log")
        with (tmp_path / "log").open("wb", buffering=0) as file:
            file.write(b'{"seq":1,"message":"' + b"x" * 50_000)
            assert not any(log.records(longest=20_000))
            file.write(b'"}\n{"seq":2}\n')
            assert [orjson.loads(line)["seq"] for line in log.records(longest=20_000) if line] == [1, 2]


def shown(error: Exception) -> str:
    """The traceback of an error that is raised by two functions that call each other 5,000 times.

    Python leaves out repeated frames of one function alone.
    """

    def there(levels: int) -> None:
        if not levels:
            raise error
        back(levels - 1)

    def back(levels: int) -> None:
        there(levels - 1)

    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        there(5000)
    except type(error) as caught:
        return whole_traceback(caught)
    finally:
        sys.setrecursionlimit(before)
    raise AssertionError("nothing was raised")


def test_a_traceback_of_thousands_of_frames_has_the_first_and_the_last() -> None:
    text = shown(ValueError("the bottom"))
    assert len(text.encode()) <= MOST_TRACEBACK
    assert "frames left out" in text
    assert text.startswith("Traceback (most recent call last):\n")
    assert text.endswith("ValueError: the bottom\n")


def test_a_traceback_of_a_chain_with_long_messages_and_notes_is_bounded_and_a_short_one_as_it_is() -> None:
    error, cause = ValueError(LONG), KeyError(LONG)
    cause.add_note(LONG)
    error.__cause__ = cause
    text = whole_traceback(error)
    assert len(text.encode()) <= MOST_TRACEBACK
    assert "The above exception was the direct cause" in text
    assert text.count("left out") == 3
    short = ValueError("x")
    assert whole_traceback(short) == "".join(traceback.format_exception(short))
    assert one_line(ValueError("x y " * 10_000_000)).startswith("ValueError: x y x y")
