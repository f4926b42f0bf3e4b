"""A cursor that is right is followed; any other means the beginning, and a warning."""

from typing import Any

import attrs
import orjson
import pytest
from desk import IMPATIENT, Desk, Ear, events_of
from uploading import until

from hostcore_hookspecs.events import Warning


def test_a_cursor_says_how_far_whose_and_when(desk: Desk) -> None:
    deliveries = desk.deliver(Ear())
    desk.write(count=7)
    desk.finish(deliveries)
    written = orjson.loads(desk.cursor("ear").read_bytes())
    assert written.pop("time_ms") > 1_600_000_000_000
    assert written == {"seq": 7, "offset": desk.directory.events.stat().st_size, "reporter": "dist/ear"}
    assert list(desk.directory.cursors.iterdir()) == [desk.cursor("ear")]


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b'{"seq": 3',
        b"[]",
        b"\xff\xfe",
        {"offset": -1},
        {"seq": "3"},
        {"reporter": "other/ear"},
        {"offset": 10_000},
        {"offset": 7},  # in a line
        {"seq": 4},
        "the log was cut off",
    ],
    ids=str,
)
def test_a_cursor_that_cannot_be_right_means_the_first_event_and_a_warning(desk: Desk, damage: Any) -> None:
    first = desk.deliver(Ear())
    desk.write(count=3)
    desk.finish(first)
    cursor, events = desk.cursor("ear"), [1, 2, 3]
    if isinstance(damage, dict):
        cursor.write_bytes(orjson.dumps({**orjson.loads(cursor.read_bytes()), **damage}))
    elif isinstance(damage, bytes):
        cursor.write_bytes(damage)
    else:
        lines = desk.directory.events.read_bytes().splitlines(keepends=True)
        desk.directory.events.write_bytes(b"".join(lines[:2]))
        events = [1, 2]
    again = Ear()
    desk.finish(desk.deliver(again))
    assert again.heard == events
    (warning,) = events_of(desk.news, Warning)
    assert warning.code == "reporter.cursor"
    assert "it is told everything from the first event on" in warning.message
    assert orjson.loads(cursor.read_bytes())["seq"] == events[-1]


def test_a_cursor_that_cannot_be_written_is_told_once_and_delays_nothing(desk: Desk) -> None:
    deliveries = desk.deliver(Ear(), limits=attrs.evolve(IMPATIENT, save_seconds=3600.0))
    desk.write()
    until(lambda: deliveries.taken == 1)  # it has read its cursor
    desk.directory.cursors.rmdir()
    desk.directory.cursors.write_text("a file, where a folder should be")
    desk.write(count=2)
    desk.finish(deliveries)
    assert deliveries.taken == 3
    assert [one.code for one in desk.news] == ["reporter.cursor"]
