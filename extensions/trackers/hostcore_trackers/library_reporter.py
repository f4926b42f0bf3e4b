"""A reporter whose library works in a process of its own, for trackers that keep a run as rows of values.

Another library needs a session, which its process runs, with a method ``history`` that returns the tracker's rows;
and a subclass with its settings, which identifies the tracker's run, and sends the session each row.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from hostcore_hookspecs import Event, ReporterContext
from hostcore_trackers.history import Row, TrackerHistory
from hostcore_trackers.library_process import LibraryProcess


class LibraryReporter(ABC):
    """Sends a tracker each row once: over attempts, in a replay, and after a process that has died.

    :param timeout_seconds: For starting the process, and for each of its answers.
    """

    #: The library, for messages; in lower case it is the name of its log.
    LIBRARY: ClassVar[str]
    #: The module of its session, which the process runs.
    SESSION: ClassVar[str]

    def __init__(self, *, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._opened: ReporterContext | None = None
        self._process: LibraryProcess | None = None
        #: What the tracker has; None: the process has not been asked yet.
        self._found: TrackerHistory | None = None
        #: The attempt that the process last began; None: none yet.
        self._attempt: int | None = None

    def open(self, ctx: ReporterContext) -> None:
        """Start the process, which imports the library meanwhile.

        :raises OSError: It cannot be started.
        """
        self._opened = ctx
        self._running()

    def report_event(self, event: Event) -> None:
        """Report metrics, checkpoints, and the begin and end of attempts; other events are ignored.

        :raises TransientError: The process has died or does not answer, or the library has failed.
        :raises FatalError: The session has failed in a way that another try cannot mend.
        """
        history = self._history(event)
        if row := history.missing(event):
            self._tell(event, row)
            history.add(event.seq, step=event.step or 0, names=row)

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        self._found = self._attempt = None
        if process is not None and process.is_usable:
            process.close()

    @abstractmethod
    def _where(self, event: Event) -> dict[str, str]:
        """Return the arguments of the session's ``history``, which identify the tracker's run."""

    @abstractmethod
    def _tell(self, event: Event, row: Row) -> None:
        """Have the session add a row; it is there when this returns."""

    @abstractmethod
    def _environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The variables of the process, made from those of the supervisor."""

    @property
    def _ctx(self) -> ReporterContext:
        assert self._opened is not None  # open comes first
        return self._opened

    def _history(self, event: Event) -> TrackerHistory:
        """Return the tracker's history of an event's run."""
        process = self._running()
        if self._found is None:
            self._found = TrackerHistory(**process.call("history", **self._where(event)))
        return self._found

    def _call(self, method: str, **arguments: Any) -> Any:
        """Call a method of the session."""
        return self._running().call(method, **arguments)

    def _running(self) -> LibraryProcess:
        """The process; after a failure a new one, which finds out again what the tracker has."""
        if self._process is None or not self._process.is_usable:
            self._found = self._attempt = None
            self._process = LibraryProcess(
                self.SESSION,
                library=self.LIBRARY,
                environment=self._environment(os.environ),
                log=Path(self._ctx.run_dir, "logs", f"{self.LIBRARY.lower()}.log"),
                timeout_seconds=self._timeout_seconds,
            )
        return self._process
