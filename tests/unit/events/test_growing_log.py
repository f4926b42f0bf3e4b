"""Reading a log while it grows."""

from pathlib import Path

import pytest

from hostcore.events.reader import GrowingLog, name_of


def test_every_whole_line_is_read_once(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path / "log")
    assert list(log.read()) == []
    with (tmp_path / "log").open("wb", buffering=0) as file:
        file.write(b"one\ntw")
        assert list(log.read()) == [b"one\n"]
        assert (list(log.read()), log.rest()) == ([], b"tw")
        file.write(b"o\nthree\n")
        assert list(log.read()) == [b"two\n", b"three\n"]
        assert (list(log.read()), log.rest()) == ([], b"")


def test_a_reader_that_stops_in_between_goes_on_there(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"one\ntwo\nthree\n")
    log = GrowingLog(tmp_path / "log")
    assert next(log.read()) == b"one\n"
    assert list(log.read()) == [b"two\n", b"three\n"]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (b'{"seq":1,"event":"metrics","step":1}\n', "metrics"),
        (b'{"event":"warning","message":"\\"event\\":\\"metrics\\""}\n', "warning"),
        (b"no event\n", ""),
    ],
)
def test_the_name_of_an_event_is_found_without_decoding_it(line: bytes, name: str) -> None:
    assert name_of(line) == name
