"""What requirements were resolved to: taken again for a while, as long as uv would be told the same."""

import os
from pathlib import Path
from typing import Any

import pytest

from hostcore_environments.cache import InvalidSetting
from hostcore_environments.resolutions import REUSED_VARIABLE, Resolution, forget


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Asks for the resolution of requirements, in a folder of its own."""
    for name in [name for name in os.environ if name.startswith("UV_")]:
        monkeypatch.delenv(name)
    (tmp_path / "jobs").mkdir()

    def of(*requirements: str, **changed: Any) -> Resolution:
        told = {"needs": ["numpy"], "python": "3.12", "job_dir": tmp_path / "jobs", "folder": tmp_path / "resolutions"}
        return Resolution.of(requirements, **{**told, **changed})

    return of


def test_it_is_taken_again(asked: Any) -> None:
    assert asked("a>=1").read() is None
    asked("a>=1").write("the lock")
    lock, seconds = asked("a>=1").read()
    assert (lock, seconds >= 0) == ("the lock", True)


def test_an_old_one_is_not(asked: Any) -> None:
    asked("a>=1").write("the lock")
    os.utime(asked("a>=1").file, (1, 1))
    assert asked("a>=1").read() is None
    asked("b").write("another")
    assert not asked("a>=1").file.exists()


def test_one_of_the_future_is_not(asked: Any) -> None:
    asked("a>=1").write("the lock")
    os.utime(asked("a>=1").file, (1 << 33, 1 << 33))
    assert asked("a>=1").read() is None


def test_of_others_it_is_another(asked: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {asked(*one).file for one in (("a", "b"), ("ab",), ("a",))}
    files |= {asked("a", python="3.13").file, asked("a", needs=["numpy>2"]).file, asked("a", job_dir=tmp_path).file}
    monkeypatch.setenv("UV_INDEX", "https://index.example")
    files.add(asked("a").file)
    (tmp_path / "uv.toml").write_text("offline = true")
    files.add(asked("a").file)
    constraints = tmp_path / "constraints.txt"
    monkeypatch.setenv("UV_CONSTRAINT", str(constraints))
    for line in ("b==1", "b==2"):
        constraints.write_text(line)
        files.add(asked("a").file)
    assert len(files) == 10


@pytest.mark.parametrize("requirement", ["./mine", "mine @ https://example.org/mine.whl", "../a.whl"])
def test_what_may_change_at_any_time_is_not_kept(asked: Any, requirement: str) -> None:
    asked("a", requirement).write("the lock")
    assert asked("a", requirement).read() is None


def test_it_can_be_forgotten(asked: Any, tmp_path: Path) -> None:
    asked("a").write("the lock")
    forget(tmp_path / "resolutions")
    assert asked("a").read() is None


def test_what_another_process_has_forgotten_is_no_error(
    asked: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked("a").write("the lock")
    usual = Path.glob

    def late(self: Path, pattern: str) -> list[Path]:
        found = list(usual(self, pattern))
        for one in found:
            one.unlink()
        return found

    monkeypatch.setattr(Path, "glob", late)
    forget(tmp_path / "resolutions")
    assert asked("a").read() is None


def test_the_time_is_a_number_of_seconds(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked("a").write("the lock")
    monkeypatch.setenv(REUSED_VARIABLE, "0")
    assert asked("a").file is None
    monkeypatch.setenv(REUSED_VARIABLE, "an hour")
    with pytest.raises(InvalidSetting, match="is 'an hour'"):
        asked("a")
