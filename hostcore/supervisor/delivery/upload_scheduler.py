"""The scheduler of uploads: which unit goes into which queue, and when a retired checkpoint may be removed."""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from hostcore.checkpoints.leftovers import settle
from hostcore.checkpoints.prune import remove_retired
from hostcore.plugins.errors import one_line
from hostcore.supervisor.delivery.artifacts_source import ArtifactSource, UploadLimits
from hostcore.supervisor.delivery.ledger import Ledger
from hostcore.supervisor.delivery.source import Emit
from hostcore.supervisor.delivery.spool import Spool
from hostcore.supervisor.delivery.subscriber import Subscriber
from hostcore.supervisor.delivery.units import Inventory, Unit, Vanished
from hostcore_hookspecs import events

if TYPE_CHECKING:
    from hostcore.checkpoints.names import Claim


class UploadScheduler:
    """Hands units to the uploaders, and removes checkpoints that only waited for them. Used from one thread.

    :param emit: Takes the events for the run's log.
    :param owed: Keys of destinations that are not uploaded to here; what they lack is kept.
    """

    def __init__(
        self,
        uploaders: Sequence[Subscriber[ArtifactSource]],
        inventory: Inventory,
        *,
        emit: Emit,
        limits: UploadLimits,
        owed: Collection[str],
        clock: Callable[[], float],
    ) -> None:
        self._uploaders = uploaders
        self._inventory = inventory
        self._spool = Spool(inventory.directory.spool)
        self._emit = emit
        self._limits = limits
        self._owed = owed
        self._clock = clock
        self._ledger: Ledger | None = None
        #: Units that were handed out and have not arrived everywhere, by name, in the order in which they came up.
        self._units: dict[str, Unit] = {}
        #: Checkpoints that are kept only until they have been uploaded.
        self._retired: dict[Claim, Unit] = {}
        #: Those of them that need not be kept any more, and are still there.
        self._unremoved: set[Claim] = set()
        self._newest_saved = (0, 0)
        #: Keys of units that were given up for the limits' sake, and are not taken up again.
        self._given_up: set[tuple[str, str]] = set()
        self._logs_copied: float | None = None
        #: The time and the size of the event log at its last copy; at first, the time of the beginning.
        self._event_log_copied: tuple[float, int] = (clock(), 0)
        self._warned: set[str] = set()

    @property
    def unreadable(self) -> Collection[str]:
        """The names of units that could not be read, and were not handed out."""
        return self._inventory.unreadable

    def begin(self, ledger: Ledger, attempt: int) -> None:
        """Take up what earlier attempts have left, after the documents of this one.

        :param ledger: Held by this process; the uploaders have started with it.
        """
        self._ledger = ledger
        for path in self._spool.clear():
            message = f"{path} was left by an earlier version of hostcore, and is not uploaded"
            self._emit(events.Warning(code="spool.earlier_version", message=message))
        self._offer_all(self._inventory.beginning(attempt))
        self._offer_all(sorted(self._inventory.committed(), key=_saved))
        self._offer_all(self._inventory.generated())

    def scan(self) -> None:
        """Take up what no event has reported: a worker may have died between a commit and its event."""
        self._offer_all(self._inventory.committed())
        self._offer_all(self._inventory.generated())
        self._offer_all(self._inventory.plots())

    def scan_documents(self) -> None:
        """Take up all documents of a run that has ended."""
        self._offer_all(self._inventory.ending())

    def _offer_all(self, units: Iterable[Unit]) -> None:
        """Offer each; one that cannot be read does not keep the others."""
        for unit in units:
            try:
                self.offer(unit)
            except OSError as error:
                self._inventory.unreadable[unit.name] = error
        for trouble in list(self._inventory.unreadable.values()):
            self.note_trouble(trouble)

    def offer_saved(self, payload: events.CheckpointSaved | events.SampleSaved) -> None:
        """Offer what an event reports.

        :raises OSError: When it cannot be read; it is offered again by :meth:`scan`.
        """
        try:
            unit = self._inventory.saved(payload)
        except Vanished:
            message = f"{payload.path} was removed before it could be copied"
            self._emit(events.Warning(code="uploads.missed", message=message))
        else:
            self.offer(unit)

    def offer(self, unit: Unit) -> None:
        """Hand a unit to the uploaders, a document as a copy, unless they have it.

        :raises OSError: When it cannot be read.
        """
        unit = unit.hashed()
        known = self._units.get(unit.name)
        if unit.key in self._given_up or (known is not None and known.key == unit.key):
            return
        if unit.kind == "document" and self._lacking(unit):
            unit = self._copied(unit)
        self._hand_out(unit)

    def _lacking(self, unit: Unit) -> bool:
        return any(uploader.source.lacks(unit) for uploader in self._uploaders)

    def _copied(self, unit: Unit) -> Unit:
        """Return a document as a copy; where there is no room for one, as it is."""
        try:
            if self._spool.has_room_for(unit.size):
                return self._spool.copy(unit).hashed(again=True)
        except OSError as error:
            message = f"documents are uploaded while they may change, since they cannot be copied: {error}"
            self._warn_once("spool.uncopied", message)
        return unit

    def _hand_out(self, unit: Unit) -> None:
        older = self._units.pop(unit.name, None)
        if older is not None:  # a step that was written again, a log that has grown
            for uploader in self._uploaders:
                uploader.source.remove(older)
            self._spool.drop(older)
        if unit.kind == "checkpoint":
            self._newest_saved = max(self._newest_saved, _saved(unit))
            if self._lacking(unit):
                self._copy_logs()
        self._units[unit.name] = unit
        for uploader in self._uploaders:
            uploader.source.add(unit)

    def _copy_logs(self) -> None:
        """Have the logs as they are now uploaded before the checkpoint that comes next, unless that was done lately."""
        now = self._clock()
        if self._logs_copied is not None and now - self._logs_copied < self._limits.log_seconds:
            return  # before their sizes are read: a thousand ranks have as many
        size = self._inventory.log_bytes()
        if self._logs_copied is not None and now - self._logs_copied < self._limits.live_of(size):
            return
        self._logs_copied = now
        self._event_log_copied = (now, self._inventory.event_log_bytes())
        if not self._spool.has_room_for(size):
            self._warn_once("spool.full", "the disk has no room for a copy of the logs: they are uploaded at the end")
            return
        self._offer_all(self._inventory.growing_logs())

    def _copy_event_log(self) -> None:
        """Have the event log uploaded now and then, for readers that see its copy alone."""
        now, size = self._clock(), self._inventory.event_log_bytes()
        copied_at, copied_bytes = self._event_log_copied
        if size == copied_bytes or now - copied_at < self._limits.live_of(size) or not self._spool.has_room_for(size):
            return
        self._event_log_copied = (now, size)
        self._offer_all(self._inventory.event_log())

    def retire(self, unit: Unit) -> None:
        """Forget a unit that has arrived everywhere.

        What an uploader has given up is left to the next attempt; a document need not be.
        """
        if self._units.get(unit.name) is not unit:
            return
        if any(uploader.source.has(unit) for uploader in self._uploaders):
            return
        lacked = self._is_owed(unit)
        if lacked and unit.kind != "document":
            return
        if lacked:
            self._given_up.add(unit.key)
        self._spool.drop(unit)
        del self._units[unit.name]

    def _is_owed(self, unit: Unit) -> bool:
        known = self._units.get(unit.name)
        if known is not None and any(uploader.source.has(known) for uploader in self._uploaders):
            return True
        if self._ledger is None:  # it cannot be written: nothing is uploaded in this attempt
            return True
        return self._lacking(unit) or any(not self._ledger.knows_all(key, unit) for key in self._owed)

    def poll(self) -> None:
        """Handle calls that hang, the growth of the event log, and checkpoints that need not wait any more."""
        for uploader in self._uploaders:
            uploader.poll()
        self._copy_event_log()
        waiting = [unit for unit in self._units.values() if unit.kind == "checkpoint"]
        for unit in waiting if self._limits.spool_seconds else ():
            if _saved(unit) < self._newest_saved and time.time() - unit.waits_since > self._limits.spool_seconds:
                self._give_up(unit, f"it has waited for more than spool_seconds ({self._limits.spool_seconds:g} s)")
        self.remove_retired()

    def remove_retired(self) -> None:
        """Remove the retired checkpoints that have been uploaded, or that wait beyond the limits.

        What cannot be removed now is tried again, and reported once.
        """
        waiting = []
        self._retired = self._inventory.retired(self._retired)
        for claim, unit in self._retired.items():
            if unit.key in self._given_up or not self._is_owed(unit):
                self._unremoved.add(claim)
            elif self._limits.spool_seconds and time.time() - unit.waits_since > self._limits.spool_seconds:
                self._give_up(unit, f"it has waited for more than spool_seconds ({self._limits.spool_seconds:g} s)")
            else:
                waiting.append(unit)
        self._shrink(waiting)
        for claim in sorted(self._unremoved, key=lambda claim: claim.step):
            try:
                remove_retired(claim)
                settle(claim)
            except OSError as error:
                message = f"an old checkpoint could not be removed, and is tried again later: {error}"
                self._warn_once("checkpoint.not_removed", message, key=message)
            else:
                self._unremoved.remove(claim)

    def _shrink(self, waiting: list[Unit]) -> None:
        """Give up the oldest of the retired checkpoints that wait, as many as are beyond ``spool_bytes``."""
        left = sum(unit.size for unit in waiting)
        # Those that are on their way last: else, of checkpoints that come faster than they go, none would ever arrive.
        for unit in sorted(waiting, key=self._is_under_way):
            if not self._limits.spool_bytes or left <= self._limits.spool_bytes:
                return
            left -= unit.size
            self._give_up(unit, f"more than spool_bytes ({self._limits.spool_bytes}) wait, and newer ones go first")

    def _is_under_way(self, unit: Unit) -> bool:
        known = self._units.get(unit.name)
        return known is not None and any(
            uploader.source.has_begun(known) and not uploader.outage_seconds for uploader in self._uploaders
        )

    def _give_up(self, unit: Unit, why: str) -> None:
        self._given_up.add(unit.key)
        known = self._units.pop(unit.name, unit)
        for uploader in self._uploaders:
            if self._ledger is None or uploader.source.lacks(known):
                uploader.source.remove(known, f"given up: {why}")

    def drop_copies(self) -> None:
        """Remove the copies of documents."""
        for unit in list(self._units.values()):
            self._spool.drop(unit)

    def clear(self) -> None:
        """Remove what no later attempt needs: copies, and retired checkpoints that have been uploaded."""
        self.drop_copies()
        self.remove_retired()

    def note_trouble(self, error: BaseException) -> None:
        """Report that something could not be taken up; once of the same."""
        message = f"something is not uploaded: {one_line(error)}"
        self._warn_once("uploads.trouble", message, key=message)

    def _warn_once(self, code: str, message: str, *, key: str = "") -> None:
        if (key or code) not in self._warned:
            self._warned.add(key or code)
            self._emit(events.Warning(code=code, message=message))


def _saved(unit: Unit) -> tuple[int, int]:
    """Return the order of checkpoints: of two with the same time, the later step is newer."""
    return unit.saved_ns, unit.step or 0
