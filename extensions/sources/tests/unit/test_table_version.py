from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from hostcore_hookspecs import DataContext, InvalidData
from hostcore_sources.table_version import version_of_run

ASKED = {"source": "lance", "table": "/data/flights", "tag": ""}


def test_the_first_answer_is_the_answer_of_the_run(tmp_path: Path) -> None:
    ctx = DataContext(run_dir=str(tmp_path))
    assert version_of_run(ctx, ASKED, lambda: 7) == 7
    assert version_of_run(ctx, ASKED, lambda: 8) == 7
    assert version_of_run(ctx, {**ASKED, "tag": "good"}, lambda: 9) == 9


def test_ranks_that_open_a_table_at_once_agree(tmp_path: Path) -> None:
    numbers = count()
    with ThreadPoolExecutor(8) as pool:
        found = [
            *pool.map(lambda _: version_of_run(DataContext(run_dir=str(tmp_path)), ASKED, numbers.__next__), range(32))
        ]
    assert len(set(found)) == 1
    assert len([*(tmp_path / "tables").iterdir()]) == 1


def test_without_a_run_the_newest_is_read_and_nothing_noted() -> None:
    numbers = count()
    assert [version_of_run(DataContext(), ASKED, numbers.__next__) for _ in range(2)] == [0, 1]


@pytest.mark.parametrize("content", ["", "{}", '{"version": "7"}', "[]"])
def test_a_damaged_note_is_told(content: str, tmp_path: Path) -> None:
    ctx = DataContext(run_dir=str(tmp_path))
    version_of_run(ctx, ASKED, lambda: 7)
    [note] = (tmp_path / "tables").iterdir()
    note.write_text(content)
    with pytest.raises(InvalidData, match="note about the table's version cannot be read") as caught:
        version_of_run(ctx, ASKED, lambda: 8)
    assert caught.value.file == str(note)
