"""A cursor that is right is followed; any other means the beginning, and a warning."""

from typing import Any

import attrs
import orjson
import pytest
from desk import IMPATIENT, Desk, Ear, events_of, eventually

from hostcore_hookspecs.events import Warning


def test_a_cursor_says_how_far_whose_and_when(desk: Desk) -> None:
    deliveries = desk.deliver(Ear())
    desk.write(count=7)
    desk.finish(deliveries)
    written = orjson.loads(desk.cursor("ear").read_bytes())
    assert written.pop("time_ms") > 1_600_000_000_000
    assert written == {"seq": 7, "offset": desk.directory.events.stat().st_size, "reporter": "dist/ear"}
    assert list(desk.directory.cursors.iterdir()) == [desk.cursor("ear")]


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
    deliveries = desk.deliver(Ear(), limits=attrs.evolve(IMPATIENT, save_seconds=3600.0))
    desk.write()
    eventually(lambda: deliveries.taken == 1)  # it has read its cursor
    desk.directory.cursors.rmdir()
    desk.directory.cursors.write_text("a file, where a folder should be")
    desk.write(count=2)
    desk.finish(deliveries)
    assert deliveries.taken == 3
    assert [one.code for one in desk.news] == ["reporter.cursor"]
