"""The journal of one attempt: the workers' events merged with the supervisor's, announced, and remembered."""

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from hostcore.events.codec import CorruptLog
from hostcore.events.merger import Entry, EventLog, RankTail
from hostcore.events.writer import now_ms
from hostcore.interruption import is_by_signal
from hostcore.plugins.errors import one_line
from hostcore.runs.findings import Findings
from hostcore.runs.record import RunRecord
from hostcore.runs.result import RunResult, RunWarning
from hostcore.runs.retrained import DIFFERS, EXPECTED, Retrained, known_causes
from hostcore.supervisor.attempt.ending import is_end
from hostcore.supervisor.attempt.root_cause import deciding_rank
from hostcore.supervisor.opening import Opening
from hostcore_hookspecs import events
from hostcore_hookspecs.job import Job
from hostcore_hookspecs.reporter import ReporterContext

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from hostcore.supervisor.delivery.delivery import Delivery
    from hostcore_hookspecs.events import Event


#: So many events are written at once.
_MOST_TOGETHER: Final = 256
#: So many rank logs are looked at each time, at the most: ten times a second.
RANKS_AT_ONCE: Final = 64


@attrs.frozen(kw_only=True, eq=False)
class Listener:
    """A receiver of every event, while it is written. Guarded: none can hurt the run."""

    #: How messages name it.
    label: str
    report_event: Callable[["Event"], object]


class Journal:
    """Writes ``events.jsonl``, and knows what was written: where the run stands, and how the ranks say it ended.

    :param listeners: Told of every event while it is written. One that raises gets nothing more; the others go on.
    :param delivery: To the reporters and uploaders, which read the log while it grows, each at its own pace.
    :param ranks: How many there are.
    :param may_write: Called before every write; raises when the log is another attempt's.
    """

    def __init__(
        self,
        opening: Opening,
        job: Job,
        listeners: Sequence[Listener] = (),
        *,
        delivery: "Delivery | None" = None,
        ranks: int = 1,
        may_write: Callable[[], object] = lambda: None,
    ) -> None:
        self._may_write = may_write
        self._opening = opening
        #: As those who read the log see it.
        self.job = job
        self._listeners = list(listeners)
        self._delivery = delivery
        self._log: EventLog | None = None
        self._tails = [
            RankTail(opening.directory.rank_events(opening.attempt, rank), rank=rank, attempt=opening.attempt)
            for rank in range(ranks)
        ]
        #: How many looks at ranks other than the first there were, where they take turns.
        self._looked_at = 0
        before = RunResult.read(opening.directory.result)
        #: Finished steps, as far as events told of them; to begin with, where the attempt before ended.
        self.step = before.step if before else 0
        self.epoch = before.epoch if before else 0
        #: When the step last advanced, in milliseconds since 1970.
        self.last_progress_ms = now_ms()
        #: How many events the workers have written.
        self.signs_of_life = 0
        #: Whether the training has begun.
        self.is_training = False
        #: The step whose state the trainer went back to, unless it was trained further.
        self.restored_step = before.restored_step if before else None
        #: The metrics recorded last; behind a return to an earlier state, those of that state.
        self.metrics: Mapping[str, float | None] = before.metrics if before else {}
        #: The step of the checkpoint saved last, or begun from.
        self.checkpoint_step: int | None = None
        #: Who asked first to stop.
        self.requested_by: str | None = None
        #: The terminal event of each rank, held back until all are gone: one of them is how the run has ended.
        self.said: dict[int, Entry] = {}
        #: The listeners that failed at the end: nothing comes after the terminal event, so the log does not have it.
        self.failures: list[events.ReporterFailed] = []
        self._has_ended = False
        self._findings = Findings()
        self._retrained = Retrained()

    @property
    def warnings(self) -> list[RunWarning]:
        """The warnings that the user should know, by all events of the log."""
        return self._findings.warnings

    @property
    def best(self) -> "Mapping[str, Any] | None":
        """See :attr:`Findings.best`; by all events of the log."""
        return self._findings.best

    @property
    def inexact_resumes(self) -> list[RunWarning]:
        """The resumes of the run after which steps that were trained again gave other metrics."""
        return [one for one in self._findings.warnings if one.code == DIFFERS]

    @property
    def is_open(self) -> bool:
        """Whether anything can be written yet."""
        return self._log is not None

    def open(self) -> None:
        """Open the log, where the attempt before left it, for all who read it."""
        log = EventLog(
            self._opening.directory.events,
            run_id=self._opening.directory.run_id,
            attempt=self._opening.attempt,
            see=self._see,
        )
        self._log = log
        context = ReporterContext(
            run_id=log.run_id,
            attempt=log.attempt,
            job=self.job,
            run_dir=str(self._opening.directory.path),
            last_seq=log.last_seq,
        )
        if self._delivery is not None:
            self._delivery.start(context)  # before anything is written: some are told of this attempt alone
        self._merge_earlier(log)
        self._report_differences()

    def _merge_earlier(self, log: EventLog) -> None:
        """Move into the log what workers of earlier attempts wrote after their supervisor had died."""
        directory = self._opening.directory
        for attempt in range(1, self._opening.attempt):
            ends: dict[int, Entry] = {}
            for rank in directory.ranks(attempt) or [0]:
                path = directory.rank_events(attempt, rank)
                tail = RankTail(path, rank=rank, attempt=attempt, after=log.merged.get((rank, attempt)))
                try:
                    for entry in tail.read():
                        if is_end(entry):
                            ends[rank] = entry
                        else:
                            self.write(entry)
                except CorruptLog as error:
                    lost = f"the rest of {path.name} is lost: {error.message}"
                    self.note(events.Warning(code="events.corrupt", message=lost))
            if ends and attempt not in log.ended:
                decided = deciding_rank(ends)
                assert decided is not None, "all of them stand in a log"
                self.write(ends[decided])

    def _see(self, event: "Event") -> None:
        self._findings.note(event)
        if event.name in Retrained.NAMES:
            self._retrained.note(event.as_dict())

    def _report_differences(self) -> None:
        """Write an event for each attempt that trained steps again with other metrics."""
        directory = self._opening.directory
        for found in list(self._retrained.unreported):
            assert found.first is not None
            record = RunRecord.read(directory.record)
            causes = known_causes(found, record, self._retrained.devices, file=directory.record)
            code, why = (EXPECTED, f": expected, for {', '.join(causes)}") if causes else (DIFFERS, "")
            payload = events.Warning(code=code, message=f"trained again after a resume, {found}{why}")
            self.write(Entry(payload=payload, step=found.first[0], epoch=self.epoch))

    def write(self, *entries: Entry) -> None:
        """Number events, write them at once, and announce them."""
        assert self._log is not None
        self._may_write()  # this process may have been stopped for long, also in the middle of a merge
        lines = self._log.extend(entries)
        # Where a checkpoint is, the log must have the beginning of its attempt, also after a power failure.
        if any(isinstance(entry.payload, events.CheckpointSaved | events.RunSubmitted) for entry in entries):
            self._log.sync()
        if self._delivery is not None:
            self._delivery.on_events(lines)
        if self._listeners:
            for line in lines:
                assert line.event is not None
                self._tell(line.event)

    def note(self, payload: events.Payload) -> None:
        """Write an event of the supervisor's own, at the step where the run stands."""
        self.write(self._own(payload))

    def merge(self, *, at_once: Collection[int] | None = ()) -> None:
        """Move the workers' new events into the log.

        Of many ranks, some are looked at each time, in turns, and always the first, which tells of the training: a look
        opens a log, and that asks the server of a shared file system.

        :param at_once: The ranks to look at now in any case; None: all.
        """
        for tail in map(self._tails.__getitem__, self._due(at_once)):
            for entries in _together(tail.read()):
                for entry in entries:
                    self._remember(entry, tail.rank)
                if new := [entry for entry in entries if not is_end(entry)]:
                    self.write(*new)
                    self._report_differences()

    def _due(self, at_once: Collection[int] | None) -> Sequence[int]:
        """The ranks to look at now, in order."""
        ranks = len(self._tails)
        if at_once is None or ranks <= RANKS_AT_ONCE:
            return range(ranks)
        in_turn = {1 + (self._looked_at + number) % (ranks - 1) for number in range(RANKS_AT_ONCE - 1)}
        self._looked_at += RANKS_AT_ONCE - 1
        return sorted({0, *in_turn, *at_once})

    def note_news(self) -> None:
        """Write down what became of reporters and uploads."""
        if self._log is not None and self._delivery is not None:
            for payload in self._delivery.drain_events():
                self.note(payload)

    def hear_end(self, rank: int, line: bytes, offset: int) -> None:
        """Take in a rank's terminal event, which is in its log, and may not be seen there yet from this machine."""
        self._remember(self._tails[rank].entry(line, offset), rank)

    def recall(self, history: "Iterable[Event]") -> None:
        """Take up where the log of earlier attempts leaves the run."""
        for event in history:
            self.step = self.step if event.step is None else event.step
            self.epoch = self.epoch if event.epoch is None else event.epoch
            if isinstance(event.payload, (events.Metrics, events.Validation, events.Test)):
                self.metrics = {**self.metrics, **event.payload.metrics}
            elif isinstance(event.payload, events.TrainerRestored):
                self.metrics = {**self.metrics, **event.payload.values}

    def end(self, payload: events.Payload, *, said_by: int | None = None) -> None:
        """Write the terminal event, and close the log.

        :param said_by: The rank that has said it; None if none has.
        """
        own = self._own(payload)
        said = None if said_by is None else self.said.get(said_by)
        self._has_ended = True
        self.write(attrs.evolve(own, time_ms=said.time_ms, src=said.src) if said else own)
        self.close()

    def close(self) -> None:
        """Close the log."""
        assert self._log is not None
        log, self._log = self._log, None
        log.close()

    def _own(self, payload: events.Payload) -> Entry:
        return Entry(payload=payload, step=self.step, epoch=self.epoch)

    def _remember(self, entry: Entry, rank: int) -> None:
        self.signs_of_life += 1
        if is_end(entry):
            self.said[rank] = entry
        if rank > 0:  # it tells of warnings and of its end alone
            self._stand_at(max(self.step, entry.step or 0))
            return
        if isinstance(entry.payload, events.CheckpointSaved):
            self.checkpoint_step = entry.step
        if isinstance(entry.payload, events.CheckpointSaved | events.Warning) and (entry.step or 0) <= self.step:
            return  # of a checkpoint that was written while the training went on
        if entry.step is not None:
            self._stand_at(entry.step)
        self.epoch = self.epoch if entry.epoch is None else entry.epoch
        if isinstance(entry.payload, (events.Metrics, events.Validation, events.Test)):
            self.metrics = {**self.metrics, **entry.payload.metrics}
        elif isinstance(entry.payload, events.RunResumed):
            self.checkpoint_step = entry.step
        elif isinstance(entry.payload, events.RunStarted):
            self.is_training = True
        elif isinstance(entry.payload, events.TrainerRestored):
            self.metrics = {**self.metrics, **entry.payload.values}
            self.restored_step = entry.payload.restored_step
        elif isinstance(entry.payload, events.StopRequested):
            self.requested_by = self.requested_by or entry.payload.requested_by

    def _stand_at(self, step: int) -> None:
        if step != self.step:
            self.restored_step = None  # trained further
            self.step, self.last_progress_ms = step, now_ms()

    def _tell(self, event: "Event") -> None:
        failures = []
        for listener in list(self._listeners):
            try:
                listener.report_event(event)
            except BaseException as error:
                if is_by_signal(error):
                    raise
                self._listeners.remove(listener)
                failures.append(events.ReporterFailed(reporter=listener.label, message=one_line(error)))
        if self._has_ended:
            self.failures += failures
            return
        for failure in failures:
            self.note(failure)


def _together(entries: "Iterable[Entry]") -> "Iterator[list[Entry]]":
    """Some of the entries at a time. What was read before one that cannot be read comes, too."""
    found: list[Entry] = []
    try:
        for entry in entries:
            found.append(entry)
            if len(found) == _MOST_TOGETHER:
                yield found
                found = []
    except CorruptLog:
        yield found
        raise
    yield found
