"""Files that are sent between machines, a piece at a time, whatever becomes of them on either side."""

from pathlib import Path

import pytest
import torch

from hostcore.worker.ranks import nodes
from hostcore.worker.ranks.nodes import Nodes
from hostcore.worker.ranks.one import OneRank


def pieces(path: Path, size: int, mode: str) -> nodes._Pieces:
    """All pieces of a file, read or written."""
    with nodes._Pieces(path, size, mode) as made:
        for piece in made:
            if mode == "rb":
                made.read(piece)
            else:
                made.write(piece.fill_(7))
    return made


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "_PIECE_BYTES", 10)


@pytest.mark.parametrize("size", [0, 9, 10, 25])
def test_a_file_of_any_size_arrives_whole(tmp_path: Path, size: int) -> None:
    assert pieces(tmp_path / "new" / "file", size, "wb").failure is None
    assert (tmp_path / "new" / "file").read_bytes() == bytes([7] * size)


def test_a_file_that_became_shorter_is_a_failure_after_all_pieces_have_gone_by(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 15)
    seen: list[torch.Tensor] = []
    with nodes._Pieces(tmp_path / "file", 40, "rb") as made:
        seen += [made.read(piece) for piece in made]
    assert [len(piece) for piece in seen] == [10] * 4
    assert "shorter" in str(made.failure)


def test_a_file_of_the_first_rank_is_not_overwritten_by_one_of_another(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    assert isinstance(pieces(tmp_path / "file", 25, "xb").failure, FileExistsError)
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_where_all_see_one_folder_nothing_is_sent(tmp_path: Path) -> None:
    alone = Nodes.of(OneRank(), tmp_path, is_apart=False)
    assert alone.bring(tmp_path / "step-000001") == tmp_path / "step-000001"
    assert alone.prepare(tmp_path / "a", ["trainer"]) == tmp_path / "a"
    assert alone.collect(tmp_path / "a", lambda: "written") == "written"
    assert not (tmp_path / "a").exists()
