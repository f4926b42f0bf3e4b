"""Status of a sweep, from its folder alone: the table of its trials, the best of them, the work left.

Everything that shows a sweep (the terminal, the report, a service's page, a notebook) reads it here.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import attrs

from hostcore.events.times import moment
from hostcore.events.writer import now_ms
from hostcore.job.paths import with_absolute_paths
from hostcore.runs.documents import CorruptDocument
from hostcore_builtin_plugins.processes import seconds_since_change
from hostcore_hookspecs.errors import HostcoreError
from hostcore_sweeps.folder import SweepFolder
from hostcore_sweeps.records import (
    SIGN_SECONDS,
    PruneDecided,
    Record,
    SessionEnded,
    SessionGoesOn,
    SessionStarted,
    TrialEnded,
    TrialReported,
    TrialSampled,
    TrialStarted,
    read_records,
)
from hostcore_sweeps.space import Values
from hostcore_sweeps.spec import LimitsSpec, ObjectiveSpec, Sweep

#: A driver of another machine that has recorded nothing for this long is gone: one answer may take minutes.
_SILENT_SECONDS: Final = SIGN_SECONDS + 180.0
#: ``running``: a driver lives. ``paused``: none does, and something is left to do.
SweepState = Literal["running", "paused", "finished"]
#: ``running`` trials of a sweep that no driver drives are ``paused``.
RowState = Literal["running", "paused", "complete", "pruned", "failed"]


@attrs.frozen(kw_only=True)
class TrialReport:
    """Metrics of the objectives at a step."""

    step: int
    #: By metric; None where a value is not finite.
    values: Mapping[str, float | None]


@attrs.frozen(kw_only=True)
class TrialRow:
    """One trial."""

    number: int
    run_id: str
    state: RowState
    #: What was sampled, by JSON pointer.
    values: Values
    #: The trial whose last checkpoint its run begins from, in population based training.
    parent: int | None = None
    #: By metric: of a trial that has ended, what counts; of one that runs, what was reported last.
    objective: Mapping[str, float | None] = attrs.field(factory=dict)
    #: Finished steps, as of its last report.
    step: int = 0
    #: Why it was pruned, or has failed.
    reason: str | None = None
    #: The step at which the pruner decided to end it.
    pruned_at: int | None = None
    #: How often its run was started or resumed.
    starts: int = 0
    sampled_ms: int
    #: Milliseconds since 1970; None before it was started, or while it has not ended.
    started_ms: int | None = None
    ended_ms: int | None = None
    #: All that was reported and counts, by step.
    reports: Sequence[TrialReport] = ()

    @property
    def is_over(self) -> bool:
        """True if the trial has ended."""
        return self.ended_ms is not None

    def as_dict(self) -> dict[str, Any]:
        """The row as plain JSON."""
        return attrs.asdict(self)


@attrs.frozen(kw_only=True)
class SweepStatus:
    """A sweep."""

    folder: SweepFolder
    sweep: Sweep
    state: SweepState
    #: Reason for the end of the last driver or, without a record, its last sign of life. None while it lives; its own
    #: screen shows why it pauses the trials.
    reason: str | None
    limits: LimitsSpec
    #: How many trials there are to be.
    most_trials: int
    #: By number.
    trials: Sequence[TrialRow]
    #: The numbers of the best complete trials: one, the first of equals; of several objectives those that no other
    #: trial is better than in all of them.
    best: Sequence[int]
    #: The first driver's; None if there was none.
    started_ms: int | None
    #: Time in which a driver was at work, over all sessions. One that was killed counts up to its last record.
    driven_ms: int

    @property
    def objectives(self) -> tuple[ObjectiveSpec, ...]:
        """Metrics by which trials are compared."""
        return self.sweep.spec.objectives

    def count(self, state: RowState) -> int:
        """Count the trials in a state."""
        return sum(row.state == state for row in self.trials)

    def as_dict(self) -> dict[str, Any]:
        """The status as ``hostcore sweep status --json`` prints it."""
        return {
            "sweep_id": self.sweep.sweep_id,
            "folder": str(self.folder.path),
            "status": self.state,
            "reason": self.reason,
            "max_trials": self.most_trials,
            "best": list(self.best),
            "started_ms": self.started_ms,
            "driven_ms": self.driven_ms,
            "objectives": [attrs.asdict(one) for one in self.objectives],
            "trials": [row.as_dict() for row in self.trials],
        }


class SweepTable:
    """State of a sweep after the records that were taken in.

    :raises UnknownSweep: When the folder has no sweep.
    """

    def __init__(self, folder: SweepFolder) -> None:
        self._folder = folder
        self._sweep, _ = folder.read()
        self._trials: dict[int, TrialRow] = {}
        self._reports: dict[int, dict[int, dict[str, float | None]]] = {}
        #: Rows of trials that have ended, which stay as they are.
        self._over: dict[int, TrialRow] = {}
        self._session: SessionStarted | None = None
        self._ended: SessionEnded | None = None
        #: Of the session, and of the newest record.
        self._since_ms = self._last_ms = 0
        self._started_ms: int | None = None
        #: Of the sessions before.
        self._driven_ms = 0

    def take(self, time_ms: int, record: Record) -> None:
        """Take in the next record."""
        if isinstance(record, SessionStarted):
            self._driven_ms += self._last_ms - self._since_ms
            self._session, self._ended, self._since_ms = record, None, time_ms
            self._started_ms = self._started_ms or time_ms
        elif isinstance(record, SessionEnded):
            self._ended = record
        elif isinstance(record, SessionGoesOn):
            pass  # it has nothing but its time
        elif isinstance(record, TrialSampled):
            self._trials[record.number] = TrialRow(
                number=record.number,
                run_id=record.run_id,
                state="paused",
                values=record.values,
                parent=record.parent,
                sampled_ms=time_ms,
            )
        else:
            self._take_of_trial(time_ms, record)
        self._last_ms = time_ms

    def _take_of_trial(self, time_ms: int, record: TrialStarted | TrialReported | PruneDecided | TrialEnded) -> None:
        row = self._trials.get(record.number)
        if row is None:
            file = str(self._folder.records)
            raise CorruptDocument(
                f"a record is of trial {record.number}, which no record before it has begun", file=file
            )
        if isinstance(record, TrialStarted):
            row = attrs.evolve(row, starts=row.starts + 1, started_ms=row.started_ms or time_ms)
        elif isinstance(record, TrialReported):
            if row.pruned_at is None:  # what comes after does not count
                self._reports.setdefault(record.number, {}).setdefault(record.step, {}).update(record.values)
        elif isinstance(record, PruneDecided):
            row = attrs.evolve(row, pruned_at=record.step, reason=record.reason)
        else:
            row = attrs.evolve(
                row,
                state=record.state,
                objective=record.values,
                step=record.step,
                reason=record.reason,
                ended_ms=time_ms,
            )
        self._trials[record.number] = row

    def row(self, number: int) -> TrialRow:
        """A trial, without its reports."""
        return self._trials[number]

    def status(self) -> SweepStatus:
        """Return the status of the sweep."""
        limits = self._folder.read_limits()
        lives = self._lives()
        rows = [self._over.get(number) or self._row(row, lives=lives) for number, row in sorted(self._trials.items())]
        self._over.update({row.number: row for row in rows if row.is_over})
        most = most_trials(self._sweep, limits)
        finished = self._ended is not None and self._ended.status == "finished" and len(rows) >= most
        return SweepStatus(
            folder=self._folder,
            sweep=self._sweep,
            state="running" if lives else "finished" if finished else "paused",
            reason=self._ended.reason if self._ended else None if lives else self._last_sign(),
            limits=limits,
            most_trials=most,
            trials=tuple(rows),
            best=best_of(rows, self._sweep.spec.objectives),
            started_ms=self._started_ms,
            driven_ms=self.driven_ms(lives=lives),
        )

    def _lives(self) -> bool:
        """Return whether the driver of the newest session lives, as far as this machine can see."""
        if self._ended is not None or self._session is None:
            return False
        process = self._session.process
        return process.runs if process.is_here else seconds_since_change(self._folder.records) < _SILENT_SECONDS

    def _last_sign(self) -> str | None:
        """Describe the last sign of life of a driver that has not recorded its end; None if there was no driver."""
        if self._session is None:
            return None
        process = self._session.process
        who = f"its driver (process {process.pid} on {process.host})"
        return f"{who} ended without a word; its last sign of life was at {moment(self._last_ms)}"

    def driven_ms(self, *, lives: bool) -> int:
        """See :attr:`SweepStatus.driven_ms`.

        :param lives: Whether the newest session still runs.
        """
        return self._driven_ms + (now_ms() if lives else self._last_ms) - self._since_ms

    def _row(self, row: TrialRow, *, lives: bool) -> TrialRow:
        until = row.pruned_at if row.pruned_at is not None else math.inf
        found = self._reports.get(row.number, {})
        reports = [TrialReport(step=step, values=values) for step, values in sorted(found.items()) if step <= until]
        row = attrs.evolve(row, reports=tuple(reports))
        if row.is_over or not reports:
            return row if row.is_over else attrs.evolve(row, state="running" if lives else "paused")
        newest: dict[str, float | None] = {}
        for report in reports:
            newest.update(report.values)
        state: RowState = "running" if lives else "paused"
        return attrs.evolve(row, state=state, objective=newest, step=reports[-1].step)


def read_status(folder: SweepFolder) -> SweepStatus:
    """Return the status of a sweep.

    :raises UnknownSweep: When the folder has none.
    :raises CorruptDocument: When one of its files is not what hostcore wrote.
    """
    table = SweepTable(folder)
    for time_ms, record in read_records(folder.records):
        table.take(time_ms, record)
    return table.status()


def most_trials(sweep: Sweep, limits: LimitsSpec) -> int:
    """Return the number of trials to run, under limits that may have been changed."""
    return attrs.evolve(sweep, spec=attrs.evolve(sweep.spec, limits=limits)).most_trials


def best_of(rows: Sequence[TrialRow], objectives: Sequence[ObjectiveSpec]) -> list[int]:
    """The numbers of the best complete trials: see :attr:`SweepStatus.best`."""
    scores = {
        row.number: tuple(_score(row.objective[one.metric], one) for one in objectives)
        for row in rows
        if row.state == "complete"
    }
    if len(objectives) == 1:
        return [min(scores, key=lambda number: (scores[number], number))] if scores else []
    return [number for number, mine in scores.items() if not any(_dominates(other, mine) for other in scores.values())]


def ranked(status: SweepStatus) -> list[TrialRow]:
    """The trials, the best first: complete ones by their first objective, then the others."""
    first = status.objectives[0]

    def key(row: TrialRow) -> tuple[bool, bool, float, int]:
        value = row.objective.get(first.metric)
        score = math.inf if value is None else _score(value, first)
        return row.number not in status.best, row.state != "complete", score, row.number

    return sorted(status.trials, key=key)


def job_of_trial(status: SweepStatus, number: int | None = None) -> dict[str, Any]:
    """The job of a trial as a job of its own: with absolute paths, and without a run id, which may have been used.

    :param number: Of the best trial if not given.
    :raises HostcoreError: ``sweep.trial`` when there is none.
    """
    if number is None and not status.best:
        raise HostcoreError("no trial is complete yet", code="sweep.trial", hint="--trial chooses one of the others")
    number = status.best[0] if number is None else number
    if not 0 <= number < len(status.trials):
        raise HostcoreError(f"there is no trial {number}: there are {len(status.trials)}", code="sweep.trial")
    sweep = status.sweep
    document = sweep.with_values(status.trials[number].values)
    document.pop("run_id", None)
    return with_absolute_paths(document, sweep.job_dir)


def _score(value: float | None, objective: ObjectiveSpec) -> float:
    """A value, less being better."""
    assert value is not None
    return value if objective.mode == "min" else -value


def _dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))
