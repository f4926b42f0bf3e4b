"""The uploads of one attempt: what the supervisor calls.

::

    checkpoint_saved ─▶ hear ─────────┐
    what earlier attempts have left ──┴▶ scheduler ─┬▶ queue of uploader A ─▶ its threads
                                                    └▶ queue of uploader B ─▶ its threads
    uploads.jsonl ◀──── what has arrived, compared with what was sent ◀──── upload_artifact

The supervisor's loop never waits. The scheduler has a thread of its own: it takes inventory, copies documents, hands
units to the queues, and removes the checkpoints that the worker has retired and that have arrived everywhere.
"""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from queue import Empty, Queue, SimpleQueue

from hostcore.runs.directory import RunDirectory
from hostcore.supervisor.delivery.artifacts_source import ArtifactSource, UploadLimits
from hostcore.supervisor.delivery.backlog import Pending
from hostcore.supervisor.delivery.calls import lower_priority
from hostcore.supervisor.delivery.ledger import Ledger, LedgerBusy
from hostcore.supervisor.delivery.spool import Spool
from hostcore.supervisor.delivery.subscriber import Subscriber
from hostcore.supervisor.delivery.subscription import Destination
from hostcore.supervisor.delivery.units import Inventory, Unit
from hostcore.supervisor.delivery.upload_scheduler import UploadScheduler
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.events import Event
from hostcore_hookspecs.job import Job
from hostcore_hookspecs.uploader import UploadContext


class Uploads:
    """Copies what an attempt produces to every destination. Nothing here waits for an uploader.

    ::

        start ─▶ hear, hear, …  ─▶ finish(final=False) ─▶ until is_drained ─▶ missing?
              ─▶ the terminal event, result.json ─▶ finish(final=True) ─▶ until is_drained ─▶ abandon

    Without destinations all of it does nothing.

    :param destinations: The uploaders.
    :param base_uri: The job's ``checkpoint_base_uri``.
    :param prefix: See :func:`prefix_of`.
    :param spool_bytes: Of retired checkpoints that may wait; 0: no limit.
    :param spool_seconds: How long a checkpoint may wait, unless it is the newest; 0: no limit.
    :param checkpoints_dir: Where checkpoints lie, if not in the run directory.
    :param samples_dir: Where generated samples lie, if not in the run directory.
    :param owed: Keys of destinations that are not served here; what they lack is kept.
    """

    def __init__(
        self,
        destinations: Sequence[Destination],
        directory: RunDirectory,
        *,
        attempt: int,
        job: Job,
        base_uri: str | None,
        prefix: str,
        spool_bytes: int,
        spool_seconds: float,
        checkpoints_dir: Path | None = None,
        samples_dir: Path | None = None,
        owed: Collection[str] = (),
        limits: UploadLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._attempt = attempt
        self._limits = limits or UploadLimits()
        self._clock = clock
        self._abandoned = threading.Event()
        self._context = UploadContext(
            run_id=directory.run_id,
            attempt=attempt,
            job=job,
            run_dir=str(directory.path),
            base_uri=base_uri,
            prefix=prefix,
            is_canceled=self._abandoned.is_set,
        )
        self._news: SimpleQueue[events.Payload] = SimpleQueue()
        #: What the scheduler's thread is to do, in this order.
        self._todo: Queue[Callable[[], None]] = Queue()
        self._uploaders = [
            Subscriber(
                one,
                ArtifactSource(one, emit=self._news.put, when_done=self._note_done),
                limits=self._limits,
                emit=self._news.put,
                clock=clock,
            )
            for one in destinations
        ]
        self._scheduler = UploadScheduler(
            self._uploaders,
            Inventory.of(directory, checkpoints=checkpoints_dir, samples=samples_dir),
            Spool(directory.spool),
            tell=self._news.put,
            spool_bytes=spool_bytes,
            spool_seconds=spool_seconds,
            limits=self._limits,
            owed=owed,
            clock=clock,
        )
        self._ledger: Ledger | None = None
        #: Whether what earlier attempts have left is in the queues.
        self._has_begun = False
        self._is_final = False
        #: Whether a unit is looked at, hashed or copied just now, before it is put into the queues.
        self._is_at_work = False
        #: Whether nothing is going to be done any more.
        self._is_over = not self._uploaders

    def start(self) -> None:
        """Open the uploaders and take up what earlier attempts have left, all in threads.

        The claim of the attempt and the run's record go first.
        """
        if self._uploaders:
            threading.Thread(target=self._run_scheduler, name="hostcore uploads", daemon=True).start()

    def hear(self, event: Event) -> None:
        """Take in an event that was written to the log. Does no I/O."""
        payload = event.payload
        if self._is_over or not isinstance(payload, (events.CheckpointSaved, events.SampleSaved)):
            return
        if event.src is not None and event.src[1] != self._attempt:
            return  # of an earlier attempt, whose supervisor died before it could read this: see scan
        self._todo.put(partial(self._scheduler.offer_saved, payload))

    @property
    def has_begun(self) -> bool:
        """True once the undelivered units of earlier attempts are in the queues."""
        return self._has_begun

    def news(self) -> list[events.Payload]:
        """What has happened since the last call: ``ArtifactUploaded``, ``UploadFailed``, ``Warning``.

        To be written to the log, but not behind the terminal event.
        """
        news = []
        while not self._news.empty():
            news.append(self._news.get())
        return news

    def pending(self) -> Pending:
        """What is left, and what was done."""
        backlogs = {one.subscription.name: one.source.backlog(one.outage_seconds) for one in self._uploaders}
        return Pending(by_uploader=backlogs)

    def finish(self, *, final: bool) -> None:
        """The attempt has ended: no more checkpoints and samples will come.

        :param final: Whether its terminal event and ``result.json`` are written, too: then config, plots, logs and at
            last ``result.json`` are copied, and the uploaders closed after that.
        """
        if not self._uploaders:
            return
        self._todo.put(self._scheduler.scan)
        if final:
            self._todo.put(self._scheduler.scan_documents)
        self._todo.put(partial(self._hurry, final=final))

    def _hurry(self, *, final: bool) -> None:
        for uploader in self._uploaders:
            uploader.hurry(last=final)
        self._is_final = final

    def is_drained(self) -> bool:
        """Whether nothing is left to do: everything has arrived or was given up; after the final end, also closed."""
        return self._is_over or (not self._is_final and self._is_idle())

    def _is_idle(self) -> bool:
        # What the scheduler hands out is in a queue before its own work counts as done; and an uploader that is done
        # with a unit has told the scheduler before it is idle.
        return (
            self._has_begun
            and not self._todo.unfinished_tasks
            and all(uploader.is_idle for uploader in self._uploaders)
            and not self._todo.unfinished_tasks
        )

    def is_stuck(self) -> bool:
        """Whether nothing gets done: the scheduler is idle, and each uploader that has work left is in an outage."""
        return not self._is_at_work and all(map(self._gets_nothing_through, self._uploaders))

    def _gets_nothing_through(self, uploader: Subscriber[ArtifactSource]) -> bool:
        if uploader.source.is_empty and not uploader.busy:
            return True
        return uploader.outage_seconds > 0 or uploader.calls_longer_than(self._limits.open_seconds, method="open")

    def missing(self) -> list[str]:
        """The labels of required uploaders that have not copied everything."""
        is_known = self._has_begun and not self._todo.unfinished_tasks
        required = [uploader for uploader in self._uploaders if uploader.subscription.required]
        is_whole = is_known and not self._scheduler.unreadable
        return [one.subscription.label for one in required if not (is_whole and one.source.is_complete)]

    def abandon(self) -> None:
        """Stop. What is left stays in the run directory, for the next attempt or ``hostcore upload``."""
        self._abandoned.set()
        self._is_over = True
        for uploader in self._uploaders:
            uploader.abandon()
        self._todo.put(_nothing)  # wakes the thread
        if self._ledger is not None:
            self._ledger.close()
        self._scheduler.drop_copies()

    # -- the scheduler's thread ----------------------------------------------------------------------------------------

    def _note_done(self, unit: Unit) -> None:
        self._todo.put(partial(self._scheduler.retire, unit))

    def _run_scheduler(self) -> None:
        lower_priority()
        ledger = self._ledger = self._hold_ledger()
        if ledger is None:
            while not self._abandoned.wait(self._limits.tick_seconds):
                self._guarded(self._scheduler.remove_retired, gets_on=False)
            return
        for uploader in self._uploaders:
            uploader.source.hold(ledger)
            uploader.start(self._context)
        self._guarded(partial(self._scheduler.begin, ledger, self._attempt))
        self._has_begun = True
        looked = self._clock()
        while not (self._abandoned.is_set() or (self._is_final and self._is_idle())):
            self._do_next()
            if self._clock() - looked >= self._limits.tick_seconds:
                looked = self._clock()
                self._guarded(self._scheduler.look, gets_on=False)
        self._guarded(self._scheduler.clear)
        ledger.close()
        self._is_over = True

    def _do_next(self) -> None:
        try:
            work = self._todo.get(timeout=min(self._limits.tick_seconds, 0.1 if self._is_final else 1.0))
        except Empty:
            return
        if not self._abandoned.is_set():
            self._guarded(work)
        self._todo.task_done()

    def _guarded(self, work: Callable[[], None], *, gets_on: bool = True) -> None:
        self._is_at_work = gets_on
        try:
            work()
        except Exception as error:  # noqa: BLE001 - one thing that cannot be uploaded must not keep the others
            self._scheduler.note_trouble(error)
        finally:
            self._is_at_work = False

    def _hold_ledger(self) -> Ledger | None:
        """The ledger, as soon as no other process holds it; None if it cannot be had."""
        told = False
        while not self._abandoned.is_set():
            try:
                ledger = Ledger(self._directory.uploads, attempt=self._attempt)
            except LedgerBusy as error:
                if not told:
                    self._news.put(events.Warning(code=error.code, message=f"{error.message}; uploads wait for it"))
                told = True
                self._guarded(self._scheduler.remove_retired, gets_on=False)
                self._abandoned.wait(self._limits.lock_seconds)
            except (OSError, HostcoreError) as error:
                for uploader in self._uploaders:
                    uploader.source.refuse(f"the ledger of uploads cannot be written: {error}")
                self._is_over = True
                return None
            else:
                return ledger
        return None


def _nothing() -> None:
    """Nothing is to be done."""
