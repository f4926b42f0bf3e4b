"""The reporter: what hostcore calls, in the order it calls it."""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Annotated

import attrs
from annotated_types import Gt

from hostcore_hookspecs import Event, FatalError, ReporterContext, TransientError

TABLES = """
CREATE TABLE IF NOT EXISTS runs (run_id TEXT PRIMARY KEY, trainer TEXT, state TEXT, step INTEGER);
CREATE TABLE IF NOT EXISTS metrics (
    run_id TEXT, seq INTEGER, name TEXT, step INTEGER, value REAL, PRIMARY KEY (run_id, seq, name)
);
"""

#: Errors that may be over the next time: another process writes, the disk is full or does not answer.
PASSING = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}


class SqliteReporter:
    """Writes the metrics of all runs into one SQLite file."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """Settings of a job beside ``"use": "sqlite"``. hostcore checks types and bounds before the run starts."""

        #: The file; made, with its folder, if it is not there.
        path: Path = Path("runs.db")
        #: How long to wait for another program that is writing to the file, in seconds.
        lock_seconds: Annotated[float, Gt(0)] = 5.0

    def __init__(self, *, settings: Settings) -> None:
        # Only what cannot fail: this is called in another thread than all the rest, before the run starts.
        self._settings = settings
        self._opened = ExitStack()  # what close() is to close, if there is anything

    def open(self, ctx: ReporterContext) -> None:
        """Open the file. Called once per attempt, and again if it raises."""
        settings = self._settings
        with self._errors():
            settings.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(settings.path, timeout=settings.lock_seconds)
            self._database = self._opened.enter_context(closing(connection))
            self._database.executescript(TABLES)
        self._trainer = ctx.job.trainer

    def report_event(self, event: Event) -> None:
        """Write an event. It counts as reported when this returns; a repeated event replaces the first one."""
        with self._errors(), self._database:  # one transaction: the event is written as a whole or not at all
            if event.seq == 1:  # a new run may have the name of an old one
                self._forget(event.run_id)
            self._write_run(event)
            metrics = getattr(event.payload, "metrics", {})  # metrics, validation and test have some
            rows = [(event.run_id, event.seq, name, event.step, value) for name, value in metrics.items()]
            self._database.executemany("REPLACE INTO metrics VALUES (?, ?, ?, ?, ?)", rows)

    def close(self) -> None:
        """Close the file."""
        self._opened.close()

    def _write_run(self, event: Event) -> None:
        ended = event.name.startswith("run_") and event.name not in ("run_submitted", "run_started", "run_resumed")
        state = event.name.removeprefix("run_") if ended else "running"
        row = (event.run_id, self._trainer, state, event.step)
        self._database.execute("REPLACE INTO runs VALUES (?, ?, ?, ?)", row)

    def _forget(self, run_id: str) -> None:
        for table in ("runs", "metrics"):
            self._database.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))  # noqa: S608 - our own names

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert SQLite's errors into transient and fatal ones."""
        path = str(self._settings.path)
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # the upper bits are details
            if code in PASSING:
                raise TransientError(f"cannot write to {path}: {error}", file=path) from error
            hint = "name another file in the reporter's settings: path"
            raise FatalError(f"cannot write to {path}: {error}", file=path, hint=hint) from error
