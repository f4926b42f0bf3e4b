"""The reporter ``tensorboard``: writes event files that TensorBoard shows."""

from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from hostcore_builtin_plugins.extras import require
from hostcore_builtin_plugins.messages import message_of
from hostcore_hookspecs import Event, ReporterContext
from hostcore_hookspecs.events import CheckpointSaved, Metrics, RunStarted, RunSucceeded, SampleSaved
from hostcore_trackers.job_parameters import parameters_of
from hostcore_trackers.scalars import scalars_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensorboard.compat.proto.event_pb2 import Event as Record
    from tensorboard.compat.proto.summary_pb2 import Summary

    from hostcore_trackers.tensorboard_files import EventFile

#: In the run directory, if the settings name no path.
_FOLDER = "tensorboard"


class TensorBoardReporter:
    """Writes a file for each attempt: curves, the job with its parameters, and what happened, as text.

    Every event is written before it counts as reported. TensorBoard itself drops the points that a resumed run
    takes back: the file of an attempt has the step from which on those of the files before are void.
    """

    @attrs.frozen(kw_only=True)
    class Settings:
        """Folder of the files."""

        path: Path | None = attrs.field(
            default=None,
            metadata={
                "help": "A folder that many runs share; each has one in it, named by its id.",
                "default": f"`{_FOLDER}` in the run directory",
            },
        )

    def __init__(self, *, settings: Settings | None = None) -> None:
        require("tensorboard", extra="tensorboard")
        self._settings = settings or self.Settings()
        self._ctx: ReporterContext | None = None
        self._folder = Path()
        self._file: EventFile | None = None
        #: The last event that is in the files.
        self._last_seq = 0
        #: By tag: the step and the text of the last one.
        self._texts: dict[str, tuple[int, str]] = {}

    def open(self, ctx: ReporterContext) -> None:
        """Find out what is in the files already.

        :raises OSError: If the folder cannot be read.
        """
        from hostcore_trackers.tensorboard_files import last_seq

        self._ctx = ctx
        path = self._settings.path
        self._folder = Path(ctx.run_dir, _FOLDER) if path is None else path / ctx.run_id
        # A new run has its numbers before it, even where another of the same name has left files.
        self._last_seq = last_seq(self._folder) if ctx.last_seq else 0
        self._texts = {}

    def report_event(self, event: Event) -> None:
        """Write what TensorBoard can show of the event, unless the files have it.

        :raises OSError: If it could not be written. The next try begins a new file.
        """
        if event.seq <= self._last_seq:
            return
        if records := self._records(event):
            self._write(records)
        self._last_seq = event.seq

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _records(self, event: Event) -> "list[Record]":
        from hostcore_trackers import tensorboard_files as tb

        if isinstance(event.payload, RunStarted):
            # Points of earlier attempts after the checkpoint, or all of them: this one takes those steps again.
            begin = event.step + 1 if event.step else 0
            return [tb.purge(event.time_ms, step=begin), tb.record(event, self._job(event))]
        values = [tb.scalar(name, value) for name, value in scalars_of(event).items()]
        if not isinstance(event.payload, Metrics) and (message := message_of(event)):
            values.append(self._text(event, message))
        if isinstance(event.payload, RunSucceeded):
            values.append(tb.session_end(time_ms=event.time_ms))
        return [tb.record(event, values)] if values else []

    def _job(self, event: Event) -> "Sequence[Summary.Value]":
        from hostcore_trackers import tensorboard_files as tb

        assert self._ctx is not None  # open comes first
        parameters = parameters_of(self._ctx.job)
        return [
            tb.markdown("job", tb.table({"run_id": event.run_id, "attempt": event.attempt, **parameters})),
            tb.session_start(parameters, name=event.run_id, time_ms=event.time_ms),
        ]

    def _text(self, event: Event, message: str) -> "Summary.Value":
        """A message, after those of the same kind and step: TensorBoard keeps one text of a tag for each step."""
        from hostcore_trackers import tensorboard_files as tb

        tag = _tag_of(event)
        step, before = self._texts.get(tag, (-1, ""))
        item = "- " + message.replace("\n", "\n  ")
        content = f"{before}\n{item}" if step == (event.step or 0) and before else item
        self._texts[tag] = (event.step or 0, content)
        return tb.markdown(tag, content)

    def _write(self, records: "Sequence[Record]") -> None:
        from hostcore_trackers.tensorboard_files import EventFile

        file, self._file = self._file or EventFile(self._folder), None
        file.append(records)
        self._file = file  # still open, since that went well


def _tag_of(event: Event) -> str:
    match event.payload:
        case CheckpointSaved():
            return "checkpoints"
        case SampleSaved():
            return "samples"
        case _:
            return "events"
