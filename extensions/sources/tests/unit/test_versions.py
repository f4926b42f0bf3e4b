"""Tables with versions, Delta and Lance: a run goes on with the one that it began with."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import deltalake
import lance
import pytest
from source_examples import CUTS, SAVED, flights

from hostcore_hookspecs import InvalidData

ROWS = CUTS[-1]


@pytest.fixture(params=["delta", "lance"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def path(kind: str, tmp_path: Path) -> Path:
    return Path(SAVED[kind](tmp_path)["path"])


def append(kind: str, path: Path) -> None:
    if kind == "delta":
        deltalake.write_deltalake(path, flights(0, 5), mode="append")
        deltalake.DeltaTable(path).optimize.compact()
    else:
        lance.write_dataset(flights(0, 5), path, mode="append")
        lance.dataset(path).delete("id = 1000")


def test_a_run_goes_on_with_the_version_that_it_began_with(kind: str, path: Path, open_source, read) -> None:
    before = open_source(kind, path=path, run="a").shards()
    append(kind, path)
    again = open_source(kind, path=path, run="a")
    assert again.shards() == before
    assert read(again) == list(range(ROWS))
    for run in ("b", ""):  # another run, and none, which notes nothing
        assert len(read(open_source(kind, path=path, run=run))) == ROWS + (5 if kind == "delta" else 4)


def test_ranks_that_open_a_growing_table_at_once_agree(kind: str, path: Path, open_source, tmp_path: Path) -> None:
    def shards(number: int) -> object:
        if number % 2:
            append(kind, path)
            return None
        return tuple(open_source(kind, path=path, run="a").shards())

    with ThreadPoolExecutor(4) as pool:
        found = {one for one in pool.map(shards, [0, 0, 1, 0, 0]) if one is not None}
    assert len(found) == 1
    assert len([*(tmp_path / "runs" / "a" / "tables").iterdir()]) == 1


@pytest.mark.parametrize("content", ["", "{}", '{"version": "7"}', "[]"])
def test_a_damaged_note_of_the_version_is_told(
    kind: str, path: Path, open_source, tmp_path: Path, content: str
) -> None:
    open_source(kind, path=path, run="a")
    [note] = (tmp_path / "runs" / "a" / "tables").iterdir()
    note.write_text(content)
    with pytest.raises(InvalidData, match="note about the table's version cannot be read") as caught:
        open_source(kind, path=path, run="a")
    assert caught.value.file == str(note)


def test_what_is_no_table_is_told_without_the_places_in_the_librarys_sources(
    kind: str, tmp_path: Path, open_source
) -> None:
    with pytest.raises(InvalidData, match=f"is not a {kind.capitalize()} table") as caught:
        open_source(kind, path=tmp_path)
    assert caught.value.pointer == "/dataset/path"
    assert ".rs" not in str(caught.value)
    with pytest.raises(InvalidData, match="does not exist"):
        open_source(kind, path=tmp_path / "nothing")
