"""The supervisor's part of a run: start the worker, merge and report its events, pass on signals, write the end.

::

    spawn the worker ─▶ it checks the job ─▶ "invalid": withdraw, exit 2
                                          └▶ "ready": run_submitted, "go"
    until it has ended:   merge its events ▸ events.jsonl ▸ reporters;  renew the lease;  pass on requests to stop
    the plot, the terminal event, result.json
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from hostcore import __version__
from hostcore.checkpoints.find import committed
from hostcore.errors import Errors
from hostcore.events.merger import Entry, EventLog, RankTail
from hostcore.events.writer import now_ms
from hostcore.plugins.provenance import provenance
from hostcore.plugins.resolve import in_room
from hostcore.runs.contract import WorkerContract
from hostcore.runs.lease import RENEW_SECONDS, Lease, ProcessIdentity
from hostcore.runs.record import RunRecord
from hostcore.runs.result import EXIT_CODES, RunResult
from hostcore.supervisor.ending import STATUS, died, forced, is_end
from hostcore.supervisor.interrupts import Interrupts
from hostcore.supervisor.opening import Opening, unwritable
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.plot import plot_loss
from hostcore.supervisor.reporting import Audience, Failure, Listener, listeners_of
from hostcore.supervisor.spawn import Spawn, Worker, WorkerExit, WorkerProcess
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.reporter import ReporterContext

#: How long to wait for the worker's next word before looking around. Its end is noticed at once.
TICK_SECONDS = 0.1


def supervise(
    plan: RunPlan,
    opening: Opening,
    *,
    listeners: Sequence[Listener] = (),
    spawn: Spawn = WorkerProcess,
    clock: Callable[[], float] = time.monotonic,
) -> RunResult:
    """Run one attempt to its end.

    :param listeners: Told every event, beside the job's reporters.
    :raises Errors: When the worker finds the job invalid; then the attempt leaves no trace.
    """
    with Interrupts() as interrupts:
        attempt = _Attempt(plan, opening, Audience([*listeners_of(plan.reporters), *listeners]), interrupts, clock)
        try:
            return attempt.run(spawn)
        except OSError as error:
            if attempt.worker:
                attempt.worker.kill()
            if not attempt.submitted:
                opening.withdraw()
            raise unwritable(plan.directory.path, error) from error
        except BaseException:
            if attempt.worker:
                attempt.worker.kill()
            raise


class _Attempt:
    """The state of one attempt while it is watched."""

    def __init__(
        self,
        plan: RunPlan,
        opening: Opening,
        audience: Audience,
        interrupts: Interrupts,
        clock: Callable[[], float],
    ) -> None:
        self._plan = plan
        self._opening = opening
        self._directory = plan.directory
        self._audience = audience
        self._interrupts = interrupts
        self._clock = clock
        self._started_ms = now_ms()
        self.worker: Worker | None = None
        #: Whether the worker has been told to go.
        self.submitted = False
        self._log: EventLog | None = None
        self._tail = RankTail(self._directory.rank_events(opening.attempt, 0), rank=0, attempt=opening.attempt)
        self._step = 0
        self._epoch = 0
        self._last_progress_ms = self._started_ms
        self._lease_due = clock() + RENEW_SECONDS
        self._metrics: Mapping[str, float | None] = {}
        #: The worker's terminal event, held back until the worker is gone.
        self._said: Entry | None = None
        #: The worker's own account, when its log could not take it.
        self._failure: events.RunError | None = None
        self._requested_by: str | None = None
        self._stop_sent = False
        self._kill_due: float | None = None
        self._killed: str | None = None

    def run(self, spawn: Spawn) -> RunResult:
        """Start the worker and watch it to its end."""
        contract = self._write_contract()
        self.worker = spawn(
            self._directory.contract(self._opening.attempt, 0),
            self._directory.rank_output(self._opening.attempt, 0),
            {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"},
        )
        exit_ = self._watch()
        self._merge()
        return self._end(exit_, contract)

    def _write_contract(self) -> WorkerContract:
        plan, attempt = self._plan, self._opening.attempt
        self._write_record([attrs.asdict(provenance(one.ref, job_dir=plan.job_dir)) for one in plan.selected], {})
        contract = WorkerContract(
            trainer_plugin=plan.spec.trainer,
            job_spec_path=str(self._directory.record),
            checkpoints_dir=str(plan.checkpoints_dir),
            samples_dir=str(plan.samples_dir),
            events_path=str(self._directory.rank_events(attempt, 0)),
            run_dir=str(self._directory.path),
            attempt=attempt,
            attempts_dir=str(self._directory.attempts),
            start_from=self._opening.start_from,
        )
        contract.write(self._directory.contract(attempt, 0))
        return contract

    def _write_record(self, plugins: Sequence[Mapping[str, Any]], environment: Mapping[str, Any]) -> None:
        RunRecord(
            job=self._plan.spec.to_json(),
            job_dir=str(self._plan.job_dir),
            plugins=plugins,
            environment={"hostcore": __version__, **environment},
            parent=self._opening.start_from or None,
            submitted_ms=self._started_ms,
        ).write(self._directory.record)

    def _watch(self) -> WorkerExit:
        """Listen to the worker until it has ended."""
        assert self.worker is not None
        while True:
            try:
                kind, content = self.worker.channel.receive(TICK_SECONDS)
            except TimeoutError:
                exit_ = self.worker.poll()
            except EOFError:
                exit_ = self.worker.wait()
            else:
                exit_ = None
                self._hear(kind, content)
            self._merge()
            if exit_ is not None:
                return exit_
            self._renew_lease()
            self._pass_on_stop()

    def _hear(self, kind: str, content: Any) -> None:
        """Act on what the worker says over the line."""
        if kind == "invalid":
            self._withdraw([HostcoreError(**error) for error in content])
        elif kind == "ready":
            self._submit(content)
        elif kind == "failed":
            self._failure = events.RunError(**content)

    def _withdraw(self, errors: list[HostcoreError]) -> None:
        """The job is invalid: whoever has heard of the run hears its end, and nothing of it stays."""
        assert self.worker is not None
        if self._log:
            failed = events.RunFailed(
                error=events.RunError(type="InvalidJob", message=str(Errors(errors)), hint=errors[0].hint)
            )
            self._publish(Entry(payload=failed, step=0, epoch=0))
            self._audience.close()
            self._log.close()
        self.worker.wait()
        self._opening.withdraw()
        raise Errors(errors)

    def _submit(self, summary: Mapping[str, Any]) -> None:
        """The job is valid: record what it runs with, tell the reporters, and let the worker go."""
        assert self.worker is not None
        supervised = [attrs.asdict(provenance(one.ref)) for one in in_room(self._plan.selected, "supervisor")]
        self._write_record([*summary["plugins"], *supervised], summary["environment"])
        self._open_log()
        job = self._plan.job
        self._publish(
            Entry(
                payload=events.RunSubmitted(
                    trainer=job.trainer,
                    max_steps=job.max_steps,
                    epochs=job.epochs,
                    total_steps=summary["total_steps"],
                    num_rows=summary["num_rows"],
                    batch_size=job.batch_size,
                    devices=[summary["device"]],
                ),
                step=None,
                epoch=None,
            )
        )
        self.submitted = True
        self.worker.channel.send("go", {})

    def _open_log(self) -> EventLog:
        log = EventLog(self._directory.events, run_id=self._directory.run_id, attempt=self._opening.attempt)
        self._log = log
        context = ReporterContext(
            run_id=self._directory.run_id,
            attempt=self._opening.attempt,
            job=self._plan.job,
            run_dir=str(self._directory.path),
            last_seq=log.last_seq,
        )
        self._note_failures(self._audience.open(context))
        return log

    def _publish(self, entry: Entry) -> None:
        """Number an event, write it, and tell everybody."""
        assert self._log is not None
        self._note_failures(self._audience.tell(self._log.append(entry)))

    def _note_failures(self, failures: list[Failure]) -> None:
        for failure in failures:
            payload = events.ReporterFailed(reporter=failure.label, message=failure.message)
            self._publish(Entry(payload=payload, step=self._step, epoch=self._epoch))

    def _merge(self) -> None:
        """Move the worker's new events into the log."""
        for entry in self._tail.read():
            if entry.step is not None and entry.step != self._step:
                self._step, self._last_progress_ms = entry.step, now_ms()
            self._epoch = self._epoch if entry.epoch is None else entry.epoch
            if isinstance(entry.payload, events.Metrics):
                self._metrics = entry.payload.metrics
            if isinstance(entry.payload, events.StopRequested):
                self._requested_by = self._requested_by or entry.payload.requested_by
            if is_end(entry):
                self._said = entry
            else:
                self._publish(entry)

    def _renew_lease(self) -> None:
        if self._clock() >= self._lease_due:
            self._lease_due = self._clock() + RENEW_SECONDS
            Lease(
                process=ProcessIdentity.current(),
                attempt=self._opening.attempt,
                step=self._step,
                last_progress_ms=self._last_progress_ms,
                renewed_ms=now_ms(),
            ).write(self._directory.lease)

    def _pass_on_stop(self) -> None:
        """Tell the worker of a signal; kill it at the second Ctrl-C, or when the grace of a preemption is over."""
        assert self.worker is not None
        asked = self._interrupts.first
        if asked is None:
            return
        if not self.submitted:
            self._kill(f"{asked.reason} before the run had started")
        elif not self._stop_sent:
            self._stop_sent = True
            self.worker.channel.send("stop", attrs.asdict(asked))
            if asked.status == "preempted":
                self._kill_due = self._clock() + self._plan.spec.grace_seconds
        if self._interrupts.forced:
            self._kill("the worker was killed by a second Ctrl-C, without a last checkpoint")
        elif self._kill_due is not None and self._clock() >= self._kill_due:
            self._kill(f"the worker did not stop within {self._plan.spec.grace_seconds:g} s and was killed")

    def _kill(self, reason: str) -> None:
        assert self.worker is not None
        if self._killed is None:
            self._killed = reason
            self.worker.kill()

    def _end(self, exit_: WorkerExit, contract: WorkerContract) -> RunResult:
        """Write the end: plot, terminal event, result, and no lease any more."""
        log = self._log or self._open_log()
        self._draw()
        payload = self._end_payload(exit_)
        entry = self._said or Entry(payload=payload, step=self._step, epoch=self._epoch)
        self._publish(attrs.evolve(entry, payload=payload))
        self._note_failures(self._audience.close())
        log.close()
        asked = self._interrupts.first
        status = STATUS[type(payload)]
        checkpoints = committed(self._plan.checkpoints_dir)
        result = RunResult(
            run_id=self._directory.run_id,
            status=status,
            exit_code=EXIT_CODES[status],
            reason=getattr(payload, "reason", None),
            requested_by=self._requested_by or (asked.requested_by if asked and self._killed else None),
            attempt=self._opening.attempt,
            step=self._step,
            epoch=self._epoch,
            metrics=self._metrics,
            final_checkpoint=self._shown(contract, checkpoints[-1].folder_name) if checkpoints else None,
            error=payload.error if isinstance(payload, events.RunFailed) else None,
            started_ms=self._started_ms,
            ended_ms=now_ms(),
        )
        result.write(self._directory.result)
        self._directory.lease.unlink(missing_ok=True)
        return result

    def _end_payload(self, exit_: WorkerExit) -> Any:
        if self._said is not None:
            return self._said.payload
        if self._killed is not None and self._interrupts.first is not None:
            return forced(self._interrupts.first.status, self._killed)
        output = self._directory.rank_output(self._opening.attempt, 0)
        return events.RunFailed(error=self._failure or died(exit_, step=self._step, output=output))

    def _draw(self) -> None:
        """Draw the loss curve. A picture that fails is a warning."""
        try:
            plot_loss(self._directory.events, self._directory.loss_plot, title=self._directory.run_id)
        except Exception as error:  # noqa: BLE001 - a picture must not cost the run its end
            warning = events.Warning(code="plot.failed", message=f"the loss curve could not be drawn: {error!r}")
            self._publish(Entry(payload=warning, step=self._step, epoch=self._epoch))

    def _shown(self, contract: WorkerContract, name: str) -> str:
        return os.path.relpath(Path(contract.checkpoints_dir) / name, self._directory.path)
