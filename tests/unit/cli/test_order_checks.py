"""Checks of a run's order while the run goes on removing old checkpoints."""

from pathlib import Path

import pytest

from hostcore.checkpoints.find import Found
from hostcore.checkpoints.names import folder_name, record_name
from hostcore.checkpoints.record import CommitRecord
from hostcore.verification.order_checks import check_order


@pytest.fixture
def half_removed(tmp_path: Path) -> Found:
    """A checkpoint whose folder has lost its files."""
    folder = tmp_path / folder_name(20)
    folder.mkdir()
    return Found(record=CommitRecord(step=20, epoch=0, final=False, attempt=1, files=()), folder=folder)


def test_a_checkpoint_that_is_being_removed_is_passed_over(half_removed: Found, tmp_path: Path) -> None:
    assert list(check_order([half_removed], root=tmp_path)) == []


def test_a_committed_checkpoint_without_its_host_state_fails(half_removed: Found, tmp_path: Path) -> None:
    (tmp_path / record_name(20)).write_text("{}")
    (check,) = check_order([half_removed], root=tmp_path)
    assert (check.status, check.path) == ("failed", folder_name(20))
    assert "FileNotFoundError" in check.message
