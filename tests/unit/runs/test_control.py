"""A request to cancel: a file for one attempt, which its supervisor finds."""

from pathlib import Path

import pytest

from hostcore.runs.control import read_cancel, request_cancel
from hostcore.runs.directory import RunDirectory


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    """A run without any folder for requests, as runs are made."""
    return RunDirectory(tmp_path)


def test_without_a_request_there_is_none_and_nothing_is_made(directory: RunDirectory, tmp_path: Path) -> None:
    assert read_cancel(directory, 1) is None
    assert list(tmp_path.iterdir()) == []


def test_a_request_is_found_by_the_attempt_that_it_is_for_and_by_no_other(directory: RunDirectory) -> None:
    request_cancel(directory, 2, requested_by="user", reason="the data was wrong")
    found = read_cancel(directory, 2)
    assert found is not None
    assert (found.requested_by, found.reason, found.force) == ("user", "the data was wrong", False)
    assert read_cancel(directory, 1) is None
    assert read_cancel(directory, 3) is None


def test_who_asks_first_counts(directory: RunDirectory) -> None:
    request_cancel(directory, 1, requested_by="user", reason="first")
    first = read_cancel(directory, 1)
    request_cancel(directory, 1, requested_by="somebody", reason="second")
    assert read_cancel(directory, 1) == first


def test_who_asks_later_can_force_it_and_nobody_takes_that_back(directory: RunDirectory) -> None:
    request_cancel(directory, 1, requested_by="user", reason="first")
    request_cancel(directory, 1, requested_by="user", reason="second", force=True)
    request_cancel(directory, 1, requested_by="user", reason="third")
    found = read_cancel(directory, 1)
    assert found is not None
    assert (found.reason, found.force) == ("first", True)


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
