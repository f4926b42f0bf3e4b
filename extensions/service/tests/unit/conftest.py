"""Databases that really run, jobs to record in them, and the application in this process, without a network."""

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from served import HERE, LAUNCHERS, TINY, TOKEN, install
from sqlalchemy import Engine, create_engine

from hostcore.plugins.installed import discover
from hostcore.secrets.scrub import forget_all
from hostcore.supervisor.operator_file import OperatorFile
from hostcore_service.app import make_app
from hostcore_service.descriptions import Ask, Descriptions
from hostcore_service.settings import Settings
from hostcore_service.store.database import open_database
from hostcore_service.store.job import StoredJob
from hostcore_service.store.jobs import Jobs

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a PostgreSQL server of the tests' own, without the name of a database."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    programs = _postgres_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="hostcore-postgres-"))
    data = folder / "data"
    as_postgres = ["setpriv", "--pdeathsig=QUIT"]  # it ends with this process, however that ends
    if os.geteuid() == 0:  # it refuses to run as root
        shutil.chown(folder, "postgres", "postgres")
        as_postgres += ["--reuid=postgres", "--regid=postgres", "--clear-groups"]
    run(
        *as_postgres,
        *[programs / "initdb", "--pgdata", data, "--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8"],
    )
    options = ["listen_addresses=", f"unix_socket_directories={folder}", "fsync=off", "max_connections=200"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [*as_postgres, programs / "postgres", "-D", data, *(part for one in options for part in ("-c", one))],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        _wait_ready(server, programs, folder)
        yield f"postgresql+psycopg://postgres@/{{database}}?host={folder}"
    finally:
        server.send_signal(signal.SIGQUIT)
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_ready(server: "subprocess.Popen[bytes]", programs: Path, folder: Path) -> None:
    while subprocess.run([programs / "pg_isready", "--quiet", "--host", folder], check=False).returncode:
        assert server.poll() is None, (folder / "log").read_text()
        time.sleep(0.05)


def _postgres_programs() -> Path | None:
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return debian[-1].parent if debian else None


def run(*command: str | Path) -> None:
    # Not captured by pipes: the server would inherit them and keep them open.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            list(map(str, command)), cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False
        )
        output.seek(0)
        assert done.returncode == 0, output.read().decode()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.sqlite'}"
    return new_database(request.getfixturevalue("postgres"))


def new_database(server: str, *, template: str = "template1") -> str:
    """The URL of an empty database of a server, or of a copy of another."""
    name = f"test_{next(_numbers)}"
    engine = create_engine(server.format(database="postgres"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name} TEMPLATE {template}")
    engine.dispose()
    return server.format(database=name)


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of SQLite that is migrated and has no jobs: to copy, where the migration is not the point."""
    folder = tmp_path_factory.mktemp("migrated")
    engine = open_database(f"sqlite:///{folder / 'jobs.sqlite'}")
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    engine.dispose()
    return folder / "jobs.sqlite"


@pytest.fixture(scope="session")
def migrated_database(postgres: str) -> str:
    """The name of a database of the server that is migrated and has no jobs."""
    url = new_database(postgres)
    open_database(url).dispose()
    return url.partition("@/")[2].partition("?")[0]


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Sections of the operator's file for a migrated database of each kind; of SQLite, a file beside the runs."""
    if request.param == "sqlite":
        return {}
    template = request.getfixturevalue("migrated_database")
    return {"service": {"database": new_database(request.getfixturevalue("postgres"), template=template)}}


@pytest.fixture
def sqlite_engine(migrated_file: Path, tmp_path: Path) -> Iterator[Engine]:
    """An opened database of SQLite."""
    opened = open_database(f"sqlite:///{shutil.copy(migrated_file, tmp_path / 'jobs.sqlite')}")
    yield opened
    opened.dispose()


@pytest.fixture
def postgres_engine(postgres: str, migrated_database: str) -> Iterator[Engine]:
    """An opened database of PostgreSQL."""
    opened = open_database(new_database(postgres, template=migrated_database))
    yield opened
    opened.dispose()


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """An opened database of each kind."""
    found: Engine = request.getfixturevalue(f"{request.param}_engine")
    return found


@pytest.fixture
def jobs(engine: Engine) -> Jobs:
    """The table of jobs, in each kind of database."""
    return Jobs(engine)


@pytest.fixture
def a_job() -> Callable[..., StoredJob]:
    """``a_job("x", submitted_ms=3)``: a job to record."""
    return make_job


def make_job(
    run_id: str = "a", *, launcher: str = "instant", labels: Any = None, settings: Any = None, **fields: Any
) -> StoredJob:
    use = {"use": launcher, **(settings or {})}
    document = {"trainer": "tiny", "max_steps": 3, "run_id": run_id, "launcher": use, "terminal": False}
    if labels:
        document["labels"] = labels
    known = {
        "run_id": run_id,
        "name": run_id,
        "job": document,
        "trainer": "tiny",
        "launcher": launcher,
        "principal": "token",
        "route": "jobs",
        "launch_id": f"{run_id}.1",
        "submitted_ms": 1000,
        "updated_ms": 1000,
    }
    return StoredJob(**{**known, **fields})


@pytest.fixture
def service_here(
    site_here: Any, migrated_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Settings]:
    """``service_here(service={"poll_seconds": 0.1})``: settings, in a process that has the launchers of the tests."""
    # The trainer is never loaded here: whoever is launched would do that.
    trainer = {"hostcore.trainers": {"tiny": "tiny:Trainer"}}
    install(site_here.path, "tiny-trainer", [], trainer)
    launchers = {"hostcore.launchers": TINY["hostcore.launchers"]}
    install(site_here.path, "told-launchers", [HERE / "told_launchers.py"], launchers)
    ledger = tmp_path / "ledger"
    ledger.mkdir()
    monkeypatch.setenv("HOSTCORE_TEST_LEDGER", str(ledger))
    (tmp_path / "runs" / ".service").mkdir(parents=True)
    shutil.copy(migrated_file, tmp_path / "runs" / ".service")
    return lambda **sections: make_settings(tmp_path / "runs", **sections)


def make_settings(runs: Path, *, token: str | None = None, **sections: Any) -> Settings:
    from hostcore.job.forms import structure

    document = {
        "launcher": "instant",
        "launchers": {name: {} for name in LAUNCHERS},
        **sections,
        "service": {"poll_seconds": 0.05, **sections.get("service", {})},
        "http": {"requests_per_minute": 0, **sections.get("http", {})},
    }
    return Settings(operator=structure(OperatorFile, document, base_dir=runs), runs=runs, token=token)


@pytest.fixture
def noted(tmp_path: Path) -> Callable[[str], Sequence[str]]:
    """``noted("started")``: what the launchers of the tests have written down; see ``told_launchers``."""

    def read(file: str) -> Sequence[str]:
        path = tmp_path / "ledger" / file
        return path.read_text().split() if path.exists() else []

    return read


@pytest.fixture
def installed(service_here: Any) -> Any:
    """The plugins that this process has."""
    return discover()


@pytest.fixture
def client(service_here: Callable[..., Settings]) -> Iterator[Callable[..., TestClient]]:
    """``client(http={"max_submitted": 2})``: a client of a new service, with the right token unless told otherwise."""
    with ExitStack() as stack:

        def make(*, token: str | None = TOKEN, describe: Ask | None = None, **sections: Any) -> TestClient:
            headers = {"X-TRAINER-TOKEN": token} if token else {}
            settings = service_here(token=token, **sections)
            app = make_app(settings, descriptions=Descriptions(settings.runs, describe) if describe else None)
            return stack.enter_context(
                TestClient(app, "http://127.0.0.1", headers=headers, raise_server_exceptions=False)
            )

        yield make
    forget_all()


@pytest.fixture
def tiny() -> Callable[..., dict[str, Any]]:
    """``tiny(run_id="x")``: a job that the service takes."""
    return lambda **keys: {"trainer": "tiny", "max_steps": 3, "terminal": False, **keys}
