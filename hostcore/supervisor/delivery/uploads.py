"""The uploads of one attempt: what the supervisor calls.

::

    checkpoint_saved ─▶ on_event ─────┐
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
from queue import Empty, Queue, SimpleQueue

import attrs

from hostcore.runs.result import Left
from hostcore.supervisor.delivery.artifacts_source import ArtifactSource, UploadLimits
from hostcore.supervisor.delivery.backlog import Backlog, Backlogs
from hostcore.supervisor.delivery.calls import lower_priority
from hostcore.supervisor.delivery.ledger import Ledger, LedgerBusy
from hostcore.supervisor.delivery.subscriber import Subscriber
from hostcore.supervisor.delivery.subscription import Destination
from hostcore.supervisor.delivery.units import Inventory, Unit
from hostcore.supervisor.delivery.upload_scheduler import UploadScheduler
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.events import Event
from hostcore_hookspecs.uploader import UploadContext


class Uploads:
    """Copies what an attempt produces to every destination. Nothing here waits for an uploader.

    ::

        start ─▶ on_event, …  ─▶ finish(final=False) ─▶ until is_drained ─▶ missing?
              ─▶ the terminal event, result.json ─▶ finish(final=True) ─▶ until is_drained ─▶ abandon

    Without destinations all of it does nothing.

    :param destinations: The uploaders.
    :param context: The argument of their ``open``, but for ``is_canceled``.
    :param owed: Keys of destinations that are not uploaded to here; what they lack is kept.
    """

    def __init__(
        self,
        destinations: Sequence[Destination],
        inventory: Inventory,
        context: UploadContext,
        *,
        owed: Collection[str] = (),
        limits: UploadLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = inventory.directory
        self._attempt = context.attempt
        self._limits = limits = limits or UploadLimits()
        self._clock = clock
        self._abandoned = threading.Event()
        self._context = attrs.evolve(context, is_canceled=self._abandoned.is_set)
        self._events: SimpleQueue[events.Payload] = SimpleQueue()
        emit = self._events.put
        #: The work of the scheduler's thread, in this order.
        self._todo: Queue[Callable[[], None]] = Queue()
        self._uploaders = [
            Subscriber(ArtifactSource(one, when_done=self._note_done, limits=limits, emit=emit, clock=clock))
            for one in destinations
        ]
        self._scheduler = UploadScheduler(self._uploaders, inventory, emit=emit, limits=limits, owed=owed, clock=clock)
        self._ledger: Ledger | None = None
        #: True once the undelivered units of earlier attempts are in the queues.
        self.has_begun = False
        self._is_final = False
        #: True while a unit is read, hashed or copied, before it is put into the queues.
        self._is_at_work = False
        #: True once nothing is going to be done any more.
        self._is_over = not self._uploaders

    def start(self) -> None:
        """Open the uploaders and take up what earlier attempts have left, all in threads.

        The claim of the attempt and the run's record go first.
        """
        if self._uploaders:
            threading.Thread(target=self._run_scheduler, name="hostcore uploads", daemon=True).start()

    def on_event(self, event: Event) -> None:
        """Take in an event that was written to the log. Does no I/O."""
        payload = event.payload
        if self._is_over or not isinstance(payload, (events.CheckpointSaved, events.SampleSaved)):
            return
        if event.src is not None and event.src[1] != self._attempt:
            return  # of an earlier attempt, whose supervisor died before it could read this: see scan
        self._todo.put(partial(self._scheduler.offer_saved, payload))

    def drain_events(self) -> list[events.Payload]:
        """Return the events since the last call: ``ArtifactUploaded``, ``UploadFailed``, ``Warning``.

        To be written to the log, but not behind the terminal event.
        """
        drained = []
        while not self._events.empty():
            drained.append(self._events.get())
        return drained

    def pending(self) -> Backlogs:
        """Return what is left, and what was done."""
        backlogs = {one.subscription.name: one.source.backlog(one.outage_seconds) for one in self._uploaders}
        return Backlogs(by_uploader=backlogs)

    @property
    def left(self) -> list[Left]:
        """The lines about what was not uploaded, with the command that does it."""
        backlogs = self.pending().by_uploader.items()
        return [
            Left(message=_not_copied(name, one), command=["hostcore", "upload", "--uploader", name])
            for name, one in backlogs
            if not one.is_complete or not self.has_begun
        ]

    def finish(self, *, final: bool) -> None:
        """Note that the attempt has ended: no more checkpoints and samples will come.

        :param final: True if its terminal event and ``result.json`` are written, too. Then config, plots, logs and at
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
        """Return True if everything has arrived or was given up; after the final end, if all is closed, too."""
        return self._is_over or (not self._is_final and self._is_idle())

    def _is_idle(self) -> bool:
        # What the scheduler hands out is in a queue before its own work counts as done; and an uploader that is done
        # with a unit has put that into the scheduler's queue before it is idle.
        return (
            self.has_begun
            and not self._todo.unfinished_tasks
            and all(uploader.is_idle for uploader in self._uploaders)
            and not self._todo.unfinished_tasks
        )

    def is_stuck(self) -> bool:
        """Return True if the scheduler is idle, and each uploader that has work left is in an outage."""
        return not self._is_at_work and all(uploader.is_stuck for uploader in self._uploaders)

    def missing(self) -> list[str]:
        """Return the labels of required uploaders that have not copied everything."""
        is_known = self.has_begun and not self._todo.unfinished_tasks
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
        self.has_begun = True
        polled_at = self._clock()
        while not (self._abandoned.is_set() or (self._is_final and self._is_idle())):
            self._do_next()
            if self._clock() - polled_at >= self._limits.tick_seconds:
                polled_at = self._clock()
                self._guarded(self._scheduler.poll, gets_on=False)
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
        """Return the ledger, as soon as no other process holds it; None if it cannot be opened."""
        was_reported = False
        while not self._abandoned.is_set():
            try:
                ledger = Ledger(self._directory.uploads, attempt=self._attempt)
            except LedgerBusy as error:
                if not was_reported:
                    self._events.put(events.Warning(code=error.code, message=f"{error.message}; uploads wait for it"))
                was_reported = True
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


def _not_copied(name: str, backlog: Backlog) -> str:
    why = {**backlog.failing, **backlog.given_up}
    paths = dict.fromkeys([*backlog.left, *backlog.given_up])
    first = next((path for path in why if path.startswith("checkpoints/")), next(iter(why), None))
    detail = f": {len(paths):,} are left" if paths else ""
    if backlog.unusable:
        detail += f": {backlog.unusable}"
    elif first is not None:
        detail += f", such as {first} ({why[first]})"
    return f"the uploader {name} has not copied everything{detail}"
