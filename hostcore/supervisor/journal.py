"""The journal of one attempt: the worker's events merged with the supervisor's, told to everybody, and remembered."""

from typing import TYPE_CHECKING, Any

import attrs

from hostcore.events.codec import CorruptLog
from hostcore.events.merger import Entry, EventLog, RankTail
from hostcore.events.writer import now_ms
from hostcore.runs.result import RunResult
from hostcore.supervisor.ending import is_end
from hostcore.supervisor.opening import Opening
from hostcore.supervisor.reporting import Audience, Failure
from hostcore_hookspecs import events
from hostcore_hookspecs.job import Job
from hostcore_hookspecs.reporter import ReporterContext

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hostcore_hookspecs.events import Event


class Journal:
    """Writes ``events.jsonl``, and knows what was written: where the run stands, and how the worker says it ended."""

    def __init__(self, opening: Opening, job: Job, audience: Audience) -> None:
        self._opening = opening
        self._job = job
        self._audience = audience
        self._log: EventLog | None = None
        self._tail = RankTail(
            opening.directory.rank_events(opening.attempt, 0),
            rank=0,
            attempt=opening.attempt,
        )
        before = RunResult.read(opening.directory.result)
        #: Finished steps, as far as events told of them; to begin with, where the attempt before ended.
        self.step = before.step if before else 0
        self.epoch = before.epoch if before else 0
        #: When the step last advanced, in milliseconds since 1970.
        self.last_progress_ms = now_ms()
        #: How many events the worker has written.
        self.signs_of_life = 0
        #: Whether its training has begun.
        self.is_training = False
        #: The metrics recorded last.
        self.metrics: Mapping[str, float | None] = before.metrics if before else {}
        #: The best value that a checkpoint was kept for: metric, value, step.
        self.best: Mapping[str, Any] | None = before.best if before else None
        #: The step of the checkpoint saved last, or begun from.
        self.checkpoint_step: int | None = None
        #: Who asked first to stop.
        self.requested_by: str | None = None
        #: The worker's terminal event, held back until the worker is gone.
        self.said: Entry | None = None

    @property
    def is_open(self) -> bool:
        """Whether anything can be written yet."""
        return self._log is not None

    def open(self) -> None:
        """Open the log, where the attempt before left it, and the reporters."""
        log = EventLog(
            self._opening.directory.events,
            run_id=self._opening.directory.run_id,
            attempt=self._opening.attempt,
        )
        self._log = log
        context = ReporterContext(
            run_id=log.run_id,
            attempt=log.attempt,
            job=self._job,
            run_dir=str(self._opening.directory.path),
            last_seq=log.last_seq,
        )
        self._note_failures(self._audience.open(context))
        self._merge_earlier(log)

    def _merge_earlier(self, log: EventLog) -> None:
        """Move into the log what workers of earlier attempts wrote after their supervisor had died."""
        for attempt in range(1, self._opening.attempt):
            path = self._opening.directory.rank_events(attempt, 0)
            try:
                for entry in RankTail(path, rank=0, attempt=attempt, after=log.merged.get((0, attempt))).read():
                    self.write(entry)
            except CorruptLog as error:
                lost = f"the rest of {path.name} is lost: {error.message}"
                self.note(events.Warning(code="events.corrupt", message=lost))

    def write(self, entry: Entry) -> None:
        """Number an event, write it, and tell everybody."""
        assert self._log is not None
        event = self._log.append(entry)
        if isinstance(entry.payload, events.CheckpointSaved):
            self._log.sync()
        self._note_failures(self._audience.tell(event))

    def note(self, payload: events.Payload) -> None:
        """Write an event of the supervisor's own, at the step where the run stands."""
        self.write(self._own(payload))

    def merge(self) -> None:
        """Move the worker's new events into the log."""
        for entry in self._tail.read():
            self._remember(entry)
            if not is_end(entry):
                self.write(entry)

    def recall(self, history: "Iterable[Event]") -> None:
        """Take up where the log of earlier attempts leaves the run."""
        for event in history:
            self.step = self.step if event.step is None else event.step
            self.epoch = self.epoch if event.epoch is None else event.epoch
            if isinstance(event.payload, events.Metrics | events.Validation | events.Test):
                self.metrics = {**self.metrics, **event.payload.metrics}

    def end(self, payload: events.Payload) -> None:
        """Write the terminal event, and close everything."""
        self.write(attrs.evolve(self.said, payload=payload) if self.said else self._own(payload))
        self.close()

    def close(self) -> None:
        """Close reporters and log."""
        assert self._log is not None
        self._note_failures(self._audience.close())
        log, self._log = self._log, None
        log.close()

    def _own(self, payload: events.Payload) -> Entry:
        return Entry(payload=payload, step=self.step, epoch=self.epoch)

    def _remember(self, entry: Entry) -> None:
        self.signs_of_life += 1
        if isinstance(entry.payload, events.CheckpointSaved):
            self.checkpoint_step = entry.step
            for metric, value in entry.payload.best.items():
                self.best = {"metric": metric, "value": value, "step": entry.step}
            if entry.step is not None and entry.step <= self.step:
                return  # it was written while the training went on
        if entry.step is not None and entry.step != self.step:
            self.step, self.last_progress_ms = entry.step, now_ms()
        self.epoch = self.epoch if entry.epoch is None else entry.epoch
        if isinstance(entry.payload, events.Metrics | events.Validation | events.Test):
            self.metrics = {**self.metrics, **entry.payload.metrics}
        elif isinstance(entry.payload, events.RunResumed):
            self.checkpoint_step = entry.step
        elif isinstance(entry.payload, events.RunStarted):
            self.is_training = True
        elif isinstance(entry.payload, events.StopRequested):
            self.requested_by = self.requested_by or entry.payload.requested_by
        elif is_end(entry):
            self.said = entry

    def _note_failures(self, failures: list[Failure]) -> None:
        for failure in failures:
            self.note(events.ReporterFailed(reporter=failure.label, message=failure.message))
