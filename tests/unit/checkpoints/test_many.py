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


def test_after_a_save_its_record_alone_is_read_and_pruning_reads_none(folder, opened):
    records = CommittedRecords(folder.path)
    assert records.look() == []
    for step in range(1, 11):
        folder.commit(step)
        assert [record.step for record in records.look()] == list(range(max(1, step - 3), step + 1))
        prune(folder.path, keep=3, protect=(), records=records.look())
    assert opened == [f"step-{step:06d}.json" for step in range(1, 11)]
    assert [record.step for record in committed(folder.path)] == [8, 9, 10]


def test_what_was_written_again_is_read_again_and_what_is_no_longer_whole_is_left_out(folder):
    for step in (1, 2, 3):
        folder.commit(step)
    records = CommittedRecords(folder.path)
    records.look()
    (folder.path / "step-000001").rename(folder.path / "elsewhere")
    (folder.path / "step-000002.json").unlink()
    folder.commit(3, final=True)
    assert [(record.step, record.final) for record in records.look()] == [(3, True)]
