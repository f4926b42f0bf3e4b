"""The housekeeping of uploads, in one thread: what is handed to whom, and what may go."""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

import attrs

from hostcore.checkpoints.names import step_of_folder
from hostcore.plugins.errors import one_line
from hostcore.supervisor.uploads.channel import Channel
from hostcore.supervisor.uploads.inventory import Inventory
from hostcore.supervisor.uploads.ledger import Ledger
from hostcore.supervisor.uploads.patience import Limits
from hostcore.supervisor.uploads.sources import Vanished
from hostcore.supervisor.uploads.spool import Spool, bytes_held
from hostcore.supervisor.uploads.unit import Unit
from hostcore_hookspecs import events


@attrs.frozen(kw_only=True)
class SpoolLimits:
    """What may wait in the spool. 0: no limit."""

    #: What it alone may hold: files that have no other name any more.
    bytes: int = 0
    #: How long a checkpoint may wait, unless it is the newest.
    seconds: float = 0.0


class Housekeeping:
    """Hands units to the channels and takes care of the spool. Used from one thread.

    :param tell: Takes what the run's log should have of it.
    :param owed: Keys of destinations that have no channel here, and for which the spool keeps what they lack.
    """

    def __init__(
        self,
        channels: Sequence[Channel],
        inventory: Inventory,
        spool: Spool,
        *,
        tell: Callable[[events.Payload], object],
        spool_limits: SpoolLimits,
        limits: Limits,
        owed: Collection[str],
        clock: Callable[[], float],
    ) -> None:
        self._channels = channels
        self._inventory = inventory
        self._spool = spool
        self._tell = tell
        self._spool_limits = spool_limits
        self._limits = limits
        self._owed = owed
        self._clock = clock
        self._ledger: Ledger | None = None
        #: What was handed out and has not arrived everywhere, in the order in which it came up.
        self._units: dict[tuple[str, str], Unit] = {}
        #: What was given up for the limits' sake, and is not taken up again.
        self._forgone: set[tuple[str, str]] = set()
        self._newest_saved = (0, 0)
        self._logs_copied: float | None = None
        #: When the event log was copied last, and how long it was then; at first, when this began.
        self._event_log_copied: tuple[float, int] = (clock(), 0)
        self._told: set[str] = set()

    @property
    def overlooked(self) -> Collection[str]:
        """What could not be read, and was not handed out."""
        return self._inventory.unreadable

    def begin(self, ledger: Ledger, attempt: int) -> None:
        """Take up what earlier attempts have left, after it is told that this one has begun.

        :param ledger: Held by this process; the channels have started with it.
        """
        self._ledger = ledger
        recovered = list(self._spool.recover())
        self._offer_all(self._inventory.beginning(attempt))
        waiting = {unit.name: unit for unit in recovered if unit.kind == "checkpoint"}
        committed = [unit for unit in self._inventory.committed() if not _is_same(unit, waiting.get(unit.name))]
        self._offer_all(sorted([*recovered, *committed], key=_saved))
        self._offer_all(self._inventory.generated())

    def secure(self) -> None:
        """Link all checkpoints into the spool, so that none is pruned before it is known whether somebody lacks it."""
        for unit in self._inventory.committed():
            with suppress(Vanished, FileNotFoundError):  # it is being removed just now, as it was before
                self._spooled(unit)

    def take_stock(self) -> None:
        """Take up what nobody has told of: a worker may have died between a commit and its event."""
        self._offer_all(self._inventory.committed())
        self._offer_all(self._inventory.generated())
        self._offer_all(self._inventory.plots())

    def take_the_rest(self) -> None:
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
        """Hand a unit to the channels; it is brought into the spool if one of them lacks it.

        :raises OSError: When it cannot be read.
        """
        unit = unit.hashed()
        known = self._units.get((unit.name, unit.version))
        if known is not None or (unit.name, unit.version) in self._forgone:
            if unit.spooled and (known is None or known.spooled != unit.spooled):
                self._spool.drop(unit)
            return
        if unit.spooled is None and any(channel.lacks(unit) for channel in self._channels):
            try:
                unit = self._spooled(unit)
            except (Vanished, FileNotFoundError):
                return  # somebody removes it, and nobody was told that it is there
        self._hand_out(unit)

    def _spooled(self, unit: Unit) -> Unit:
        """The same unit in the spool, or in its place where that cannot be."""
        try:
            if unit.kind == "checkpoint":
                return self._spool.link_checkpoint(self._inventory.checkpoints, _step_of(unit))
            if unit.is_log and not self._spool.has_room_for(sum(file.size for file in unit.files)):
                return unit
            spooled = self._spool.copy(unit) if unit.is_log else self._spool.link(unit)
            return spooled.hashed(again=True)
        except FileNotFoundError:
            raise
        except OSError as error:
            self.note_unlinked(error)
            return unit

    def note_unlinked(self, error: OSError) -> None:
        """Tell once that something is uploaded from its own place."""
        message = f"what waits for its upload stays in its own place, and is lost if it is removed there: {error}"
        self._warn_once("spool.unlinked", message)

    def _hand_out(self, unit: Unit) -> None:
        for (name, version), older in list(self._units.items()):
            if name == unit.name:  # a step that was written again, a log that has grown
                for channel in self._channels:
                    channel.remove(older)
                self._spool.drop(older)
                del self._units[name, version]
        if unit.kind == "checkpoint":
            self._newest_saved = max(self._newest_saved, _saved(unit))
            if any(channel.lacks(unit) for channel in self._channels):
                self._copy_logs()
        self._units[unit.name, unit.version] = unit
        for channel in self._channels:
            channel.add(unit)

    def _copy_logs(self) -> None:
        """Have the logs as they are now uploaded before the checkpoint that comes next, unless that was done lately."""
        now = self._clock()
        if self._logs_copied is not None and now - self._logs_copied < self._limits.log_seconds:
            return
        self._logs_copied = now
        self._event_log_copied = (now, self._inventory.event_log_bytes())
        if not self._spool.has_room_for(self._inventory.log_bytes()):
            self._warn_once("spool.full", "the disk has no room for a copy of the logs: they are uploaded at the end")
            return
        self._offer_all(self._inventory.growing_logs())

    def _copy_event_log(self) -> None:
        """Have the event log uploaded now and then, for those who see the run from afar alone."""
        now, size = self._clock(), self._inventory.event_log_bytes()
        copied_at, copied_bytes = self._event_log_copied
        if size == copied_bytes or now - copied_at < self._limits.live_of(size) or not self._spool.has_room_for(size):
            return
        self._event_log_copied = (now, size)
        self._offer_all(self._inventory.event_log())

    def retire(self, unit: Unit) -> None:
        """A channel is done with a unit: once all are, it leaves the spool.

        What an uploader has given up stays there, for the next attempt; a document need not.
        """
        if self._units.get((unit.name, unit.version)) is not unit:
            return
        if any(channel.has(unit) for channel in self._channels):
            return
        assert self._ledger is not None
        lacked = any(channel.lacks(unit) for channel in self._channels)
        lacked = lacked or any(not self._ledger.knows_all(key, unit) for key in self._owed)
        if lacked and unit.kind != "document":
            return
        if lacked:
            self._forgone.add((unit.name, unit.version))
        self._spool.drop(unit)
        del self._units[unit.name, unit.version]

    def look(self) -> None:
        """Look at calls that hang and at the event log, and hold the spool to its limits."""
        for channel in self._channels:
            channel.look()
        self._copy_event_log()
        limit = self._spool_limits
        checkpoints = [unit for unit in self._units.values() if unit.kind == "checkpoint"]
        older = [unit for unit in checkpoints if _saved(unit) < self._newest_saved]
        if limit.seconds:
            now = time.time()
            for unit in older:
                if now - unit.waits_since > limit.seconds:
                    self._forgo(unit, f"it has waited for more than spool_seconds ({limit.seconds:g} s)")
        if limit.bytes:
            self._shrink([unit for unit in older if (unit.name, unit.version) in self._units], limit.bytes)

    def _shrink(self, older: list[Unit], limit: int) -> None:
        held = {key: bytes_held(unit) for key, unit in self._units.items()}
        # Those that are on their way last: else, of checkpoints that come faster than they go, none would ever arrive.
        under_way = {unit.version for unit in older if any(channel.is_transferring(unit) for channel in self._channels)}
        for unit in sorted(older, key=lambda unit: unit.version in under_way):
            if sum(held.values()) <= limit:
                return
            if held.pop((unit.name, unit.version)):
                self._forgo(unit, f"more than spool_bytes ({limit}) wait, and newer ones go first")

    def _forgo(self, unit: Unit, why: str) -> None:
        del self._units[unit.name, unit.version]
        self._forgone.add((unit.name, unit.version))
        for channel in self._channels:
            channel.remove(unit, f"given up: {why}")
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


def _step_of(unit: Unit) -> int:
    step = step_of_folder(unit.name.rpartition("/")[2])
    assert step is not None, "checkpoints are named after their steps"
    return step


def _saved(unit: Unit) -> tuple[int, int]:
    """The order of checkpoints: of two that the clock of the file system cannot tell apart, the later step is newer."""
    return unit.saved_ns, unit.step or 0


def _is_same(unit: Unit, other: Unit | None) -> bool:
    return other is not None and unit.version == other.version
