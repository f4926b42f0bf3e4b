"""The reporter ``jsonl``: appends every event to a file, a line of strict JSON each.

Events come at least once. In a file each is written once: what it holds of the run is looked up when it is opened.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from hostcore_builtin_plugins.jsonl_file import JsonlFile
from hostcore_builtin_plugins.trn_events import TrnSubmission, in_trn_shape
from hostcore_hookspecs import Event, ReporterContext
from hostcore_hookspecs.events import ENDS


class JsonlReporter:
    """Appends events to a file, which may have those of earlier attempts and of other runs."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """The file, and its content."""

        path: Path = attrs.field(metadata={"help": "The file to append to; made, with its folder, if it is not there."})
        format: Literal["hostcore", "trn"] = attrs.field(
            default="hostcore",
            metadata={"help": "The shape of the lines: `hostcore`, that of `logs/events.jsonl`, or `trn`."},
        )
        config_path: Path | None = attrs.field(
            default=None,
            metadata={
                "reads": True,
                "help": "Format `trn`: the job file, as `job_submitted` names it.",
                "default": "`config/run.json` in the run directory",
            },
        )
        profile: str | None = attrs.field(
            default=None, metadata={"help": "Format `trn`: the profile, as `job_submitted` names it."}
        )

    def __init__(self, *, settings: Settings) -> None:
        self._settings = settings
        self._file = JsonlFile(settings.path)
        self._submission: TrnSubmission | None = None
        self._run_dir = ""
        self._last_seq = 0

    def open(self, ctx: ReporterContext) -> None:
        """Open the file, and find where the last attempt stopped writing.

        :raises FatalError: If its path is none that can be written.
        :raises OSError: If it cannot be opened now.
        """
        settings = self._settings
        self._submission = TrnSubmission.of(ctx, config_path=settings.config_path, profile=settings.profile)
        self._run_dir = ctx.run_dir
        self._last_seq = 0
        self._file.open()
        # A new run has its numbers before it, even where a file of the same name has some.
        if ctx.last_seq and (last := self._file.last(lambda line: _is_of(line, ctx.run_id))):
            self._last_seq = last["seq"]

    def report_event(self, event: Event) -> None:
        """Append the event, unless the file has it.

        :raises OSError: If it could not be written.
        """
        if not self._file.is_open or event.seq <= self._last_seq:
            return
        self._file.append(self._document(event))
        self._last_seq = event.seq
        if event.name in ENDS:
            self._file.sync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _document(self, event: Event) -> Mapping[str, Any]:
        if self._settings.format == "trn" and self._submission is not None:
            return in_trn_shape(event, self._submission, run_dir=self._run_dir)
        return event.as_dict()


def _is_of(line: Mapping[str, Any], run_id: str) -> bool:
    """Return True if a line is an event of a run, in either format."""
    return line.get("run_id", line.get("job_id")) == run_id and isinstance(line.get("seq"), int)
