"""A cursor that is right is followed; any other means the beginning, and a warning."""

from collections.abc import Iterator
from typing import Any

import attrs
import orjson
import pytest
from desk import IMPATIENT, Desk, Ear, events_of, eventually

from hostcore.events.merger import Entry
from hostcore.events.reader import read_events
from hostcore.secrets.scrub import forget_all, remember
from hostcore.supervisor.delivery import cursor
from hostcore.supervisor.delivery.cursor import Cursor, CursorFile, LogView
from hostcore_hookspecs.events import EpochStarted, Warning


@pytest.fixture
def secret() -> Iterator[str]:
    """A text that is not to be shown."""
    remember("open-sesame-42")
    yield "open-sesame-42"
    forget_all()


def test_a_cursor_says_how_far_whose_and_when(desk: Desk) -> None:
    deliveries = desk.deliver(Ear())
    desk.write(count=7)
    desk.finish(deliveries)
    written = orjson.loads(desk.cursor("ear").read_bytes())
    assert written.pop("time_ms") > 1_600_000_000_000
    assert written == {"seq": 7, "offset": desk.directory.events.stat().st_size, "reporter": "dist/ear"}
    assert list(desk.directory.cursors.iterdir()) == [desk.cursor("ear")]


def test_a_cursor_is_written_a_while_after_the_last_event_though_nothing_more_comes(desk: Desk) -> None:
    desk.deliver(Ear())
    desk.write(count=7)
    eventually(desk.cursor("ear").exists)
    eventually(lambda: orjson.loads(desk.cursor("ear").read_bytes())["seq"] == 7)


def _damaged(content: dict[str, Any]) -> list[tuple[str, bytes]]:
    shift = lambda key, by: orjson.dumps({**content, key: content[key] + by})  # noqa: E731
    return [
        ("empty", b""),
        ("cut", orjson.dumps(content)[:-5]),
        ("list", b"[]"),
        ("negative", orjson.dumps({**content, "offset": -1})),
        ("no number", orjson.dumps({**content, "seq": "3"})),
        ("foreign", orjson.dumps({**content, "reporter": "other/ear"})),
        ("behind the end", shift("offset", 10_000)),
        ("in a line", shift("offset", -3)),
        ("other number", shift("seq", 1)),
        ("not utf-8", b"\xff\xfe"),
    ]


@pytest.mark.parametrize("place", range(10))
def test_a_cursor_that_cannot_be_right_means_the_first_event_and_a_warning(desk: Desk, place: int) -> None:
    first = desk.deliver(Ear())
    desk.write(count=3)
    desk.finish(first)
    content = orjson.loads(desk.cursor("ear").read_bytes())
    name, damaged = _damaged(content)[place]
    desk.cursor("ear").write_bytes(damaged)
    again = Ear()
    desk.finish(desk.deliver(again))
    assert again.heard == [1, 2, 3], name
    (warning,) = events_of(desk.news, Warning)
    assert warning.code == "reporter.cursor", name
    assert "it is told everything from the first event on" in warning.message
    assert orjson.loads(desk.cursor("ear").read_bytes())["seq"] == 3


def test_a_log_that_was_cut_off_is_told_from_the_first_event(desk: Desk) -> None:
    first = desk.deliver(Ear())
    desk.write(count=3)
    desk.finish(first)
    two = b"".join(desk.directory.events.read_bytes().splitlines(keepends=True)[:2])
    desk.directory.events.write_bytes(two)
    again = Ear()
    desk.finish(desk.deliver(again))
    assert again.heard == [1, 2]
    assert "behind the end of events.jsonl" in events_of(desk.news, Warning)[0].message


def test_a_cursor_that_cannot_be_written_is_told_once_and_delays_nothing(desk: Desk) -> None:
    deliveries = desk.deliver(Ear(), timeouts=attrs.evolve(IMPATIENT, save_seconds=3600.0))
    desk.write()
    eventually(lambda: deliveries.taken == 1)  # it has read its cursor
    desk.directory.cursors.rmdir()
    desk.directory.cursors.write_text("a file, where a folder should be")
    desk.write(count=2)
    desk.finish(deliveries)
    assert deliveries.taken == 3
    assert [one.code for one in desk.news] == ["reporter.cursor"]


def test_a_cursor_behind_a_long_line_is_recognised(desk: Desk) -> None:
    first = desk.deliver(Ear())
    desk.write(Warning(code="x", message="y" * 200_000))
    desk.finish(first)
    again = Ear()
    desk.finish(desk.deliver(again))
    assert (again.heard, events_of(desk.news, Warning)) == ([], [])


def test_a_cursor_is_not_written_when_it_says_what_is_there(desk: Desk) -> None:
    desk.directory.cursors.mkdir()
    file = CursorFile(desk.cursor("ear"), identity="dist/ear")
    file.write(Cursor(seq=1, offset=10))
    desk.cursor("ear").unlink()
    file.write(Cursor(seq=1, offset=10))
    assert not desk.cursor("ear").exists()
    assert file.read(LogView(desk.directory.events)) == (Cursor(), None)


class TestTheLog:
    def test_gives_what_was_just_written_without_reading_it(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        log = LogView(desk.directory.events)
        lines = desk.log.extend([Entry(payload=EpochStarted(), step=step, epoch=0) for step in range(3)])
        log.note(lines)
        monkeypatch.setattr(cursor, "decode_event", lambda _: pytest.fail("it has been decoded"))
        assert [line.event.seq for line in log.after(0)] == [1, 2, 3]
        assert log.after(lines[-1].end) == []

    def test_reads_what_it_was_not_told_of(self, desk: Desk) -> None:
        log = LogView(desk.directory.events)
        desk.write(count=2)
        log.note(desk.log.extend([Entry(payload=EpochStarted(), step=0, epoch=0)] * cursor._KEPT_EVENTS))
        log.note(desk.log.extend([Entry(payload=EpochStarted(), step=0, epoch=0)] * 3))
        heard, offset = [], 0
        while found := log.after(offset):
            heard += [line.event.seq for line in found]
            offset = found[-1].end
        assert heard == list(range(1, cursor._KEPT_EVENTS + 6))

    def test_says_what_stands_in_the_file(self, desk: Desk, secret: str) -> None:
        long, shown = "x" * 100_000, f"it was {secret}"
        entries = [Entry(payload=Warning(code="x", message=text), step=0, epoch=0) for text in (long, shown, "\udcff")]
        entries.append(Entry(payload=Warning(code="x", message=shown), step=0, epoch=0, src=(0, 1, 0)))
        told = [line.event for line in desk.log.extend(entries)]
        assert told == [event for event, _ in read_events(desk.directory.events)]
        assert not any(secret in event.payload.message for event in told)
