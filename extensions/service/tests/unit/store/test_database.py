"""Opening databases: new ones, old ones, and what is none."""

import os
import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from served import at_once
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from hostcore.errors import described
from hostcore_hookspecs.errors import HostcoreError
from hostcore_service.store.database import DatabaseError, Readiness, open_database, writing
from hostcore_service.store.job import to_row
from hostcore_service.store.jobs import Jobs
from hostcore_service.store.tables import JOBS, METADATA


def test_the_migrations_make_the_tables_that_the_code_knows(engine: Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, METADATA) == []


def test_a_database_of_the_first_version_is_migrated_with_its_jobs(
    database_url: str, a_job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        upgrade = command.upgrade
        patch.setattr(command, "upgrade", lambda config, _: upgrade(config, "0001"))
        first = open_database(database_url)
    row = {key: value for key, value in to_row(attrs.asdict(a_job("kept"), recurse=False)).items() if key != "used"}
    with writing(first) as connection:
        connection.execute(JOBS.insert().values(row))
    first.dispose()
    engine = open_database(database_url)

    assert [job.run_id for job in Jobs(engine).leases.claim("me", now=10, limit=1)] == ["kept"]
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    engine.dispose()


def test_services_that_start_at_once_make_one_database(database_url: str) -> None:
    opened = at_once(5, lambda _: open_database(database_url))
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


@pytest.mark.parametrize("damage", ["other", "cut", "below a file", "folder"])
def test_a_file_that_is_no_database_is_told_so_and_left_alone(tmp_path: Path, migrated_file: Path, damage: str) -> None:
    file, match = tmp_path / "jobs.sqlite", r"jobs\.sqlite cannot be used"
    whole = migrated_file.read_bytes()
    content = {"other": b"this is not SQLite" * 1000, "cut": whole[:5000], "below a file": b""}.get(damage)
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    with pytest.raises(DatabaseError, match="not a database" if damage == "other" else match):
        open_database(f"sqlite:///{file / 'jobs.sqlite' if damage == 'below a file' else file}")
    assert content is None or file.read_bytes() == content


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_database_that_this_user_may_not_write_is_told_so(tmp_path: Path) -> None:
    file = tmp_path / "jobs.sqlite"
    open_database(f"sqlite:///{file}").dispose()
    file.chmod(stat.S_IRUSR)

    with pytest.raises(DatabaseError, match="readonly"):
        open_database(f"sqlite:///{file}")


NO_URLS = ["jobs.sqlite", "sqlite://", "sqlite:///:memory:", "mysql://host/jobs", "postgresql+asyncpg://host/jobs"]
NO_URLS += ["postgresql+nothing://host/jobs", "postgresql+psycopg://host:port/jobs", "\0"]


@pytest.mark.parametrize("url", NO_URLS)
def test_what_is_no_url_of_a_database_is_told_so(url: str) -> None:
    with pytest.raises(DatabaseError, match="cannot be used") as raised:
        open_database(url)
    assert "postgresql+psycopg" in (raised.value.hint or "")


@pytest.mark.parametrize(
    "url", ["me:PASSWORD@127.0.0.1:1/jobs", "me@127.0.0.1:1/jobs?password=PASSWORD&connect_timeout=5"]
)
def test_no_password_of_a_server_is_told_and_one_too_short_to_be_hidden_is_refused(url: str) -> None:
    with pytest.raises(HostcoreError) as short:
        open_database(f"postgresql+psycopg://{url.replace('PASSWORD', '1234567')}")
    assert described(short.value).splitlines() == [
        "the password in HOSTCORE_DATABASE_URL or [service] database, a secret, has fewer than 8 characters: "
        "it cannot be told from other text",
        "    hint: a secret has at least 8 characters",
    ]
    assert short.value.code == "secret.value"
    pytest.importorskip("psycopg")
    with pytest.raises(DatabaseError, match="cannot be used") as raised:
        open_database(f"postgresql+psycopg://{url.replace('PASSWORD', 'correct-horse')}")
    assert "correct-horse" not in f"{raised.value.message} {raised.value.hint}"


def test_what_was_recorded_is_on_the_disk(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    with engine.connect() as connection:
        assert connection.execute(text("PRAGMA synchronous")).scalar_one() == 2  # FULL
        assert connection.execute(text("PRAGMA journal_mode")).scalar_one() == "wal"
    engine.dispose()
    assert sqlite3.connect(tmp_path / "jobs.sqlite").execute("SELECT count(*) FROM jobs").fetchone() == (0,)


def _is_ready(engine: Engine) -> bool:
    try:
        Readiness(engine).require()
    except DatabaseError as error:
        assert "/" not in error.message, "it names a place of this machine"
        return False
    return True


def test_a_deleted_file_is_noticed_not_made_anew_and_used_again_when_it_is_put_back(tmp_path: Path, a_job: Any) -> None:
    file, backup = tmp_path / "jobs.sqlite", tmp_path / "backup.sqlite"
    engine = open_database(f"sqlite:///{file}")
    jobs = Jobs(engine)
    jobs.add(a_job("backed-up"))
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(backup)) as target:
        source.backup(target)
    jobs.add(a_job("later"))
    assert _is_ready(engine)
    for path in tmp_path.glob("jobs.sqlite*"):
        path.unlink()
    assert not _is_ready(engine)
    for call in (lambda: jobs.add(a_job("after")), lambda: jobs.get("later"), jobs.run_ids):
        with pytest.raises(SQLAlchemyError):
            call()
    assert not file.exists()
    file.touch()
    assert not _is_ready(engine), "an empty file in its place is no database"
    backup.rename(file)

    assert _is_ready(engine)
    assert jobs.run_ids() == {"backed-up"}
    jobs.add(a_job("after"))
    with pytest.raises(SQLAlchemyError), writing(engine) as connection:
        connection.execute(text("DELETE FROM jobs"))
        file.unlink()  # before the commit
    engine.dispose()


def test_a_server_that_can_only_be_read_is_not_ready(postgres: str, tmp_path: Path) -> None:
    name = "only_read"
    server = create_engine(postgres.format(database="postgres"), isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    engine = open_database(postgres.format(database=name))
    assert _is_ready(engine)
    with server.connect() as connection:
        connection.exec_driver_sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    engine.dispose()
    assert not _is_ready(engine)
    with server.connect() as connection:
        connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
    assert not _is_ready(engine)
    engine.dispose()
    server.dispose()


def test_probes_ask_a_database_once_a_second(tmp_path: Path) -> None:
    now = iter([0.0, 0.0, 0.9, 1.0, 1.0])
    engine = open_database(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    readiness = Readiness(engine, clock=lambda: next(now))
    readiness.require()
    (tmp_path / "jobs.sqlite").unlink()
    readiness.require()
    with pytest.raises(DatabaseError):
        readiness.require()
    engine.dispose()
