"""The reporter ``trackio``: keeps a run in the database of Trackio, on this machine."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import attrs
from annotated_types import Gt, Le, MinLen

from hostcore_builtin_plugins.extras import require
from hostcore_hookspecs import Event, ReporterContext
from hostcore_trackers.history import History
from hostcore_trackers.job_parameters import config_of
from hostcore_trackers.library_process import LibraryProcess
from hostcore_trackers.submission import submitted_ms

#: What Trackio leaves out of the name of a project's database, and another project may lack alone.
_NOT_IN_PROJECTS: Final = re.compile(r"[^A-Za-z0-9_-]+")
#: The variables that have Trackio log somewhere else than on this machine.
_ELSEWHERE: Final = frozenset({"TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "TRACKIO_BUCKET_ID", "TRACKIO_DATASET_ID"})


class TrackioReporter:
    """Keeps one run of Trackio for a run, over all its attempts.

    An event is in the database before it counts as told. Each row has the number of its event as its identity, so that
    Trackio's database passes over what comes again.
    """

    @attrs.frozen(kw_only=True)
    class Settings:
        """Which project, in which folder."""

        project: Annotated[str, MinLen(1)] | None = attrs.field(
            default=None, metadata={"help": "The project.", "default": "the trainer's name"}
        )
        name: Annotated[str, MinLen(1)] | None = attrs.field(
            default=None, metadata={"help": "What Trackio calls the run.", "default": "the run's id"}
        )
        group: Annotated[str, MinLen(1)] | None = attrs.field(
            default=None, metadata={"help": "The group of runs that it is shown in."}
        )
        dir: Path | None = attrs.field(
            default=None,
            metadata={"help": "The folder of the databases.", "default": "`TRACKIO_DIR`, or Trackio's own"},
        )
        timeout_seconds: Annotated[float, Gt(0), Le(300)] = attrs.field(
            default=20.0, metadata={"help": "For each: starting Trackio, and each answer."}
        )

    def __init__(self, *, settings: Settings | None = None) -> None:
        require("trackio", extra="trackio")
        self._settings = settings or self.Settings()
        self._ctx: ReporterContext | None = None
        self._process: LibraryProcess | None = None
        #: What the database has; None: not known yet.
        self._history: History | None = None
        #: The last attempt whose job the database has.
        self._attempt: int | None = None

    def open(self, ctx: ReporterContext) -> None:
        """Start Trackio, in a process of its own, which imports it meanwhile.

        :raises OSError: It cannot be started.
        """
        self._ctx = ctx
        self._running()

    def report_event(self, event: Event) -> None:
        """Write what Trackio has a place for: metrics, checkpoints, and how attempts begin and end.

        :raises TransientError: The database cannot be written, or Trackio's process has died or does not answer.
        :raises FatalError: Trackio does not take the project's name.
        """
        assert self._ctx is not None  # open comes first
        process = self._running()
        if self._history is None:
            self._history = History(**process.call("history", **self._where(event)))
        if row := self._history.missing(event):
            config = self._config() if self._attempt != event.attempt else None
            process.call(
                "log",
                **self._where(event),
                name=self._settings.name or self._ctx.run_id,
                row=row,
                seq=event.seq,
                step=event.step or 0,
                time_ms=event.time_ms,
                config=config,
            )
            self._history.add(event.seq, step=event.step or 0, names=row)
            self._attempt = event.attempt

    def close(self) -> None:
        """End the process; everything is in the database."""
        process, self._process = self._process, None
        self._history = self._attempt = None
        if process is not None and process.is_usable:
            process.close()

    def _running(self) -> LibraryProcess:
        """The process; after a failure a new one, which finds out again what is in the database."""
        if self._process is None or not self._process.is_usable:
            assert self._ctx is not None  # open comes first
            self._history = self._attempt = None
            self._process = LibraryProcess(
                "hostcore_trackers.trackio.session",
                library="Trackio",
                environment=_environment(os.environ, self._settings.dir),
                log=Path(self._ctx.run_dir, "logs", "trackio.log"),
                timeout_seconds=self._settings.timeout_seconds,
            )
        return self._process

    def _where(self, event: Event) -> dict[str, str]:
        """Which run of Trackio it is."""
        assert self._ctx is not None
        return {
            "project": self._settings.project or _NOT_IN_PROJECTS.sub("-", self._ctx.job.trainer) or "hostcore",
            "run_id": f"{self._ctx.run_id}-{submitted_ms(self._ctx.run_dir, event):x}",
        }

    def _config(self) -> dict[str, Any]:
        assert self._ctx is not None
        return {**config_of(self._ctx.job), "_Group": self._settings.group}


def _environment(variables: Mapping[str, str], folder: Path | None) -> dict[str, str]:
    """Those of the supervisor; Trackio takes its folder from there, and would take other destinations."""
    kept = {name: value for name, value in variables.items() if name not in _ELSEWHERE}
    return kept if folder is None else {**kept, "TRACKIO_DIR": str(folder.absolute())}
