"""The scheduler of uploads: which unit goes into which queue, and when it may leave the spool."""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

from hostcore.plugins.errors import one_line
from hostcore.supervisor.delivery.ledger import Ledger
from hostcore.supervisor.delivery.spool import Spool, bytes_held
from hostcore.supervisor.delivery.units import Inventory, Unit, Vanished
from hostcore.supervisor.delivery.upload_workers import UploadLimits, UploadWorkers
from hostcore_hookspecs import events


class UploadScheduler:
    """Hands units to the uploaders and takes care of the spool. Used from one thread.

    :param tell: Takes what the run's log should have of it.
    :param spool_bytes: What the spool alone may hold: files that have no other name any more; 0: no limit.
    :param spool_seconds: How long a checkpoint may wait, unless it is the newest; 0: no limit.
    :param owed: Keys of destinations that are not served here, and for which the spool keeps what they lack.
    """

    def __init__(
        self,
        uploaders: Sequence[UploadWorkers],
        inventory: Inventory,
        spool: Spool,
        *,
        tell: Callable[[events.Payload], object],
        spool_bytes: int,
        spool_seconds: float,
        limits: UploadLimits,
        owed: Collection[str],
        clock: Callable[[], float],
    ) -> None:
        self._uploaders = uploaders
        self._inventory = inventory
        self._spool = spool
        self._tell = tell
        self._spool_bytes = spool_bytes
        self._spool_seconds = spool_seconds
        self._limits = limits
        self._owed = owed
        self._clock = clock
        self._ledger: Ledger | None = None
        #: What was handed out and has not arrived everywhere, by name, in the order in which it came up.
        self._units: dict[str, Unit] = {}
        #: What was given up for the limits' sake, and is not taken up again.
        self._given_up: set[tuple[str, str]] = set()
        self._newest_saved = (0, 0)
        self._logs_copied: float | None = None
        #: When the event log was copied last, and how long it was then; at first, when this began.
        self._event_log_copied: tuple[float, int] = (clock(), 0)
        self._told: set[str] = set()

    @property
    def unreadable(self) -> Collection[str]:
        """What could not be read, and was not handed out."""
        return self._inventory.unreadable

    def begin(self, ledger: Ledger, attempt: int) -> None:
        """Take up what earlier attempts have left, after it is told that this one has begun.

        :param ledger: Held by this process; the uploaders have started with it.
        """
        self._ledger = ledger
        recovered = list(self._spool.recover())
        self._offer_all(self._inventory.beginning(attempt))
        waiting = {unit.key for unit in recovered if unit.kind == "checkpoint"}
        committed = [unit for unit in self._inventory.committed() if unit.key not in waiting]
        self._offer_all(sorted([*recovered, *committed], key=_saved))
        self._offer_all(self._inventory.generated())

    def link_all(self) -> None:
        """Link all checkpoints into the spool, so that none is pruned before it is known whether it has arrived."""
        for unit in self._inventory.committed():
            with suppress(Vanished):  # it is being removed just now, as it was before
                self._spooled(unit)

    def scan(self) -> None:
        """Take up what no event has told of: a worker may have died between a commit and its event."""
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

    def offer(self, unit: Unit) -> None:
        """Hand a unit to the uploaders; it is brought into the spool if one of them lacks it.

        :raises OSError: When it cannot be read.
        """
        unit = unit.hashed()
        known = self._units.get(unit.name)
        if known is not None and known.key != unit.key:
            known = None  # an older one
        if known is not None or unit.key in self._given_up:
            if unit.spooled and (known is None or known.spooled != unit.spooled):
                self._spool.drop(unit)
            return
        if unit.spooled is None and any(uploader.lacks(unit) for uploader in self._uploaders):
            try:
                unit = self._spooled(unit)
            except Vanished:
                return  # it is being removed, and no event has told that it is there
        self._hand_out(unit)

    def _spooled(self, unit: Unit) -> Unit:
        """The same unit in the spool, or in its place where that cannot be.

        :raises Vanished: When it is not there any more.
        """
        try:
            if unit.seal is not None:
                return self._spool.link(unit)
            if not unit.is_log:
                return self._spool.link(unit).hashed(again=True)
            if self._spool.has_room_for(unit.size):
                return self._spool.copy(unit).hashed(again=True)
        except FileNotFoundError as error:
            raise Vanished(str(error)) from error
        except OSError as error:
            message = f"what waits for its upload stays in its own place, and is lost if it is removed there: {error}"
            self._warn_once("spool.unlinked", message)
        return unit

    def _hand_out(self, unit: Unit) -> None:
        older = self._units.pop(unit.name, None)
        if older is not None:  # a step that was written again, a log that has grown
            for uploader in self._uploaders:
                uploader.remove(older)
            self._spool.drop(older)
        if unit.kind == "checkpoint":
            self._newest_saved = max(self._newest_saved, _saved(unit))
            if any(uploader.lacks(unit) for uploader in self._uploaders):
                self._copy_logs()
        self._units[unit.name] = unit
        for uploader in self._uploaders:
            uploader.add(unit)

    def _copy_logs(self) -> None:
        """Have the logs as they are now uploaded before the checkpoint that comes next, unless that was done lately."""
        now = self._clock()
        if self._logs_copied is not None and now - self._logs_copied < self._limits.log_seconds:
            return  # before they are looked at: a thousand ranks have as many
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
        """An uploader is done with a unit: once all are, it leaves the spool.

        What an uploader has given up stays there, for the next attempt; a document need not.
        """
        if self._units.get(unit.name) is not unit:
            return
        if any(uploader.has(unit) for uploader in self._uploaders):
            return
        assert self._ledger is not None
        lacked = any(uploader.lacks(unit) for uploader in self._uploaders)
        lacked = lacked or any(not self._ledger.knows_all(key, unit) for key in self._owed)
        if lacked and unit.kind != "document":
            return
        if lacked:
            self._given_up.add(unit.key)
        self._spool.drop(unit)
        del self._units[unit.name]

    def look(self) -> None:
        """Look at calls that hang and at the event log, and hold the spool to its limits."""
        for uploader in self._uploaders:
            uploader.look()
        self._copy_event_log()
        checkpoints = [unit for unit in self._units.values() if unit.kind == "checkpoint"]
        older = [unit for unit in checkpoints if _saved(unit) < self._newest_saved]
        if self._spool_seconds:
            now = time.time()
            for unit in older:
                if now - unit.waits_since > self._spool_seconds:
                    self._give_up(unit, f"it has waited for more than spool_seconds ({self._spool_seconds:g} s)")
        if self._spool_bytes:
            self._shrink([unit for unit in older if self._units.get(unit.name) is unit])

    def _shrink(self, older: list[Unit]) -> None:
        held = {name: bytes_held(unit) for name, unit in self._units.items()}
        left = sum(held.values())
        # Those that are on their way last: else, of checkpoints that come faster than they go, none would ever arrive.
        under_way = {
            unit.version for unit in older if any(uploader.is_transferring(unit) for uploader in self._uploaders)
        }
        for unit in sorted(older, key=lambda unit: unit.version in under_way):
            if left <= self._spool_bytes:
                return
            left -= held[unit.name]
            if held[unit.name]:
                self._give_up(unit, f"more than spool_bytes ({self._spool_bytes}) wait, and newer ones go first")

    def _give_up(self, unit: Unit, why: str) -> None:
        del self._units[unit.name]
        self._given_up.add(unit.key)
        for uploader in self._uploaders:
            uploader.remove(unit, f"given up: {why}")
        self._spool.drop(unit)

    def clear(self) -> None:
        """Leave in the spool what the next attempt cannot find elsewhere, and nothing else."""
        for unit in list(self._units.values()):
            if unit.kind == "document":
                self._spool.drop(unit)
        self._spool.remove_if_empty()

    def note_trouble(self, error: BaseException) -> None:
        """Tell that something could not be taken up; once of the same."""
        message = f"something is not uploaded: {one_line(error)}"
        self._warn_once("uploads.trouble", message, key=message)

    def _warn_once(self, code: str, message: str, *, key: str = "") -> None:
        if (key or code) not in self._told:
            self._told.add(key or code)
            self._tell(events.Warning(code=code, message=message))


def _saved(unit: Unit) -> tuple[int, int]:
    """The order of checkpoints: of two that the clock of the file system cannot tell apart, the later step is newer."""
    return unit.saved_ns, unit.step or 0
