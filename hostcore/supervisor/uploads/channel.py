"""The way to one destination: what is handed to it, and how far it has come."""

import time
from collections.abc import Callable

from hostcore.supervisor.uploads.backlog import Backlog
from hostcore.supervisor.uploads.crew import Crew
from hostcore.supervisor.uploads.destination import Destination
from hostcore.supervisor.uploads.ledger import Ledger
from hostcore.supervisor.uploads.patience import Limits
from hostcore.supervisor.uploads.schedule import Task
from hostcore.supervisor.uploads.tally import Tally
from hostcore.supervisor.uploads.unit import Unit
from hostcore_hookspecs import events
from hostcore_hookspecs.uploader import UploadContext


class Channel:
    """Copies units to one destination, in the background.

    :param tell: Takes what the run's log should have of it.
    :param when_done: Called when a unit has arrived, or was given up.
    """

    def __init__(
        self,
        destination: Destination,
        *,
        tell: Callable[[events.Payload], object],
        when_done: Callable[[Unit], object],
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.destination = destination
        self._when_done = when_done
        self._clock = clock
        self._tally = Tally(destination.label, tell)
        self._crew = Crew(destination, self._tally, when_done=when_done, limits=limits, clock=clock)
        self._changed, self._schedule = self._crew.changed, self._crew.schedule
        self._ledger: Ledger | None = None

    # -- for the thread that keeps house -------------------------------------------------------------------------------

    def start(self, ledger: Ledger, context: UploadContext) -> None:
        """Start the threads."""
        self._ledger = ledger
        self._crew.start(ledger, context)

    def lacks(self, unit: Unit) -> bool:
        """Whether anything of a unit has not arrived, as the ledger has it."""
        assert self._ledger is not None
        return not self._ledger.knows_all(self.destination.key, unit)

    def add(self, unit: Unit) -> None:
        """Take a unit to be copied, as far as the ledger does not know it."""
        assert self._ledger is not None
        ledger, key = self._ledger, self.destination.key
        left = [file for file in unit.files if not ledger.knows(key, file)]
        # A record that is there, while a file of it is not, says too much; it is offered again when they are all there.
        seal = unit.seal if unit.seal is not None and (left or not ledger.knows(key, unit.seal)) else None
        with self._changed:
            if not left and seal is None:
                self._tally.known[unit.name] = None
            elif self._crew.unusable is not None:
                self._tally.given_up[unit.name] = self._crew.unusable
            else:
                self._tally.given_up.pop(unit.name, None)
                self._schedule.add(Task(unit=unit, left=left, seal=seal))
                self._changed.notify_all()
                return
        self._when_done(unit)

    def remove(self, unit: Unit, why: str | None = None) -> None:
        """Copy no more of a unit.

        :param why: It is given up, and that is told; None if a newer one of the same name stands for it.
        """
        with self._changed:
            task = self._schedule.find(unit)
            if task is not None:
                self._schedule.tasks.remove(task)
                if why is not None:
                    self._crew.give_up(task, why)
            self._changed.notify_all()

    def is_transferring(self, unit: Unit) -> bool:
        """Whether the copying of a unit has begun, and nothing is in its way now."""
        with self._changed:
            task = self._schedule.find(unit)
            return task is not None and bool(task.busy or task.copied_files) and not self._crew.outages.breaker.is_open

    def look(self) -> None:
        """Tell of calls that do not return, and let others take their places."""
        with self._changed:
            now = self._clock()
            for call in self._crew.calls:
                if not call.told and now - call.since > call.limit:
                    self._crew.note_hang(call)

    def has(self, unit: Unit) -> bool:
        """Whether a unit is still to be copied."""
        with self._changed:
            return self._schedule.find(unit) is not None

    def refuse_all(self, why: str) -> None:
        """Copy nothing in this attempt."""
        with self._changed:
            self._crew.give_all_up(why)
            self._changed.notify_all()

    def hurry(self, *, last: bool) -> None:
        """Time is short: what has failed is tried again now.

        :param last: No more units will come: the uploader is closed after the last of them.
        """
        with self._changed:
            self._crew.finishing = last
            self._crew.outages.breaker.hurry()
            for task in self._schedule.tasks:
                task.not_before.clear()
            self._changed.notify_all()

    def abandon(self) -> None:
        """Copy nothing more."""
        with self._changed:
            self._crew.abandoned = True
            self._changed.notify_all()

    # -- for everybody -------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether everything that was added has arrived or was given up; and, once no more comes, it is closed."""
        with self._changed:
            if self._schedule.tasks:
                return False
            return self._crew.closed or not self._crew.finishing or not self._crew.opened

    @property
    def is_complete(self) -> bool:
        """Whether everything that was added has arrived."""
        with self._changed:
            return not self._schedule.tasks and not self._tally.given_up and self._crew.unusable is None

    @property
    def backlog(self) -> Backlog:
        """What was done and what is left."""
        with self._changed:
            tally, tasks = self._tally, self._schedule.tasks
            left = [file for task in tasks for file in task.remaining]
            busy = [call.file for call in self._crew.calls if call.file is not None and not call.lost]
            return Backlog(
                files=len(left) + len(busy),
                bytes=sum(file.size for file in (*left, *busy)),
                uploaded_files=tally.files,
                uploaded_bytes=tally.bytes,
                existed_files=tally.existed,
                copied=tuple(tally.copied),
                known=tuple(tally.known),
                left=[task.unit.name for task in tasks],
                failing={task.unit.name: task.problem for task in tasks if task.problem},
                given_up=dict(tally.given_up),
                unusable=self._crew.unusable,
                outage_seconds=self._crew.outages.breaker.outage_seconds,
            )
