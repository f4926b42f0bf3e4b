"""Cached contents of runs' event logs: each request reads only the new lines."""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import attrs

from hostcore.runs.directory import RunDirectory
from hostcore.runs.history import History

#: Runs whose histories are kept: those that were looked at last.
_RUNS: Final = 64
#: What one request reads of a log, in bytes: a second's work. What it shows of a longer one, the next bring up to date.
_MOST_BYTES: Final = 256 << 20


@attrs.define(eq=False)
class _Kept:
    history: History
    #: Held while it is read.
    lock: threading.Lock = attrs.field(factory=threading.Lock)
    #: Which file was read.
    file: tuple[int, int] | None = None


class Histories:
    """The histories of the runs that were looked at last.

    :param runs: How many are kept.
    """

    def __init__(self, runs: int = _RUNS) -> None:
        self._runs = runs
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def of(self, directory: RunDirectory) -> Iterator[History]:
        """The history of a run, which no other thread reads meanwhile. After an error it is begun again."""
        kept = self._found(directory)
        with kept.lock:
            file = _file(directory, kept.history.offset)
            if kept.file not in (None, file):  # the log is not the one that was read
                kept.history = _new(directory)
            kept.file = file
            try:
                yield kept.history
            except BaseException:
                kept.history = _new(directory)
                raise

    def _found(self, directory: RunDirectory) -> _Kept:
        with self._lock:
            kept = self._kept.pop(directory.run_id, None) or _Kept(_new(directory))
            self._kept[directory.run_id] = kept  # the newest
            if len(self._kept) > self._runs:
                self._kept.popitem(last=False)
            return kept


def _new(directory: RunDirectory) -> History:
    return History(directory, most=_MOST_BYTES)


def _file(directory: RunDirectory, offset: int) -> tuple[int, int] | None:
    """Return the identity of the log file; None if there is none, or it is shorter than ``offset``."""
    try:
        found = directory.events.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if found.st_size >= offset else None
