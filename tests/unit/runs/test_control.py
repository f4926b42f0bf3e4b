"""A request to cancel: a file for one attempt, which its supervisor finds."""

from pathlib import Path

import attrs
import pytest

from hostcore.runs.control import read_cancel, request_cancel
from hostcore.runs.directory import RunDirectory


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    """A run without any folder for requests, as runs are made."""
    return RunDirectory(tmp_path)


def test_a_request_is_found_by_the_attempt_that_it_is_for_and_only_force_is_added_later(
    directory: RunDirectory, tmp_path: Path
) -> None:
    assert read_cancel(directory, 2) is None
    assert list(tmp_path.iterdir()) == []
    request_cancel(directory, 2, requested_by="user", reason="the data was wrong")
    first = read_cancel(directory, 2)
    assert first is not None
    assert (first.requested_by, first.reason, first.force) == ("user", "the data was wrong", False)
    assert read_cancel(directory, 1) is read_cancel(directory, 3) is None
    request_cancel(directory, 2, requested_by="somebody", reason="second")
    assert read_cancel(directory, 2) == first
    for force in (True, False):  # which nobody takes back
        request_cancel(directory, 2, requested_by="user", reason="third", force=force)
        assert read_cancel(directory, 2) == attrs.evolve(first, force=True)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"requested_ms": "yesterday", "force": "yes"}'])
def test_a_file_made_by_hand_is_a_request_whatever_it_says(directory: RunDirectory, content: str) -> None:
    path = directory.cancel_request(1)
    path.parent.mkdir()
    path.write_text(content)
    found = read_cancel(directory, 1)
    assert found is not None
    assert (found.requested_by, found.reason, found.force) == ("user", "cancelled by the user", False)


def test_nothing_is_asked_of_a_run_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        request_cancel(RunDirectory(tmp_path / "gone"), 1, requested_by="user", reason="why not")
    assert not (tmp_path / "gone").exists()
