"""``cursors/<name>.json``: how far a reporter has come in the event log."""

import os
import threading
from pathlib import Path
from typing import Any

import attrs
import orjson

from hostcore.events.strict_json import dump
from hostcore.events.writer import now_ms
from hostcore.supervisor.delivery.log_view import LogView


@attrs.frozen(kw_only=True)
class Cursor:
    """A place in the event log: behind the last event that was taken."""

    #: Of that event; 0 before the first.
    seq: int = 0
    #: In bytes.
    offset: int = 0


class CursorFile:
    """The file of one cursor. Written by one process, by the thread that is there just then.

    :param identity: Whose cursor it is.
    """

    def __init__(self, path: Path, *, identity: str) -> None:
        self.path = path
        self._identity = identity
        self._lock = threading.Lock()
        self._written: Cursor | None = None

    def read(self, log: LogView) -> tuple[Cursor, str | None]:
        """Where to go on.

        :return: A place in this log, and what was wrong with the file, if that is why it is the beginning.
        """
        try:
            found = orjson.loads(self.path.read_bytes())
        except FileNotFoundError:
            return Cursor(), None
        except (OSError, orjson.JSONDecodeError) as error:
            return Cursor(), f"it cannot be read: {error}"
        cursor, problem = self._understood(found)
        if problem is None:
            problem = _misfit(cursor, log)
        return (Cursor(), problem) if problem else (cursor, None)

    def _understood(self, found: Any) -> tuple[Cursor, str | None]:
        if not isinstance(found, dict) or not all(_is_count(found.get(key)) for key in ("seq", "offset")):
            return Cursor(), "it is damaged"
        if found.get("reporter") != self._identity:
            return Cursor(), f"it belongs to {found.get('reporter')}"
        return Cursor(seq=found["seq"], offset=found["offset"]), None

    def write(self, cursor: Cursor) -> None:
        """Replace the file, if it says something else.

        Not synced to the disk: a cursor that a power cut takes back only means that events are told again.

        :raises OSError: When it cannot be written, or its folder is gone.
        """
        with self._lock:
            if cursor == self._written:
                return
            temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
            content = {**attrs.asdict(cursor), "reporter": self._identity, "time_ms": now_ms()}
            try:
                temporary.write_bytes(dump(content))
                temporary.replace(self.path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            self._written = cursor


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _misfit(cursor: Cursor, log: LogView) -> str | None:
    """Why a cursor is not one of this log; None if it is."""
    if cursor.offset > log.size:
        return f"it points behind the end of {log.path.name}"
    if cursor.offset and not log.ends_line(cursor.offset):
        return f"it points into a line of {log.path.name}"
    if log.seq_before(cursor.offset) != cursor.seq:
        return f"it does not fit {log.path.name}"
    return None
