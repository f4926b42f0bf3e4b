"""Trackio, in the process that the reporter ``trackio`` calls (``python -m hostcore_trackers.trackio.session``).

``trackio.log`` writes from a thread, half a second later, and drops what it cannot write. What that thread calls is
called here, so that a row is in the database, or an error is raised, when the call returns.
"""

from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import attrs
import orjson
from trackio.sqlite_storage import SQLiteStorage
from trackio.utils import RESERVED_KEYS

from hostcore_hookspecs import FatalError
from hostcore_trackers.history import TrackerHistory
from hostcore_trackers.library_process import serve


class TrackioSession:
    """The databases of one folder."""

    def history(self, *, project: str, run_id: str) -> dict[str, Any]:
        """Return the database's history of a run: the fields of a :class:`TrackerHistory`.

        :raises FatalError: It cannot have a project of this name.
        """
        try:
            SQLiteStorage.validate_project_name(project)
        except ValueError as error:
            raise FatalError(str(error), hint="name another project in the reporter's settings") from error
        found = TrackerHistory()
        path = SQLiteStorage.init_db(project)
        query = "SELECT log_id, step, metrics FROM metrics WHERE run_id = ? AND log_id LIKE ?"
        with SQLiteStorage._get_connection(path) as database, closing(database.cursor()) as cursor:
            for log_id, step, metrics in cursor.execute(query, (run_id, _mark(run_id, "%"))):
                found.add(int(log_id.rpartition(":")[2]), step=step, names=map(_told, orjson.loads(metrics)))
        return attrs.asdict(found)

    def log(
        self,
        *,
        project: str,
        name: str,
        run_id: str,
        row: Mapping[str, Any],
        seq: int,
        step: int,
        time_ms: int,
        config: dict[str, Any] | None,
    ) -> None:
        """Add a row, unless it is there.

        :param config: Of the run, in place of what the database has; None: that stays.
        :raises sqlite3.Error: It cannot be written.
        """
        SQLiteStorage.bulk_log(
            project,
            name,
            [{_allowed(key): value for key, value in row.items()}],
            steps=[step],
            timestamps=[datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()],
            config=config,
            log_ids=[_mark(run_id, seq)],
            run_id=run_id,
        )

    def end(self) -> None:
        """Nothing is left to be done."""


def _mark(run_id: str, seq: int | str) -> str:
    """Return the id of an event's row, unique in the project."""
    return f"hostcore:{run_id}:{seq}"


def _allowed(name: str) -> str:
    """A metric's name as ``trackio.log`` has it: some are its own."""
    return f"__{name}" if name in RESERVED_KEYS or name.startswith("__") else name


def _told(name: str) -> str:
    """The metric whose name in the database it is."""
    return name.removeprefix("__")


if __name__ == "__main__":
    serve(TrackioSession())
