"""``HOSTCORE_DATABASE_URL``: a URL with a password in it, which belongs in no file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hostcore.secrets.scrub import forget_all
from hostcore_service.settings import Settings, read_settings

URL = "postgresql+psycopg://hostcore:pass-of-db@db/hostcore"


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    (tmp_path / "hostcore.toml").write_text('[service]\ndatabase = "sqlite:////of/the/file"\n')
    yield {"TRAINER_API_TOKEN": "x" * 32, "HOSTCORE_CONFIG": str(tmp_path / "hostcore.toml")}
    forget_all()  # the token, which would be hidden in whatever the next tests write


def _read(environment: dict[str, str]) -> Settings:
    return read_settings(host="127.0.0.1", environment=environment)


def test_it_wins_over_the_file_and_is_shown_nowhere(environment: dict[str, str]) -> None:
    settings = _read({**environment, "HOSTCORE_DATABASE_URL": URL})
    assert settings.database == URL
    assert "pass-of-db" not in repr(settings)


def test_without_it_the_file_says_which_and_without_both_it_is_sqlite_beside_the_runs(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTCORE_RUNS_DIR", str(tmp_path / "runs"))
    assert _read({**environment, "HOSTCORE_DATABASE_URL": ""}).database == "sqlite:////of/the/file"
    del environment["HOSTCORE_CONFIG"]
    assert _read(environment).database == f"sqlite:///{tmp_path}/runs/.service/jobs.sqlite"
