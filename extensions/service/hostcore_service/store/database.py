"""Opening the database, bringing it to the form that this version knows, and seeing that it is still there."""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, create_engine, event, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError, NoSuchModuleError, SQLAlchemyError

from hostcore.secrets.scrub import remember
from hostcore_builtin_plugins.extras import install_command
from hostcore_hookspecs.errors import HostcoreError
from hostcore_service.store.tables import JOBS

LOG: Final = logging.getLogger("hostcore_service")

_MIGRATIONS: Final = Path(__file__).parent / "migrations"
#: How long a statement waits for others to finish writing.
_BUSY_SECONDS: Final = 30
#: Serialises the migrations of several services that start at once; any number does, as long as it is ours.
_ADVISORY_LOCK: Final = 0x686F7374


class DatabaseError(HostcoreError):
    """The database cannot be used."""

    code = "service.database"
    #: Of the response.
    headers: Final = {"Retry-After": "5"}


def open_database(url: str) -> Engine:
    """Connect to a database, make it if it is SQLite's, and migrate it.

    :param url: An SQLAlchemy URL.
    :raises DatabaseError: When it is none, or the database cannot be reached or is a later version's.
    :raises HostcoreError: ``secret.value``, for a password that cannot be hidden.
    """
    try:
        parsed = _absolute(make_url(url))
        for password in filter(None, [parsed.password, *parsed.normalized_query.get("password", ())]):
            remember(str(password), "the password in HOSTCORE_DATABASE_URL or [service] database")
        make = _BACKENDS.get(parsed.get_backend_name())
        if make is None or (make is _sqlite and parsed.database in (None, "", ":memory:")):
            raise ArgumentError(f"hostcore keeps no jobs in {_shown(parsed)!r}")
        engine = make(parsed)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError, ValueError) as error:
        raise DatabaseError(
            f"the database cannot be used: {error}",
            hint=f"sqlite:////absolute/path, or postgresql+psycopg://… with {install_command('postgres')}",
        ) from error
    try:
        _make_folder(parsed)
        _migrate(engine)
    except Exception as error:
        engine.dispose()
        raise DatabaseError(
            f"the database {_shown(parsed)} cannot be used: {_first_line(error)}",
            hint="look whether it runs and this user may write; one of a later hostcore cannot be used",
        ) from error
    return engine


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes."""
    with engine.connect().execution_options(writes=True) as connection, connection.begin():
        yield connection


def _shown(url: URL) -> str:
    """Return a URL for messages, without its passwords."""
    return url.difference_update_query(["password"]).render_as_string(hide_password=True)


def _absolute(url: URL) -> URL:
    """SQLite's file by its absolute path: connections are made later, wherever this process works then."""
    is_file = url.get_backend_name() == "sqlite" and url.database and url.database != ":memory:"
    return url.set(database=str(Path(url.database).absolute())) if is_file and url.database else url


class Readiness:
    """Cached check that jobs can be recorded.

    :param seconds: Lifetime of a result: probes cost the database next to nothing, however many there are.
    """

    def __init__(self, engine: Engine, *, seconds: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._asked = float("-inf")
        self._trouble: str | None = None

    def require(self) -> None:
        """See that jobs can be recorded.

        :raises DatabaseError: Why they cannot; it names no place of this machine.
        """
        with self._lock:
            if self._clock() - self._asked >= self._seconds:
                self._trouble = _trouble_of(self._engine)
                self._asked = self._clock()
            trouble = self._trouble
        if trouble is not None:
            raise DatabaseError(trouble, hint="no job is taken; those that run go on. See the service's log")


def _trouble_of(engine: Engine) -> str | None:
    try:
        with writing(engine) as connection:
            connection.execute(select(JOBS.c.run_id).limit(1))
            is_server = connection.dialect.name == "postgresql"
            if is_server and connection.exec_driver_sql("SHOW transaction_read_only").scalar_one() == "on":
                return "the database of the service can only be read"
    except SQLAlchemyError as error:
        file = engine.url.database if engine.dialect.name == "sqlite" else None
        if file is not None and not Path(file).exists():
            return "the file of the service's database is gone"
        LOG.warning("the database cannot be used: %s", _first_line(error))
        return "the database of the service does not answer, or cannot be written"
    return None


def _sqlite(url: URL) -> Engine:
    file = url.database or ""
    # Opened, never made: a connection that is opened after the file was deleted would make an empty one in its place.
    address = f"file:{quote(file)}?mode=rw"

    def _open() -> sqlite3.Connection:
        return sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS, check_same_thread=False)

    engine = create_engine(url, creator=_open)

    @event.listens_for(engine, "checkout")
    def _same_file(_connection: Any, record: Any, _proxy: Any) -> None:
        _require_same_file(file, record.info)  # if not, the pool opens the file anew

    @event.listens_for(engine, "commit")
    def _still_same_file(connection: Connection) -> None:
        _require_same_file(file, connection.info)

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, record: Any) -> None:
        record.info["file"] = _identity(file)
        connection.isolation_level = None  # the driver would begin transactions as it likes
        _write_ahead(connection)
        # In this mode a killed process loses nothing; a power cut could, without FULL.
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    @event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        # Now, not at the first write: a transaction that has read cannot wait for its turn any more.
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _require_same_file(file: str, info: Mapping[str, Any]) -> None:
    """See that a connection does not write into a file that was deleted, or that another has replaced.

    :raises DisconnectionError: It does.
    """
    if _identity(file) != info["file"]:
        raise DisconnectionError("the file of the database was deleted, or another lies in its place")


def _identity(file: str) -> tuple[int, int] | None:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log.

    Connections that switch a new file at once would wait for each other forever, so SQLite fails with SQLITE_BUSY,
    whatever their timeout: https://www.sqlite.org/c3ref/busy_handler.html.
    """
    end = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return


def _server(url: URL) -> Engine:
    return create_engine(url, pool_pre_ping=True, pool_size=10, max_overflow=20)


_BACKENDS: Final = {"sqlite": _sqlite, "postgresql": _server}


def _make_folder(url: URL) -> None:
    if url.database and url.get_backend_name() == "sqlite":
        file = Path(url.database)
        file.parent.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):  # of a folder, say: SQLite reports it
            file.touch()


def _migrate(engine: Engine) -> None:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    with writing(engine) as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _first_line(error: Exception) -> str:
    cause = error.__cause__ if isinstance(error, SQLAlchemyError) and error.__cause__ else error
    return str(cause).strip().partition("\n")[0] or type(cause).__name__
