"""Opening databases: new ones, old ones, and what is none."""

import os
import sqlite3
import stat
import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, text

from hostcore.service.store.database import DatabaseError, open_database
from hostcore.service.store.jobs import Jobs
from hostcore.service.store.tables import METADATA


def test_the_migrations_make_the_tables_that_the_code_knows(engine: Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, METADATA) == []


def test_a_database_is_opened_again_with_what_it_has(database_url: str, a_job: object) -> None:
    first = open_database(database_url)
    Jobs(first).add(a_job("kept"))  # type: ignore[operator]
    first.dispose()
    second = open_database(database_url)

    assert Jobs(second).get("kept") is not None
    second.dispose()


def test_services_that_start_at_once_make_one_database(database_url: str) -> None:
    opened: list[Engine | Exception] = []

    def start() -> None:
        try:
            opened.append(open_database(database_url))
        except Exception as error:  # noqa: BLE001 - for the assertion below
            opened.append(error)

    threads = [threading.Thread(target=start) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(isinstance(one, Engine) for one in opened), opened
    for one in opened:
        one.dispose()


def test_a_new_file_that_another_service_is_writing_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "jobs.sqlite"
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")  # no timeout makes the switch of the journal's mode wait for this
    done = threading.Timer(0.3, other.execute, ["COMMIT"])
    done.start()
    open_database(f"sqlite:///{file}").dispose()
    done.join()
    other.close()


def test_a_database_of_a_later_version_is_not_touched(database_url: str) -> None:
    engine = open_database(database_url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()

    with pytest.raises(DatabaseError, match="9999") as raised:
        open_database(database_url)
    assert "later hostcore" in (raised.value.hint or "")


def test_a_database_file_that_is_none_is_told_so(tmp_path: Path) -> None:
    file = tmp_path / "jobs.sqlite"
    file.write_bytes(b"this is not SQLite" * 1000)

    with pytest.raises(DatabaseError, match="not a database"):
        open_database(f"sqlite:///{file}")
    assert file.read_bytes() == b"this is not SQLite" * 1000


def test_a_database_that_was_cut_off_is_told_so(tmp_path: Path) -> None:
    file = tmp_path / "jobs.sqlite"
    open_database(f"sqlite:///{file}").dispose()
    file.write_bytes(file.read_bytes()[:5000])

    with pytest.raises(DatabaseError, match=r"jobs\.sqlite cannot be used"):
        open_database(f"sqlite:///{file}")


def test_a_place_where_no_database_can_be_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()

    for place in (tmp_path / "file" / "jobs.sqlite", tmp_path / "folder"):
        with pytest.raises(DatabaseError, match="cannot be used"):
            open_database(f"sqlite:///{place}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_database_that_this_user_may_not_write_is_told_so(tmp_path: Path) -> None:
    file = tmp_path / "jobs.sqlite"
    open_database(f"sqlite:///{file}").dispose()
    file.chmod(stat.S_IRUSR)

    with pytest.raises(DatabaseError, match="readonly"):
        open_database(f"sqlite:///{file}")


@pytest.mark.parametrize(
    "url",
    [
        "jobs.sqlite",
        "sqlite://",
        "sqlite:///:memory:",
        "mysql://host/jobs",
        "postgresql+asyncpg://host/jobs",
        "postgresql+nothing://host/jobs",
        "postgresql+psycopg://host:port/jobs",
        "\0",
    ],
)
def test_what_is_no_url_of_a_database_is_told_so(url: str) -> None:
    with pytest.raises(DatabaseError, match="cannot be used") as raised:
        open_database(url)
    assert "postgresql+psycopg" in (raised.value.hint or "")


def test_a_server_that_does_not_answer_is_told_without_its_password() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(DatabaseError, match="cannot be used") as raised:
        open_database("postgresql+psycopg://me:correct-horse@127.0.0.1:1/jobs")
    assert "correct-horse" not in f"{raised.value.message} {raised.value.hint}"


def test_what_was_recorded_is_on_the_disk(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    with engine.connect() as connection:
        assert connection.execute(text("PRAGMA synchronous")).scalar_one() == 2  # FULL
        assert connection.execute(text("PRAGMA journal_mode")).scalar_one() == "wal"
    engine.dispose()
    assert sqlite3.connect(tmp_path / "jobs.sqlite").execute("SELECT count(*) FROM jobs").fetchone() == (0,)
