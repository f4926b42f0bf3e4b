"""The supervisor's part of a run: start the worker, merge and report its events, pass on signals, write the end.

::

    spawn the worker ─▶ it checks the job ─▶ "invalid": withdraw, exit 2
                                          └▶ "ready": run_submitted, "go"
    until it has ended:   renew the lease;  merge its events ▸ events.jsonl ▸ reporters;  pass on requests to stop
    the plot, the terminal event, result.json
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from hostcore.errors import Errors
from hostcore.events.merger import Entry
from hostcore.events.writer import now_ms
from hostcore.runs.channel import errors_of_content
from hostcore.runs.control import read_cancel
from hostcore.runs.result import RunResult
from hostcore.supervisor.briefing import write_contract, write_record
from hostcore.supervisor.ending import End, died, forced, stalled
from hostcore.supervisor.interrupts import Interrupts
from hostcore.supervisor.journal import Journal
from hostcore.supervisor.opening import Opening
from hostcore.supervisor.outcome import result_of
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.plot import plot_loss
from hostcore.supervisor.reporting import Audience, Listener, listeners_of
from hostcore.supervisor.restarting import Restart
from hostcore.supervisor.spawn import Spawn, Worker, WorkerExit, WorkerProcess
from hostcore.supervisor.stopping import Limits, Stopping
from hostcore.supervisor.tenure import RunTakenOver, Tenure
from hostcore.supervisor.writable import unwritable
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import HostcoreError, RunError

#: How long to wait for the worker's next word before looking around. Its end is noticed at once.
TICK_SECONDS = 0.1
#: A worker that has closed its line is about to end.
_EXIT_POLL_SECONDS = 0.01


def supervise(
    plan: RunPlan,
    opening: Opening,
    interrupts: Interrupts,
    *,
    restart: Restart | None = None,
    listeners: Sequence[Listener] = (),
    spawn: Spawn = WorkerProcess,
    clock: Callable[[], float] = time.monotonic,
) -> RunResult:
    """Run one attempt to its end.

    :param interrupts: Entered before the attempt was opened, so that no signal leaves it half open.
    :param restart: Why it is started, if it is one more after a failure.
    :param listeners: Told every event, beside the job's reporters.
    :raises Errors: When the worker finds the job invalid; then the attempt leaves no trace.
    :raises RunUnwritable: When the run directory cannot be written, before the worker was told to go; then the attempt
        leaves no trace either. Later that is a failure of the run.
    """
    journal = Journal(opening, plan.job, Audience([*listeners_of(plan.reporters), *listeners]))
    attempt = _Attempt(plan, opening, journal, interrupts, restart=restart, clock=clock)
    try:
        return attempt.run(spawn)
    except OSError as error:
        if attempt.submitted:
            return attempt.break_off(error)
        attempt.end_worker()
        opening.withdraw()
        raise unwritable(plan.directory.path, error) from error
    except (Errors, RunTakenOver):  # the job was refused, and the attempt withdrawn; or the run is another's now
        raise
    except HostcoreError as error:
        if attempt.submitted:
            return attempt.break_off(error)
        attempt.end_worker()
        opening.withdraw()
        raise
    finally:
        if attempt.worker:
            attempt.worker.kill()  # what is left of it: processes that it started, or all of it after an error here


class _Attempt:
    """Watches the worker of one attempt."""

    def __init__(
        self,
        plan: RunPlan,
        opening: Opening,
        journal: Journal,
        interrupts: Interrupts,
        *,
        restart: Restart | None,
        clock: Callable[[], float],
    ) -> None:
        self._plan = plan
        self._opening = opening
        self._directory = opening.directory
        self._journal = journal
        self._restart = restart
        self._clock = clock
        self._started_ms = now_ms()
        self._tenure = Tenure(opening.directory, opening.attempt, clock=clock)
        self.worker: Worker | None = None
        #: Whether the worker has been told to go.
        self.submitted = False
        #: The worker's own account of its failure, when its log could not take it.
        self._failure: RunError | None = None
        spec = plan.spec
        self._stopping = Stopping(
            interrupts,
            Limits(grace=spec.grace_seconds, max_runtime=spec.max_runtime_seconds, stall=spec.stall_seconds),
            read_cancel=lambda: read_cancel(opening.directory, opening.attempt),
            clock=clock,
        )

    def run(self, spawn: Spawn) -> RunResult:
        """Start the worker and watch it to its end."""
        attempt = self._opening.attempt
        write_record(self._plan, self._opening, started_ms=self._started_ms)
        write_contract(self._plan, self._opening)
        if self._restart is not None and self._is_stopped_within(self._restart.wait_seconds):
            return self._end()
        self.worker = spawn(
            self._directory.contract(attempt, 0),
            self._directory.rank_output(attempt, 0),
            {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"},
        )
        exit_ = self._watch(self.worker)
        self._tenure.require()
        self._journal.merge()
        return self._end(exit_)

    def _is_stopped_within(self, seconds: float) -> bool:
        """Wait, holding the run; whether somebody asks meanwhile that it is not started at all."""
        end = self._clock() + seconds
        while not self._stopping.asked_before_start():
            if self._clock() >= end:
                return False
            self._keep_tenure()
            time.sleep(TICK_SECONDS)
        return True

    def _keep_tenure(self) -> None:
        self._tenure.keep(step=self._journal.step, last_progress_ms=self._journal.last_progress_ms)

    def _watch(self, worker: Worker) -> WorkerExit:
        """Listen to the worker until it has ended."""
        while True:
            exit_ = None
            try:
                kind, content = worker.channel.receive(TICK_SECONDS)
            except TimeoutError:
                exit_ = worker.poll()
                if exit_ is not None:
                    self._hear_the_rest(worker)
            except EOFError:
                exit_ = worker.poll()
                time.sleep(0 if exit_ else _EXIT_POLL_SECONDS)
            else:
                self._hear(worker, kind, content)
            self._keep_tenure()
            self._journal.merge()
            if exit_ is not None:
                return exit_
            if self._journal.said is not None:
                self._stopping.see_off(worker)
                continue
            self._stopping.pass_on(worker, submitted=self.submitted)
            if self._journal.is_training:
                self._stopping.watch(worker, self._journal.signs_of_life)

    def _hear_the_rest(self, worker: Worker) -> None:
        """Hear what a worker said right before its end. What it started may still hold its end of the line."""
        with suppress(TimeoutError, EOFError):
            while True:
                self._hear(worker, *worker.channel.receive(_EXIT_POLL_SECONDS))

    def _hear(self, worker: Worker, kind: str, content: Any) -> None:
        """Act on what the worker says over the line."""
        if kind == "invalid":
            self._refuse(worker, errors_of_content(content))
        elif kind == "ready":
            self._submit(worker, content)
        elif kind == "failed":
            self._failure = RunError(**content)

    def _refuse(self, worker: Worker, errors: Errors) -> None:
        """The job is invalid: whoever has heard of the run hears its end, and nothing of it stays.

        An attempt of an older run that is in the journal already stays, as failed: numbers are not given twice. So does
        one that was submitted and left to itself: whoever did that has to find out.
        """
        if self._journal.is_open or self._opening.submitted:
            self._failure = RunError(type="InvalidJob", message=str(errors), hint=errors.errors[0].hint)
            if not self._opening.is_new:
                return
            self._journal.end(events.RunFailed(error=self._failure))
        worker.kill()  # it has said all there is to say; a thread that a plugin started could keep it
        worker.wait()
        self._opening.withdraw()
        raise errors

    def _submit(self, worker: Worker, summary: Mapping[str, Any]) -> None:
        """The job is valid: record what it runs with, tell the reporters, and let the worker go."""
        write_record(self._plan, self._opening, started_ms=self._started_ms, summary=summary)
        self._journal.open()
        job = self._plan.job
        submitted = events.RunSubmitted(
            trainer=job.trainer,
            max_steps=job.max_steps,
            epochs=job.epochs,
            total_steps=summary["total_steps"],
            num_rows=summary["num_rows"],
            batch_size=job.batch_size,
            devices=[summary["device"]],
        )
        self._journal.write(Entry(payload=submitted, step=None, epoch=None))
        if self._restart is not None:
            self._journal.note(events.Warning(code="run.restarted", message=self._restart.message))
        self.submitted = True
        worker.channel.send("go", {})

    def _end(self, exit_: WorkerExit | None = None) -> RunResult:
        """Write the end: plot, terminal event, result, and no lease any more.

        :param exit_: Of the worker; None if it was not started.
        """
        if not self._journal.is_open:
            self._journal.open()
        self._draw()
        payload = self._ending(exit_)
        self._journal.end(payload)
        result = self._result(payload)
        result.write(self._directory.result)
        self._tenure.give_up()
        return result

    def end_worker(self) -> None:
        """Kill the worker, and wait until it is gone."""
        if self.worker:
            self.worker.kill()
            self.worker.wait()

    def break_off(self, error: OSError | HostcoreError) -> RunResult:
        """End a run whose directory cannot be written or read any more, and write of its end what can be written."""
        self.end_worker()
        told = unwritable(self._directory.path, error) if isinstance(error, OSError) else error
        said = self._journal.said.payload if self._journal.said else None
        failure = said.error if isinstance(said, events.RunFailed) else self._failure
        own = RunError(type=type(told).__name__, message=told.message, hint=told.hint)
        payload = events.RunFailed(error=failure or own)
        result = self._result(payload)
        with suppress(OSError):
            self._tenure.give_up()  # on a full disk, its block is the one for the result
            result.write(self._directory.result)
        with suppress(OSError):
            if self._journal.is_open:
                self._journal.end(payload)
        return result

    def _ending(self, exit_: WorkerExit | None) -> End:
        """How it ended: what the worker said; what was done to it; or that it died."""
        said = self._journal.said.payload if self._journal.said else None
        if said is not None and (self._stopping.stalled is None or isinstance(said, events.RunSucceeded)):
            return said  # type: ignore[return-value]
        step, stopping = self._journal.step, self._stopping
        output = self._directory.rank_output(self._opening.attempt, 0)
        if stopping.stalled is not None:
            return events.RunFailed(error=stalled(stopping.stalled, step=step, output=output))
        if stopping.asked is not None and stopping.killed is not None:
            return forced(stopping.asked.status, stopping.killed)
        if stopping.asked is not None and not self.submitted:  # in this process, a Ctrl-C ends the worker by itself
            return forced(stopping.asked.status, f"{stopping.asked.reason} before the run had started")
        assert exit_ is not None
        return events.RunFailed(error=self._failure or died(exit_, step=step, output=output))

    def _result(self, payload: End) -> RunResult:
        return result_of(
            payload,
            self._opening,
            self._journal,
            checkpoints=self._plan.checkpoints_dir,
            asked_by=self._stopping.asked.requested_by if self._stopping.asked else None,
            started_ms=self._started_ms,
        )

    def _draw(self) -> None:
        """Draw the loss curve. A picture that fails is a warning."""
        try:
            plot_loss(self._directory.events, self._directory.loss_plot, title=self._directory.run_id)
        except Exception as error:  # noqa: BLE001 - a picture must not cost the run its end
            self._journal.note(events.Warning(code="plot.failed", message=f"no loss curve was drawn: {error!r}"))
