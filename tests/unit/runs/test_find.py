"""Which run somebody means."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hostcore.runs.find import AmbiguousRun, find_run
from hostcore.runs.summary import UnknownRun


@pytest.fixture
def runs(run_folder: Callable, tmp_path: Path) -> Path:
    """The folder of some runs, and of something that is none."""
    for run_id in ("flight", "flight-2", "weather-1", "weather-2"):
        run_folder(run_id)
    (tmp_path / "runs" / "notes").mkdir()
    return tmp_path / "runs"


@pytest.mark.parametrize(
    ("name", "meant"), [("flight", "flight"), ("flight-", "flight-2"), ("weather-2", "weather-2"), ("f", None)]
)
def test_a_run_id_wins_over_the_beginning_of_others(runs: Path, name: str, meant: str | None) -> None:
    if meant is None:
        with pytest.raises(AmbiguousRun, match="2 runs begin with 'f': flight, flight-2"):
            find_run(name, runs)
    else:
        assert find_run(name, runs).path == runs / meant


@pytest.mark.parametrize("name", ["", "notes", "no", "..", "runs/flight", "a/b", "flight/"])
def test_what_is_no_run_is_unknown(
    runs: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(UnknownRun):
        find_run(name, runs)


@pytest.mark.parametrize(
    ("name", "where"), [("runs/flight", "."), ("runs/flight/", "."), ("./flight", "runs"), (".", "runs/flight")]
)
def test_a_path_to_its_directory_means_it_wherever_it_lies(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, where: str
) -> None:
    monkeypatch.chdir(tmp_path / where)
    assert find_run(name, tmp_path / "none").path == runs / "flight"


def test_a_run_directory_that_is_a_link_is_called_as_the_link_is(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (runs / "flight").rename(tmp_path / "elsewhere" / "disk-7")
    (runs / "flight").symlink_to(tmp_path / "elsewhere" / "disk-7")
    assert find_run(str(runs / "flight"), runs).run_id == "flight"
    assert find_run(f"{runs}/notes/../flight", runs).run_id == "flight"
