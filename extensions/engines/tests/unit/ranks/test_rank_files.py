"""The files of a rank on a machine that does not see the run directory."""

from pathlib import Path
from typing import Any

from hostcore_engines.ranks.rank_files import Received, Sender


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
