"""The reporter ``job-index``: a file of all jobs, with a line when a run is submitted and one when it ends.

The last line of a job is what counts. The file is for other programs: no command of hostcore reads it, and
``hostcore replay RUN --reporter job-index`` writes the lines of a run anew.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore_builtin_plugins.jsonl_file import JsonlFile
from hostcore_builtin_plugins.trn_events import TrnSubmission, timestamp
from hostcore_hookspecs import Event, ReporterContext
from hostcore_hookspecs.events import ENDS, RunSubmitted

#: The exit code of ``hostcore run`` by how the run ended.
_EXIT_CODES: Final = {"succeeded": 0, "failed": 1, "preempted": 75, "cancelled": 130}


class JobIndexReporter:
    """Appends what became of a job to a file that many runs share."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """The file, and facts that no event has."""

        path: Path | None = attrs.field(
            default=None,
            metadata={
                "help": "The file to append to; made, with its folder, if it is not there.",
                "default": "`index.jsonl` beside the run directory",
            },
        )
        config_path: Path | None = attrs.field(
            default=None,
            metadata={
                "reads": True,
                "help": "The job file, as the lines name it.",
                "default": "`config/run.json` in the run directory",
            },
        )
        profile: str | None = attrs.field(default=None, metadata={"help": "The profile, as the lines name it."})

    def __init__(self, *, settings: Settings | None = None) -> None:
        self._settings = settings or self.Settings()
        self._file: JsonlFile | None = None
        #: The last line of the job; empty before the first.
        self._line: Mapping[str, Any] = {}

    def open(self, ctx: ReporterContext) -> None:
        """See that the file can be written, and find what it has of the job.

        :raises FatalError: If its path is none that can be written.
        :raises OSError: If it cannot be opened now.
        """
        settings = self._settings
        file = JsonlFile(settings.path or Path(ctx.run_dir).with_name("index.jsonl"))
        file.open()
        try:
            # A new run has nothing in it yet, even where one of the same name was deleted.
            last = file.last(lambda line: _is_of(line, ctx.run_id)) if ctx.last_seq else None
        finally:
            file.close()
        submission = TrnSubmission.of(ctx, config_path=settings.config_path, profile=settings.profile)
        self._line = last or {
            "job_id": ctx.run_id,
            "submitted_at": None,
            "config_path": submission.config_path,
            "weights": submission.weights,
            "profile": submission.profile,
            "devices": [],
            "log_path": submission.log_path,
        }
        self._file = file

    def report_event(self, event: Event) -> None:
        """Append a line if the run was submitted or has ended, unless the file has it.

        :raises OSError: If it could not be written.
        """
        if self._file is None or event.seq <= self._line.get("seq", 0):
            return
        payload = event.payload
        if isinstance(payload, RunSubmitted):
            news = {
                "submitted_at": self._line["submitted_at"] or timestamp(event.time_ms),
                "devices": list(payload.devices),
                "status": "submitted",
                "exit_code": None,
                "ended_at": None,
            }
        elif event.name in ENDS:
            status = event.name.removeprefix("run_")
            news = {"status": status, "exit_code": _EXIT_CODES[status], "ended_at": timestamp(event.time_ms)}
        else:
            return
        line = {**self._line, **news, "attempt": event.attempt, "seq": event.seq}
        self._file.open(alone=True)  # for each line anew: what others have left unfinished since is seen
        try:
            self._file.append(line)
            self._file.sync()
        finally:
            self._file.close()
        self._line = line

    def close(self) -> None:
        """Write nothing any more."""
        self._file = None


def _is_of(line: Mapping[str, Any], run_id: str) -> bool:
    keys = {"submitted_at", "config_path", "weights", "profile", "devices", "log_path", "status"}
    return line.get("job_id") == run_id and isinstance(line.get("seq"), int) and keys <= line.keys()
