"""A folder with many checkpoints: what is looked at after each save."""

from pathlib import Path

import pytest

from hostcore.checkpoints import find
from hostcore.checkpoints.find import CommittedRecords, committed
from hostcore.checkpoints.prune import prune


@pytest.fixture
def opened(monkeypatch):
    """The names of the records that were opened."""
    names = []

    def open_regular(path: Path):
        names.append(path.name)
        return real(path)

    real = find.open_regular
    monkeypatch.setattr(find, "open_regular", open_regular)
    return names


def test_after_a_save_its_record_alone_is_read(folder, opened):
    records = CommittedRecords(folder.path)
    for step in range(1, 21):
        folder.commit(step)
        assert [record.step for record in records.look()] == list(range(1, step + 1))
    assert opened == [f"step-{step:06d}.json" for step in range(1, 21)]


def test_pruning_reads_no_record_that_was_just_looked_at(folder, opened):
    records = CommittedRecords(folder.path)
    for step in range(1, 6):
        folder.commit(step)
        prune(folder.path, keep=3, protect=(), records=records.look())
    assert len(opened) == 5
    assert [record.step for record in committed(folder.path)] == [3, 4, 5]


def test_a_record_that_was_written_again_is_read_again(folder):
    folder.commit(1)
    records = CommittedRecords(folder.path)
    assert [record.final for record in records.look()] == [False]
    folder.commit(1, final=True)
    assert [record.final for record in records.look()] == [True]


def test_what_has_lost_its_folder_or_its_record_is_none_any_more(folder):
    for step in (1, 2, 3):
        folder.commit(step)
    records = CommittedRecords(folder.path)
    records.look()
    (folder.path / "step-000001").rename(folder.path / "elsewhere")
    (folder.path / "step-000002.json").unlink()
    assert [record.step for record in records.look()] == [3]


def test_a_folder_that_is_missing_has_none(tmp_path):
    assert CommittedRecords(tmp_path / "missing").look() == []
