"""The reporter ``trackio``: keeps a run in the database of Trackio, on this machine."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import attrs
from annotated_types import Gt, Le, MinLen

from hostcore_builtin_plugins.extras import require
from hostcore_hookspecs import Event
from hostcore_trackers.history import Row
from hostcore_trackers.job_parameters import config_of
from hostcore_trackers.library_reporter import LibraryReporter
from hostcore_trackers.submission import submitted_ms

#: What Trackio leaves out of the name of a project's database, and another project may lack alone.
_NOT_IN_PROJECTS: Final = re.compile(r"[^A-Za-z0-9_-]+")
#: The variables that have Trackio log somewhere else than on this machine.
_ELSEWHERE: Final = frozenset({"TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "TRACKIO_BUCKET_ID", "TRACKIO_DATASET_ID"})


class TrackioReporter(LibraryReporter):
    """Keeps one run of Trackio for a run, over all its attempts.

    An event is in the database before it counts as reported. Each row has the number of its event as its identity, so
    that Trackio's database ignores an event that comes again.
    """

    LIBRARY = "Trackio"
    SESSION = "hostcore_trackers.trackio.session"

    @attrs.frozen(kw_only=True)
    class Settings:
        """Project and folder."""

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
        super().__init__(timeout_seconds=self._settings.timeout_seconds)

    def _where(self, event: Event) -> dict[str, str]:
        return {
            "project": self._settings.project or _NOT_IN_PROJECTS.sub("-", self._ctx.job.trainer) or "hostcore",
            "run_id": f"{self._ctx.run_id}-{submitted_ms(self._ctx.run_dir, event):x}",
        }

    def _tell(self, event: Event, row: Row) -> None:
        is_told = self._attempt == event.attempt
        self._call(
            "log",
            **self._where(event),
            name=self._settings.name or self._ctx.run_id,
            row=row,
            seq=event.seq,
            step=event.step or 0,
            time_ms=event.time_ms,
            config=None if is_told else {**config_of(self._ctx.job), "_Group": self._settings.group},
        )
        self._attempt = event.attempt

    def _environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Those of the supervisor; Trackio takes its folder from there, and would take other destinations."""
        kept = {name: value for name, value in variables.items() if name not in _ELSEWHERE}
        folder = self._settings.dir
        return kept if folder is None else {**kept, "TRACKIO_DIR": str(folder.absolute())}
