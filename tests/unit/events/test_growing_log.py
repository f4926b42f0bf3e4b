"""Reading a log while it grows."""

import random
from pathlib import Path

from hostcore.events.reader import GrowingLog, name_of, seq_of


def test_every_whole_line_is_read_once(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path / "log")
    assert list(log.read()) == []
    with (tmp_path / "log").open("wb", buffering=0) as file:
        file.write(b"one\ntw")
        assert list(log.read()) == [b"one\n"]
        assert (list(log.read()), log.rest()) == ([], b"tw")
        file.write(b"o\nthree\n")
        assert next(log.read()) == b"two\n"  # a reader that stops in between goes on there
        assert list(log.read()) == [b"three\n"]
        assert (list(log.read()), log.rest()) == ([], b"")


def test_a_long_line_comes_in_pieces_of_whole_characters(tmp_path: Path) -> None:
    text = "begin\n" + "ü€" * 40 + "\nend\n"
    (tmp_path / "log").write_text(text, encoding="utf-8")
    log = GrowingLog(tmp_path / "log")
    pieces = list(log.read(longest=17))
    assert "".join(piece.decode("utf-8") for piece in pieces) == text
    assert len(pieces) > 5
    assert all(len(piece) <= 17 for piece in pieces)
    assert (list(log.read(longest=17)), log.offset) == ([], len(text.encode()))


def test_a_log_of_events_is_read_on_behind_any_of_them(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    path = tmp_path / "events.jsonl"
    lines = [
        b'{"schema":"hostcore.event/1","seq":%d,"x":"%s"}\n' % (n, b"y" * chance.randrange(90)) for n in range(1, 60)
    ]
    for torn in (b"", b'{"schema":"hostcore.event/1","seq":60'):
        path.write_bytes(b"".join(lines) + torn)
        for seq in range(62):
            log = GrowingLog(path)
            log.begin_behind(seq)
            assert list(log.read()) == lines[seq:]
    log = GrowingLog(tmp_path / "none")
    log.begin_behind(5)
    assert list(log.read()) == []


def test_the_number_and_the_name_of_an_event_are_found_without_decoding_it() -> None:
    assert name_of(b'{"seq":1,"event":"metrics","step":1}\n') == "metrics"
    assert name_of(b'{"event":"warning","message":"\\"event\\":\\"metrics\\""}\n') == "warning"
    assert name_of(b"no event\n") == ""
    line = b'{"schema":"hostcore.event/1","seq":17,"time_ms":1}\n'
    assert (seq_of(line), seq_of(b"no event\n")) == (17, None)
