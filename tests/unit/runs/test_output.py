"""Parts of a run's output that there are not: an attempt, or a rank."""

from pathlib import Path

import pytest

from hostcore.runs.directory import RunDirectory
from hostcore.runs.output import UnknownPart, require_rank


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    """A run whose first attempt had two ranks, and whose second had one."""
    directory = RunDirectory(tmp_path / "a")
    for folder in (directory.attempts, directory.record.parent):
        folder.mkdir(parents=True, exist_ok=True)
    for attempt, rank in ((1, 0), (1, 1), (2, 0)):
        (directory.attempts / f"{attempt}.json").write_text("{}")
        (directory.record.parent / f"contract.attempt-{attempt}.rank-{rank}.json").write_text("{}")
    return directory


@pytest.mark.parametrize(
    ("attempt", "rank", "hint"), [(1, 2, "its ranks are 0 to 1"), (None, 1, "it has rank 0 alone")]
)
def test_a_rank_that_an_attempt_has_not_had_is_an_error_that_names_those_it_had(
    directory: RunDirectory, attempt: int | None, rank: int, hint: str
) -> None:
    require_rank(directory, 1, 1)
    require_rank(directory, None, 0)
    with pytest.raises(UnknownPart) as caught:
        require_rank(directory, attempt, rank)
    assert (caught.value.code, caught.value.hint) == ("run.unknown_rank", hint)
