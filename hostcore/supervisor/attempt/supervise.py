"""The supervisor's part of a run: start the workers, merge and report their events, pass on signals, write the end.

::

    start a worker for each rank ─▶ it checks the job ─▶ "invalid" from any: withdraw, exit 2
                                                      └▶ "ready" from all: run_submitted, "go"
    until all have ended:   renew the lease;  merge their events ▸ events.jsonl;  pass on requests to stop
    the plot;  what must be delivered;  the terminal event, result.json;  what else can be delivered

Reporters and uploaders read the log in threads of their own: :mod:`hostcore.supervisor.delivery.delivery`.

When a rank fails or dies, the others cannot go on: they have a moment to say what they see of it, and are killed.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FunctionType
from typing import Any, Final

import attrs

from hostcore.errors import Errors
from hostcore.events.merger import Entry
from hostcore.job.data import with_brought
from hostcore.job.spec import JobSpec, job_view
from hostcore.plugins.errors import of_content
from hostcore.plugins.extensions import load_extension
from hostcore.runs.control import read_cancel
from hostcore.runs.documents import from_document
from hostcore.runs.findings import OTHER_CODE, OTHER_PLUGINS
from hostcore.runs.record import RunRecord
from hostcore.runs.result import INEXACT_RESUME, UNREPAIRABLE, Left, RunResult
from hostcore.runs.used import changed_plugins, recorded_use
from hostcore.supervisor.attempt.documents import result_of, write_contracts, write_record
from hostcore.supervisor.attempt.ending import End, failing_for
from hostcore.supervisor.attempt.journal import Journal, Listener
from hostcore.supervisor.attempt.lease_guard import LeaseGuard, RunDirectoryGone, RunTakenOver
from hostcore.supervisor.attempt.outcome import Outcome
from hostcore.supervisor.attempt.restarting import Restart
from hostcore.supervisor.attempt.stopping import LEAVE_SECONDS, Limits, Stopping
from hostcore.supervisor.delivery.artifacts_source import UploadLimits
from hostcore.supervisor.delivery.delivery import SHORT_WAIT, Delivery, WaitLimits
from hostcore.supervisor.delivery.subscription import destinations_of, subscriptions_of, upload_context
from hostcore.supervisor.delivery.units import Inventory
from hostcore.supervisor.delivery.uploads import Uploads
from hostcore.supervisor.devices import shared_device
from hostcore.supervisor.interrupts import Interrupts
from hostcore.supervisor.opening import Opening, RunConflict, require_same_data
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.quick_checks import quick_warnings
from hostcore.supervisor.workers.session import TICK_SECONDS, Member, WorkerSession
from hostcore.supervisor.workers.spawn import LocalRanks, Spawn
from hostcore.supervisor.writable import unwritable
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import HostcoreError, RunError
from hostcore_hookspecs.kinds import FUNCTIONS_GROUP

#: How long the other ranks may take to say theirs, once one has failed.
SETTLE_SECONDS: Final = 2.0
#: Of the time that is left to a run that was asked to end, the part of the end itself and its events to the reporters.
_RESERVE_SECONDS: Final = 5.0


def supervise(
    plan: RunPlan,
    opening: Opening,
    interrupts: Interrupts,
    *,
    restart: Restart | None = None,
    listeners: Sequence[Listener] = (),
    spawn: Spawn | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> RunResult:
    """Run one attempt to its end.

    :param interrupts: Entered before the attempt was opened, so that no signal leaves it half open.
    :param restart: Why it is started, if it is one more after a failure.
    :param listeners: Told every event while it is written.
    :param spawn: Starts the ranks; None: as processes of this machine.
    :raises Errors: When the worker finds the job invalid; then the attempt leaves no trace.
    :raises RunUnwritable: When the run directory cannot be written, before the worker was told to go; then the attempt
        leaves no trace either. Later that is a failure of the run.
    """
    attempt = _Supervision(plan, opening, interrupts, restart=restart, listeners=listeners, clock=clock)
    try:
        return attempt.run(spawn or LocalRanks(plan.spec.ranks, plan.devices))
    except OSError as error:
        if attempt.released:
            return attempt.break_off(error)
        attempt.workers.end()
        told = attempt.explained(error)
        opening.withdraw()
        raise told from error
    except (Errors, RunTakenOver):  # the job was refused, and the attempt withdrawn; or the run is another's now
        raise
    except HostcoreError as error:
        if attempt.released:
            return attempt.break_off(error)
        attempt.workers.end()
        opening.withdraw()
        raise
    finally:
        attempt.workers.close()  # what is left of them: processes that they started, or all after an error here
        attempt.delivery.abandon()


class _Supervision:
    """Watches the workers of one attempt."""

    def __init__(
        self,
        plan: RunPlan,
        opening: Opening,
        interrupts: Interrupts,
        *,
        restart: Restart | None,
        listeners: Sequence[Listener],
        clock: Callable[[], float],
    ) -> None:
        self._plan = plan
        self._opening = opening
        self._directory = opening.directory
        self._restart = restart
        self._clock = clock
        self._started_ms = opening.started_ms
        self._lease_guard = LeaseGuard(opening.directory, opening.attempt)
        self.workers = WorkerSession()
        #: True once the workers have been released to train.
        self.released = False
        #: What may hurt the attempt, as far as could be seen before it.
        self._doubts: Sequence[events.Warning] = ()
        #: Whether the run directory is of no use any more.
        self._is_broken_off = False
        spec = plan.spec
        self._stopping = Stopping(
            interrupts,
            Limits(grace=spec.grace_seconds, max_runtime=spec.max_runtime_seconds, stall=spec.stall_seconds),
            read_cancel=lambda: read_cancel(opening.directory, opening.attempt),
            clock=clock,
        )
        self.delivery = Delivery(
            subscriptions_of(plan.reporters, spec.reporters),
            _uploads_of(plan, opening, clock),
            opening.directory,
            leave_by=self._stopping.leave_by,
            meanwhile=self._keep_on,
            reserve_seconds=min(_RESERVE_SECONDS, spec.grace_seconds / 5),
            clock=clock,
        )
        self._journal = Journal(
            opening,
            plan.job,
            listeners,
            delivery=self.delivery,
            ranks=spec.ranks,
            may_write=self._lease_guard.check,
        )
        self._outcome = Outcome(self.workers, self._journal, self._stopping)

    def run(self, spawn: Spawn) -> RunResult:
        """Start the workers and watch them to their end."""
        attempt, ranks = self._opening.attempt, range(self._plan.spec.ranks)
        self._doubts = list(quick_warnings(self._plan))
        self._write_record()
        write_contracts(self._plan, self._opening)
        if self._is_stopped_within(self._restart.wait_seconds if self._restart else 0.0):
            return self._end()
        directory = self._directory
        files = [(directory.contract(attempt, rank), directory.rank_output(attempt, rank)) for rank in ranks]
        self.workers.start(spawn, files)
        self._lease_guard.show([member.worker.pid for member in self.workers.members])
        self._watch()
        self._lease_guard.require_held()
        self._journal.merge(at_once=None)
        self._refuse_inexact()
        return self._end()

    def _write_record(self, summary: Mapping[str, Any] | None = None) -> None:
        write_record(
            self._plan,
            self._opening.record_before,
            started_ms=self._started_ms,
            attempt=self._opening.attempt,
            world_size=self._plan.spec.ranks,
            summary=summary,
        )

    def _is_stopped_within(self, seconds: float) -> bool:
        """Wait, holding the run; whether a request comes meanwhile not to start it at all."""
        end = self._clock() + seconds
        while not self._stopping.asked_before_start():
            if self._clock() >= end:
                return False
            self._keep_on()
            time.sleep(TICK_SECONDS)
        return True

    def _keep_on(self) -> None:
        """What is due now and then, as long as the attempt is not over: the lease, and the news of those who read."""
        if self._is_broken_off:
            return
        self._lease_guard.renew(step=self._journal.step, last_progress_ms=self._journal.last_progress_ms)
        self._journal.note_news()

    def _watch(self) -> None:
        """Listen to the workers until all have ended."""
        while not self.workers.is_over:
            for member, kind, content in self.workers.listen(TICK_SECONDS):
                self._hear(member, kind, content)
            self._keep_on()
            ended = [member.rank for member in self.workers.members if member.ended_ms is not None]
            self._journal.merge(at_once=ended)
            if self._refuse_inexact():
                self._stopping.see_off(self.workers, seconds=0.0)
            elif self._outcome.is_complete:
                self._stopping.see_off(self.workers, seconds=LEAVE_SECONDS)
            elif len(self.workers.members) > 1 and self._outcome.has_failed:
                self._stopping.see_off(self.workers, seconds=SETTLE_SECONDS if self.released else 0.0)
            else:
                self._stopping.pass_on(self.workers, released=self.released)
                if self._journal.is_training:
                    self._stopping.watch(self.workers, self._journal.signs_of_life)

    def _refuse_inexact(self) -> bool:
        """Fail an attempt that trained steps again with other metrics, if its job says so."""
        found = self._journal.inexact_resumes if self._plan.spec.on_inexact_resume == "fail" else ()
        if found:
            hint = f'{found[0].hint}; `"on_inexact_resume": "warn"` goes on all the same'
            self._outcome.tell(0, RunError(type=INEXACT_RESUME, message=found[0].message, hint=hint))
        return bool(found)

    def _hear(self, member: Member, kind: str, content: Any) -> None:
        """Act on what a worker says over the line."""
        if kind == "invalid":
            self._refuse(member.rank, Errors(of_content(content, self._plan.spec.origins)))
        elif kind == "ready":
            if summaries := self.workers.summaries:
                self._release(summaries)
        elif kind == "failed":
            self._outcome.tell(member.rank, RunError(**content))
        elif kind == "said":
            self._journal.hear_end(member.rank, content["line"].encode(), content["offset"])

    def _refuse(self, rank: int, errors: Errors) -> None:
        """The job is invalid: listeners that know of the run hear its end, and nothing of it stays.

        An attempt of an older run that is in the journal already stays, as failed: numbers are not given twice. So does
        one that was submitted with ``--detach``: its submitter finds out from the run directory.
        """
        if self._journal.is_open or self._opening.submitted:
            error = RunError(type="InvalidJob", message=str(errors), rank=rank)  # which has the hints in it
            self._outcome.tell(rank, error)
            if not self._opening.is_new:
                return
            self._journal.end(events.RunFailed(error=error))
        self.workers.end()  # they have said all there is to say; a thread that a plugin started could keep them
        self._opening.withdraw()
        raise errors

    def _release(self, summaries: Sequence[Mapping[str, Any]]) -> None:
        """Record what a valid job runs with, begin its log, and release the workers.

        :param summaries: The findings of each rank about the job.
        """
        summary, devices = summaries[0], [one["device"] for one in summaries]
        on_one_machine = self._plan.spec.world_size is None
        if on_one_machine and (error := shared_device(self._plan.spec, devices)):
            self._refuse(0, Errors([error]))
            return
        if not self._plan.restarts_left:  # the next attempt may choose another one of them
            self._plan.devices.keep(devices)
        try:
            spec = self._with_brought([one.get("brought", {}) for one in summaries])
        except Errors as errors:
            self._refuse(0, errors)
            return
        self._write_record(summary)
        changed = self._changed_plugins()
        if changed and self._plan.same_plugins:
            hint = "install what the run was begun with, or leave --same-plugins out"
            self._refuse(0, Errors([RunConflict(f"--same-plugins: {changed}", pointer="/run_id", hint=hint)]))
            return
        job = self._journal.job = job_view(spec)
        self._journal.open()
        submitted = events.RunSubmitted(
            trainer=job.trainer,
            max_steps=job.max_steps,
            epochs=job.epochs,
            total_steps=summary["total_steps"],
            num_rows=summary["num_rows"],
            batch_size=job.batch_size,
            devices=devices,
        )
        self._journal.write(Entry(payload=submitted, step=None, epoch=None))
        if self._restart is not None:
            self._journal.note(events.Warning(code="run.restarted", message=self._restart.message))
        if (trouble := self._plan.devices.trouble) and any(one.startswith("cuda") for one in devices):
            message = f"other runs may use the same GPUs: {trouble}"
            self._journal.note(events.Warning(code="device.unleased", message=message))
        for doubt in self._doubts:
            self._journal.note(doubt)
        for message in (*summary["deprecated"], *self._plan.deprecated):
            self._journal.note(events.Warning(code="plugin.deprecated", message=message))
        for message in dict.fromkeys((*summary.get("other_code", ()), *self._plan.other_code)):
            self._journal.note(events.Warning(code=OTHER_CODE, message=message))
        if changed:
            self._journal.note(events.Warning(code=OTHER_PLUGINS, message=changed))
        self.released = True
        self.workers.send("go", {})

    def _changed_plugins(self) -> str:
        """The plugins that this attempt has otherwise than the one before; empty if there are none."""
        file, attempt = self._directory.record, self._opening.attempt
        changed = changed_plugins(recorded_use(RunRecord.read(file), file), attempt - 1, attempt)
        what = "; ".join(changed)
        return f"attempt {attempt} goes on with other plugins than attempt {attempt - 1}: {what}" if changed else ""

    def _with_brought(self, by_rank: Sequence[Mapping[str, Any]]) -> JobSpec:
        """The job with the data that its trainer brings.

        :raises Errors: When it is not what all ranks go on with, or not what the run was made for.
        """
        spec, before = with_brought(self._plan.spec, by_rank), self._opening.record_before
        if before is not None:
            require_same_data(spec, from_document(RunRecord, before, file=self._directory.record), self._directory)
        return spec

    def _end(self) -> RunResult:
        """Write the end, with the time that those who read it need: plot, terminal event, result, no lease any more."""
        if not self._journal.is_open:
            self._journal.open()
        self._draw()
        said, rank = self._outcome.end(released=self.released)
        if not self._will_restart(said):
            self._plan.devices.close()  # the workers have ended; what is left to deliver needs no GPU
        limits = SHORT_WAIT if self._will_restart(said) else WaitLimits()
        payload = failing_for(said, self.delivery.settle(limits))
        self._journal.note_news()
        self._journal.end(payload, said_by=rank if payload is said else None)
        result = self._result(payload)
        result.write(self._directory.result)
        return attrs.evolve(result, left=self._see_off(limits))

    def _see_off(self, limits: WaitLimits) -> list[Left]:
        """The end stands: give those who read it their time. Nothing that goes wrong now changes how the run has ended.

        :return: What they have left.
        """
        left = [Left(message=f"{one.reporter} failed at the end: {one.message}") for one in self._journal.failures]
        try:
            self.delivery.finish(limits)
            self._lease_guard.release()
        except RunTakenOver:
            raise
        except (OSError, HostcoreError) as error:
            left.append(Left(message=f"the run has ended, and then the run directory could not be used: {error}"))
        return [*left, *self.delivery.left]

    def _will_restart(self, payload: End) -> bool:
        """Whether another attempt follows, which goes on with what is not delivered."""
        failed = isinstance(payload, events.RunFailed) and payload.error.type not in UNREPAIRABLE
        return failed and self._plan.restarts_left > 0 and self._stopping.asked is None

    def break_off(self, error: OSError | HostcoreError) -> RunResult:
        """End a run whose directory cannot be written or read any more, and write of its end what can be written."""
        self.workers.end()
        told = self.explained(error)
        own = RunError(type=type(told).__name__, message=told.message, hint=told.hint)
        payload = events.RunFailed(error=self._outcome.failure or own)
        result = self._result(payload)
        with suppress(OSError):
            self._lease_guard.release()  # on a full disk, its block is the one for the result
            result.write(self._directory.result)
        self._is_broken_off = True
        with suppress(OSError, RunDirectoryGone):
            if self._journal.is_open:
                self._journal.end(payload)
                self.delivery.finish(SHORT_WAIT)
        return attrs.evolve(result, left=self.delivery.left)

    def explained(self, error: OSError | HostcoreError) -> HostcoreError:
        """What an error says about the run directory. To be asked before anything of it is withdrawn."""
        if not isinstance(error, OSError):
            return error
        is_gone = not self._directory.record.exists()
        return RunDirectoryGone(self._directory) if is_gone else unwritable(self._directory.path, error)

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
        """Draw the loss curve, if a distribution that can is installed. A picture that fails is a warning."""
        if not self._plan.plots:
            return
        try:
            if registered := self._plan.discovered.extensions_of(FUNCTIONS_GROUP).get("plot_loss"):
                draw = load_extension(registered, FunctionType)
                draw(self._directory.events, self._directory.loss_plot, title=self._directory.run_id)
        except Exception as error:  # noqa: BLE001 - a picture must not cost the run its end
            self._journal.note(events.Warning(code="plot.failed", message=f"no loss curve was drawn: {error!r}"))


def _uploads_of(plan: RunPlan, opening: Opening, clock: Callable[[], float]) -> Uploads:
    spec, directory = plan.spec, opening.directory
    return Uploads(
        destinations_of(plan.uploaders, spec.uploaders, base_uri=spec.checkpoint_base_uri),
        Inventory.of(directory, checkpoints=plan.checkpoints_dir, samples=plan.samples_dir),
        upload_context(spec, directory, opening.attempt, base_uri=spec.checkpoint_base_uri),
        limits=UploadLimits(spool_bytes=spec.spool_bytes, spool_seconds=spec.spool_seconds),
        clock=clock,
    )
