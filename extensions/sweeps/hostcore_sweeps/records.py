"""The records of a sweep, ``records.jsonl``: what was decided and what has happened, one line each, in this order.

One process at a time appends to it, the driver, which holds a lock on it as long as it lives. A decision is on the disk
before anything is done about it; what is done may be done again. Everything that is known of a sweep follows from its
``sweep.json`` and this file: see :mod:`hostcore_sweeps.status`.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import attrs
import cattrs
import orjson

from hostcore.events.folder_sync import sync_folder
from hostcore.events.reader import GrowingLog
from hostcore.events.strict_json import dump
from hostcore.events.writer import append_lines, now_ms
from hostcore.runs.documents import CorruptDocument
from hostcore.runs.lease import ProcessIdentity
from hostcore_hookspecs.errors import HostcoreError
from hostcore_sweeps.folder import SweepUnwritable, writing

#: How a trial may end. ``failed`` ones have no value; ``pruned`` ones have that of the step at which they were.
TrialState = Literal["complete", "pruned", "failed"]
#: A reader holds the lock for an instant.
_LOCK_SECONDS: Final = 2.0


@attrs.frozen(kw_only=True)
class SessionStarted:
    """A driver began."""

    process: ProcessIdentity


@attrs.frozen(kw_only=True)
class SessionEnded:
    """A driver ended by itself."""

    #: ``finished``: nothing is left to do. ``stopped``: trials are paused. ``limit``: a limit ended it.
    status: Literal["finished", "stopped", "limit"]
    reason: str


@attrs.frozen(kw_only=True)
class TrialSampled:
    """The values of a trial were chosen; from now on it exists."""

    number: int
    run_id: str
    values: Mapping[str, Any]
    #: The trial whose last checkpoint its run begins from; None: it begins at step 0.
    parent: int | None = None


@attrs.frozen(kw_only=True)
class TrialStarted:
    """The run of a trial is about to be started, or to go on."""

    number: int


@attrs.frozen(kw_only=True)
class TrialReported:
    """Metrics of the objectives at a step; null for one that is not finite."""

    number: int
    step: int
    values: Mapping[str, float | None]


@attrs.frozen(kw_only=True)
class PruneDecided:
    """The pruner ends a trial; what comes after the step does not count."""

    number: int
    step: int
    reason: str


@attrs.frozen(kw_only=True)
class TrialEnded:
    """Nothing more happens to a trial."""

    number: int
    state: TrialState
    #: Of the objectives, by metric; empty if it failed.
    values: Mapping[str, float]
    #: Finished steps that count.
    step: int
    reason: str | None = None


Record = SessionStarted | SessionEnded | TrialSampled | TrialStarted | TrialReported | PruneDecided | TrialEnded
_KINDS: Final[Mapping[str, type[Record]]] = {
    "session_started": SessionStarted,
    "session_ended": SessionEnded,
    "trial_sampled": TrialSampled,
    "trial_started": TrialStarted,
    "trial_reported": TrialReported,
    "prune_decided": PruneDecided,
    "trial_ended": TrialEnded,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}
_converter = cattrs.Converter()
_converter.register_structure_hook(float | None, lambda value, _: None if value is None else float(value))


class SweepBusy(HostcoreError):
    """Another process drives this sweep."""

    code = "sweep.busy"


def read_records(path: Path) -> Iterator[tuple[int, Record]]:
    """All records, each with its time in milliseconds since 1970; none if there is no file.

    A torn last line is passed over, and so are records of a kind that a newer version has written.

    :raises CorruptDocument: When a whole line is no record.
    """
    for line in GrowingLog(path).read():
        try:
            found = orjson.loads(line)
            kind = _KINDS.get(found.pop("record"))
            if kind is not None:
                yield found.pop("time_ms"), _converter.structure(found, kind)
        except Exception as error:
            raise CorruptDocument(f"not a record of a sweep: {line!r:.200}", file=str(path)) from error


class RecordLog:
    """The records, held by this process.

    :param path: Created if missing.
    :raises SweepBusy: When another process holds it.
    :raises SweepUnwritable: When it cannot be opened.
    """

    def __init__(self, path: Path, *, clock: Callable[[], int] = now_ms) -> None:
        self._path = path
        self._clock = clock
        with writing(path):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            self._hold(path)
            self._drop_torn_line(path)
        except BaseException:
            os.close(self._descriptor)
            raise
        sync_folder(path.parent)

    def _hold(self, path: Path) -> None:
        due = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= due:
                    raise SweepBusy(
                        "another process drives this sweep",
                        file=str(path),
                        hint=f"`hostcore sweep status {path.parent}` shows how it goes",
                    ) from None
                time.sleep(0.02)
            else:
                return

    def _drop_torn_line(self, path: Path) -> None:
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):  # its writer was killed
            os.ftruncate(self._descriptor, whole)

    def append(self, record: Record) -> int:
        """Append a record; it is on the disk after :meth:`sync`. Its time, in milliseconds since 1970.

        :raises SweepUnwritable: When the disk is full.
        """
        now = self._clock()
        line = dump({"record": _NAMES[type(record)], "time_ms": now, **attrs.asdict(record)})
        with self._file_errors():
            append_lines(self._descriptor, line)
        return now

    def sync(self) -> None:
        """Bring what was appended to the disk.

        :raises SweepUnwritable: When the disk refuses.
        """
        with self._file_errors():
            os.fsync(self._descriptor)

    @contextmanager
    def _file_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SweepUnwritable(
                f"the records of the sweep cannot be written: {error.strerror or error}",
                file=str(self._path),
                hint="make room on its disk; its trials go on, and so does `hostcore sweep` then",
            ) from error

    def close(self) -> None:
        """Let go of it."""
        os.close(self._descriptor)
