"""The driver of a sweep: polls the runs of its trials, decides, starts and cancels, until nothing is left to do.

::

    read the records
    until nothing is left to do, or it is asked to stop:
        read what runs have reported                            ▸ trial_reported
        decide what can be decided about pruning                ▸ prune_decided, then cancel
        see which runs have ended                               ▸ trial_ended; or resume those that were killed
        sample and start trials, as many as may run             ▸ trial_sampled, trial_started
    asked to stop: cancel what runs, each with a checkpoint; the next driver resumes it

A decision is recorded before it is carried out, and all that is carried out may be done again. So a driver that finds
records and runs of another, whenever that was killed, does what that would have done.
"""

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Literal

import attrs

from hostcore.errors import all_errors
from hostcore.job.wording import did_you_mean, near
from hostcore.runs.lease import ProcessIdentity
from hostcore.runs.result import CANCELLED, EXIT_CODES, FAILED, INVALID, PREEMPTED, SUCCEEDED
from hostcore.runs.statuses import ALIVE
from hostcore.supervisor.interrupts import Interrupts
from hostcore_hookspecs.errors import HostcoreError
from hostcore_sweeps.folder import SweepFolder
from hostcore_sweeps.records import (
    SIGN_SECONDS,
    PruneDecided,
    Record,
    RecordLog,
    SessionEnded,
    SessionGoesOn,
    SessionStarted,
    TrialEnded,
    TrialReported,
    TrialSampled,
    TrialStarted,
    read_records,
)
from hostcore_sweeps.search import TrialSearch
from hostcore_sweeps.spec import LimitsSpec, Sweep
from hostcore_sweeps.status import SweepStatus, SweepTable, TrialRow, most_trials
from hostcore_sweeps.trial_runs import PAUSED, Refusal, RunEnd, TrialRuns, job_of, may_pass
from hostcore_sweeps.trials import OptunaJournal, Trial

_TICK_SECONDS: Final = 0.2
#: A run that found its devices held, or its engine away, is started again after so long.
_BUSY_SECONDS: Final = 5.0
#: A run that was asked to end is asked again: the next attempt may have begun in between.
_ASK_SECONDS: Final = 1.0
#: A service that is away is asked again.
_AWAY_SECONDS: Final = 2.0
_MS_PER_HOUR: Final = 3_600_000
#: Follows the objective in the reason of a trial.
_NEVER_REPORTED: Final = "was never reported"
#: What metrics that are meant to be the same may differ in: ``val_loss`` and ``val/loss``.
_OTHERS: Final = re.compile(r"[^a-z0-9]")

#: Called with a function that returns the status, and need not call it.
Show = Callable[[Callable[[], SweepStatus]], None]


@attrs.frozen(kw_only=True)
class DriveEnd:
    """End of a driver."""

    #: ``finished``: nothing is left to do. ``stopped``: it was asked to. ``limit``: of hours, steps or failures.
    status: Literal["finished", "stopped", "limit"]
    reason: str
    #: Of the process: as of a run that ends so.
    exit_code: int


class Driver:
    """Drives one sweep, whose records it holds.

    :param runs: Of its trials.
    :param interrupts: Entered.
    :param show: Called again and again.
    """

    def __init__(
        self,
        sweep: Sweep,
        folder: SweepFolder,
        records: RecordLog,
        runs: TrialRuns,
        *,
        interrupts: Interrupts,
        show: Show,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._sweep = sweep
        self._folder = folder
        self._records = records
        self._runs = runs
        self._interrupts = interrupts
        self._show = show
        self._sleep = sleep
        self._limits: LimitsSpec = folder.read_limits()
        self._table = SweepTable(folder)
        for time_ms, record in read_records(folder.records):
            self._table.take(time_ms, record)
        self._trials = [_trial(row) for row in self._table.status().trials]
        self._search = TrialSearch(sweep, parallel=self._limits.parallel)
        self._journal = OptunaJournal(folder.journal, sweep)
        self._journal.update(self._trials)
        #: Trials whose run was started by this driver, or found alive.
        self._running: set[int] = set()
        #: When a run may be started again, or asked again to end, in seconds of the monotonic clock.
        self._not_before: dict[int, float] = {}
        #: Starts in a row after which a trial was killed before it reported anything new.
        self._vain: dict[int, int] = {}
        #: Why trials have failed.
        self._failures: dict[int, str] = {}
        #: When something was recorded last, in seconds of the monotonic clock.
        self._recorded_at = time.monotonic()
        self._is_exhausted = False
        #: Whether the place of the runs was there once.
        self._has_answered = False
        #: Why no further trial can begin, although it should.
        self._obstacle: str | None = None
        #: Why trials are being paused.
        self._stopping: str | None = None

    def drive(self) -> DriveEnd:
        """Drive the sweep until nothing is left to do, or it is asked to stop."""
        self._folder.clear_stop()
        self._record(SessionStarted(process=ProcessIdentity.current()), durably=True)
        while (end := self._why_end()) is None:
            self._has_answered |= self._attempt(lambda: self._tick(may_start=True))
            self._rest()
        if end.status != "finished":
            self._stopping = end.reason
            while not self._attempt(partial(self._pause, end.reason)):
                self._rest()
        self._record(SessionEnded(status=end.status, reason=end.reason), durably=True)
        self._folder.clear_stop()
        self._show_status()
        return end

    def _attempt(self, work: Callable[[], None]) -> bool:
        """Do a part of the work, which may be done again. Whether it was done: a service that is away is waited for.

        :raises HostcoreError: When it was never there, or after a second Ctrl-C.
        """
        try:
            work()
        except HostcoreError as error:
            if not may_pass(error) or not self._has_answered or self._interrupts.forced:
                raise
            self._sleep(_AWAY_SECONDS)
            return False
        return True

    def _rest(self) -> None:
        if time.monotonic() - self._recorded_at >= SIGN_SECONDS:
            self._record(SessionGoesOn())
        self._show_status()
        self._sleep(_TICK_SECONDS)

    def _show_status(self) -> None:
        with suppress(OSError):  # the terminal was closed: that must not keep it from pausing the trials
            self._show(self._status)

    def _status(self) -> SweepStatus:
        status = self._table.status()
        return attrs.evolve(status, reason=self._stopping) if status.state == "running" else status

    def _tick(self, *, may_start: bool) -> None:
        self._limits = self._folder.read_limits()
        states = {trial.number: self._runs.state(trial.number) for trial in self._open()}
        for trial in self._open():  # what was reported before an end is read after that was seen
            self._take_reports(trial)
        self._check_objectives()
        self._decide()
        self._running |= {number for number, state in states.items() if state == "alive"}
        for trial in self._open():
            if states[trial.number] == "alive":
                if trial.pruned_at is not None:
                    self._cancel(trial.number, reason=self._row(trial).reason or "")
            else:
                self._look_at_end(trial, exists=states[trial.number] == "over", may_start=may_start)
        self._decide()
        self._close()
        if may_start:
            self._start_more()

    def _open(self) -> list[Trial]:
        """The trials whose run has not ended for good."""
        return [trial for trial in self._trials if trial.ended is None and not trial.is_silent]

    def _take_reports(self, trial: Trial) -> None:
        for reported in self._runs.reports(trial.number):
            known = trial.reports.get(reported.step, {})
            added = {name: value for name, value in reported.values.items() if name not in known}
            # A run that is resumed from a checkpoint reports again what it had reported after it.
            if added and reported.step >= trial.last_step and trial.pruned_at is None:
                trial.reports[reported.step] = {**known, **added}
                self._vain.pop(trial.number, None)
                self._record(TrialReported(number=trial.number, step=reported.step, values=added))

    def _decide(self) -> None:
        """Decide what can be decided about pruning, trial after trial."""
        for trial in self._search.unsettled(self._trials):
            step = self._search.next_decision(trial)
            while step is not None and self._search.is_ready(trial, step, self._trials):
                is_pruned = self._search.decide(trial, step, self._trials)
                if is_pruned and trial.pruned_at is None and trial.ended is None:
                    trial.pruned_at = step
                    reason = self._why_pruned(trial, step)
                    self._record(PruneDecided(number=trial.number, step=step, reason=reason), durably=True)
                step = self._search.next_decision(trial)

    def _why_pruned(self, trial: Trial, step: int) -> str:
        metric = self._sweep.spec.objectives[0].metric
        value = trial.reports[step].get(metric)
        shown = "not finite" if value is None else f"{value:.6g}"
        return f"pruned by {self._sweep.spec.pruner.use} at step {step:,}: {metric} was {shown}"

    def _look_at_end(self, trial: Trial, *, exists: bool, may_start: bool) -> None:
        """See to a trial whose run does not run."""
        number = trial.number
        refusal = self._runs.refusal(number) if number in self._running else None
        if refusal is not None and self._is_waited_for(trial, refusal):
            self._running.discard(number)
            self._not_before[number] = time.monotonic() + _BUSY_SECONDS
            return
        if trial.pruned_at is not None:
            trial.is_silent = True
            if exists:
                self._cancel(number, reason=self._row(trial).reason or "")  # ends one that was killed meanwhile
        elif refusal is not None and refusal.cause == "death":
            self._take_interruption(trial, refusal.message, was_paused=False, may_start=may_start)
        elif refusal is not None and not exists:
            self._fail(trial, refusal.message)
        elif not exists and number in self._running:
            why = f"its process has ended before there was a run; see {self._folder.output(number)}"
            self._take_interruption(trial, why, was_paused=False, may_start=may_start)
        elif not exists:
            self._go_on(trial, may_start=may_start)
        else:
            self._take_end(trial, self._runs.end(number), may_start=may_start)
        if trial.is_silent:
            self._running.discard(number)

    def _is_waited_for(self, trial: Trial, refusal: Refusal) -> bool:
        """Return whether the trial is started again later; an engine that has run nothing yet gets few tries."""
        if refusal.cause == "outage" and not any(one.reports for one in self._trials):
            self._vain[trial.number] = self._vain.get(trial.number, 0) + 1
            return self._vain[trial.number] <= self._limits.resumes
        return refusal.cause in ("busy", "outage")

    def _take_end(self, trial: Trial, end: RunEnd, *, may_start: bool) -> None:
        if end.status in ALIVE:  # what was over in the eyes of its engine lives after all
            return
        self._take_reports(trial)  # which it may have written since it seemed to be over
        why = f"{end.status}: {end.reason}"
        if end.status == "succeeded":
            missing = self._missing(trial)
            if missing is None:
                trial.is_silent = True
            else:  # now, not when its end is recorded: decisions about others see it as the next driver does
                self._fail(trial, self._why_missing(trial, missing))
        elif not end.was_interrupted:
            self._fail(trial, why)
        else:
            self._take_interruption(trial, why, was_paused=end.was_paused, may_start=may_start)

    def _take_interruption(self, trial: Trial, why: str, *, was_paused: bool, may_start: bool) -> None:
        """Have a trial go on that was ended from outside, unless that has happened too often."""
        number = trial.number
        if number in self._running and not was_paused:
            self._vain[number] = self._vain.get(number, 0) + 1
        self._running.discard(number)
        if self._vain.get(number, 0) > self._limits.resumes:
            self._fail(trial, f"{self._vain[number]} times in a row: {why}")
        else:
            self._go_on(trial, may_start=may_start)

    def _fail(self, trial: Trial, reason: str) -> None:
        trial.is_silent = trial.has_failed = True
        self._failures[trial.number] = reason

    def _go_on(self, trial: Trial, *, may_start: bool) -> None:
        """Start the run of a trial that exists, or have it go on."""
        if not may_start or len(self._running) >= self._limits.parallel:
            return
        if time.monotonic() < self._not_before.get(trial.number, 0.0):
            return
        try:
            job = job_of(self._sweep, trial, resume=self._resume(trial))
        except HostcoreError as error:
            if may_pass(error):
                raise
            # These values make no job.
            self._fail(trial, "; ".join(one.message for one in all_errors(error)))
            return
        self._folder.write(self._folder.job(trial.number), job)
        self._record(TrialStarted(number=trial.number), durably=True)
        self._running.add(trial.number)
        self._runs.start(trial.number)

    def _resume(self, trial: Trial) -> str | None:
        """Return the checkpoint that a trial's run begins or resumes from; None: as in the job."""
        if self._runs.state(trial.number) != "absent":
            return "auto"  # it is resumed, whatever it has begun from
        return None if trial.parent is None else self._runs.last_checkpoint(trial.parent)

    def _close(self) -> None:
        """Record the ends of trials about which nothing is left to decide."""
        for trial in self._trials:
            if trial.ended is None and trial.is_silent and self._search.next_decision(trial) is None:
                trial.ended = self._ended(trial)
                self._record(trial.ended, durably=True)
        self._journal.update(self._trials)

    def _ended(self, trial: Trial) -> TrialEnded:
        if trial.pruned_at is not None:
            metric = self._sweep.spec.objectives[0].metric
            value = trial.reports[trial.pruned_at].get(metric)
            return TrialEnded(
                number=trial.number,
                state="pruned",
                values={} if value is None else {metric: value},
                step=trial.pruned_at,
                reason=self._row(trial).reason,
            )
        return TrialEnded(
            number=trial.number,
            state="failed" if trial.has_failed else "complete",
            values={} if trial.has_failed else self._final_values(trial),
            step=trial.last_step,
            reason=self._failures.get(trial.number),
        )

    def _missing(self, trial: Trial) -> str | None:
        """The first objective that has no finite value; None if all have."""
        values = self._final_values(trial)
        return next((one.metric for one in self._sweep.spec.objectives if one.metric not in values), None)

    def _final_values(self, trial: Trial) -> dict[str, float]:
        found: dict[str, float] = {}
        for one in self._sweep.spec.objectives:
            reported = [values[one.metric] for values in trial.counted().values() if one.metric in values]
            finite = [value for value in reported if value is not None]
            if one.value == "best" and finite:
                found[one.metric] = min(finite) if one.mode == "min" else max(finite)
            elif reported and reported[-1] is not None:
                found[one.metric] = reported[-1]
        return found

    def _why_missing(self, trial: Trial, metric: str) -> str:
        if any(metric in values for values in trial.reports.values()):
            return f"{metric} is not finite"
        there = ", ".join(sorted(self._runs.seen_metrics)) or "no metrics"
        meant = self._what_is_meant(metric)
        return f"{metric} {_NEVER_REPORTED}; its run has reported {there}{f': {meant}' if meant else ''}"

    def _alike(self, metric: str) -> Sequence[str]:
        """The metrics of the runs that differ from an objective in case and punctuation alone."""
        seen = sorted(self._runs.seen_metrics)
        return [name for name in seen if _OTHERS.sub("", name.lower()) == _OTHERS.sub("", metric.lower())]

    def _what_is_meant(self, metric: str) -> str | None:
        kind = metric.partition("/")[0]
        of_its_kind = [name for name in sorted(self._runs.seen_metrics) if name.partition("/")[0] == kind]
        return did_you_mean(self._alike(metric) or near(metric, of_its_kind))

    def _check_objectives(self) -> None:
        """Begin no further trial, and pause those that run, when an objective is a metric that no run will report."""
        validated = self._runs.validation_metrics
        for metric in (one.metric for one in self._sweep.spec.objectives if one.metric not in self._runs.seen_metrics):
            if self._alike(metric) or (metric.startswith("val/") and validated):
                hint = self._what_is_meant(metric) or f"a validation has {', '.join(sorted(validated))}"
                self._obstacle = f'no run reports the objective "{metric}"; {hint}'

    def _start_more(self) -> None:
        """Sample and start trials, as many as may run now."""
        while len(self._open()) < self._limits.parallel and self._may_sample():  # some may wait for a device
            number = len(self._trials)
            trial = self._search.sample(number, self._trials)
            if trial is None:
                self._is_exhausted = True
                return
            if self._runs.state(number) != "absent":  # nothing was started yet
                run_id = self._sweep.run_id(number)
                self._obstacle = f"there is a run {run_id} already, which is not of this sweep; give it a sweep_id"
                return
            run_id = self._sweep.run_id(number)
            sampled = TrialSampled(number=number, run_id=run_id, values=trial.values, parent=trial.parent)
            self._record(sampled, durably=True)
            self._trials.append(trial)
            self._go_on(trial, may_start=True)

    def _may_sample(self) -> bool:
        """Return whether everything that the next trial depends on is known, and there is to be one."""
        number = len(self._trials)
        seen = self._search.seen_by(number)
        if self._limits.steps is not None:
            seen = max(seen, number - self._limits.parallel + 1)
        return (
            self._why_no_more() is None
            and not self._is_exhausted
            and self._obstacle is None
            and number < most_trials(self._sweep, self._limits)
            and all(trial.ended is not None for trial in self._trials[:seen])
        )

    def _why_no_more(self) -> str | None:
        """The limit after which no trial begins; None while there is none."""
        failed = sum(trial.ended is not None and trial.ended.state == "failed" for trial in self._trials)
        if (never := self._never_reported()) is not None:
            return f"trial {never.number}: {never.reason}"
        if failed >= self._limits.failures:
            first = next(trial.ended for trial in self._trials if trial.ended and trial.ended.state == "failed")
            return f"{failed} trials have failed; trial {first.number}: {first.reason}"
        steps = self._steps_before(len(self._trials))
        if self._limits.steps is not None and steps >= self._limits.steps:
            return f"{steps:,} of {self._limits.steps:,} steps are done"
        return None

    def _never_reported(self) -> TrialEnded | None:
        """The first trial that was complete but for an objective that no trial has ever reported."""
        ends = [trial.ended for trial in self._trials if trial.ended is not None and trial.ended.state == "failed"]
        reported = {name for trial in self._trials for values in trial.reports.values() for name in values}
        for metric in (one.metric for one in self._sweep.spec.objectives if one.metric not in reported):
            for ended in ends:
                if (ended.reason or "").startswith(f"{metric} {_NEVER_REPORTED}"):
                    return ended
        return None

    def _steps_before(self, number: int) -> int:
        """The steps that count for the limit when a trial is to begin: of those that have surely ended by then."""
        seen = self._trials[: max(0, number - self._limits.parallel + 1)]
        return sum(trial.ended.step for trial in seen if trial.ended is not None)

    def _why_end(self) -> DriveEnd | None:
        """Return the end of the driver if nothing is left to do now; None if something is."""
        asked = self._interrupts.first
        if asked is not None:
            return DriveEnd(status="stopped", reason=asked.reason, exit_code=EXIT_CODES[asked.status])
        if (request := self._folder.read_stop()) is not None:
            return DriveEnd(status="stopped", reason=request.reason, exit_code=CANCELLED)
        if self._obstacle is not None:
            return DriveEnd(status="stopped", reason=self._obstacle, exit_code=INVALID)
        hours = self._limits.hours
        if hours is not None and self._table.driven_ms(lives=True) >= hours * _MS_PER_HOUR:
            return DriveEnd(status="limit", reason=f"{hours:g} hours are over", exit_code=PREEMPTED)
        if any(trial.ended is None for trial in self._trials):
            return None
        code = SUCCEEDED if any(trial.ended and trial.ended.state == "complete" for trial in self._trials) else FAILED
        if self._is_exhausted or len(self._trials) >= most_trials(self._sweep, self._limits):
            return DriveEnd(status="finished", reason=f"{len(self._trials)} trials have ended", exit_code=code)
        if (why := self._why_no_more()) is not None:
            return DriveEnd(status="limit", reason=why, exit_code=code)
        return None

    def _pause(self, reason: str) -> None:
        """Have all runs write a checkpoint and end."""
        while any(self._runs.state(trial.number) == "alive" for trial in self._open()):
            for trial in self._open():
                pruned = trial.pruned_at is not None
                why = (self._row(trial).reason or "") if pruned else f"{PAUSED}: {reason}"
                self._cancel(trial.number, reason=why, force=self._interrupts.forced)
            self._rest()
        self._tick(may_start=False)

    def _cancel(self, number: int, *, reason: str, force: bool = False) -> None:
        if force or time.monotonic() >= self._not_before.get(number, 0.0):
            self._not_before[number] = time.monotonic() + _ASK_SECONDS
            self._runs.cancel(number, reason=reason, force=force)

    def _row(self, trial: Trial) -> TrialRow:
        return self._table.row(trial.number)

    def _record(self, record: Record, *, durably: bool = False) -> None:
        self._table.take(self._records.append(record), record)
        self._recorded_at = time.monotonic()
        if durably:
            self._records.sync()


def _trial(row: TrialRow) -> Trial:
    """A trial as the records have it."""
    ended = None
    if row.is_over:
        assert row.state in ("complete", "pruned", "failed")
        values = {name: value for name, value in row.objective.items() if value is not None}
        ended = TrialEnded(number=row.number, state=row.state, values=values, step=row.step, reason=row.reason)
    return Trial(
        number=row.number,
        values=row.values,
        parent=row.parent,
        reports={report.step: report.values for report in row.reports},
        pruned_at=row.pruned_at,
        is_silent=row.is_over,
        has_failed=row.state == "failed",
        ended=ended,
    )
