"""The host as components see it through their context: what they ask for is noted, and done at the batch boundary."""

from collections.abc import Callable

from hostcore.worker.ranks.protocol import Ranks
from hostcore.worker.stop import StopSwitch
from hostcore_hookspecs import events
from hostcore_hookspecs.run_state import Best


class Requests:
    """What components have asked for since the last batch boundary. See :class:`hostcore_hookspecs.context.Host`.

    :param switch: Takes this rank's requests to stop.
    :param is_stopping: Whether the ranks have agreed to stop.
    :param asker: Names the component that is running.
    :param emit: Appends an event to the rank's log.
    """

    def __init__(
        self,
        switch: StopSwitch,
        *,
        is_stopping: Callable[[], bool],
        asker: Callable[[], str],
        ranks: Ranks,
        emit: Callable[[events.Payload], None],
    ) -> None:
        self.is_stopping = is_stopping
        self.any_rank = ranks.any
        self._switch = switch
        self._asker = asker
        self._emit = emit
        #: Of the present step.
        self.best: list[Best] = []
        #: The step of a checkpoint, why, and who asked.
        self.restore: tuple[int, str, str] | None = None
        #: Whether there is anything to do. Read by the loop at every step.
        self.pending = False

    def request_stop(self, reason: str) -> None:
        """Ask the run to stop, in the name of the component that is running."""
        self._switch.request(reason, self._asker())

    def warn(self, message: str) -> None:
        """Write a warning into the log, in the name of the component that is running."""
        self._emit(events.Warning(code="component", message=f"{message} ({self._asker()})"))

    def request_best(self, best: Best) -> None:
        """Ask for a checkpoint of the present step."""
        self.best.append(best)
        self.pending = True

    def request_restore(self, step: int, reason: str) -> None:
        """Ask to go back to a checkpoint. The first who asks counts."""
        self.restore = self.restore or (step, reason, self._asker())
        self.pending = True

    def take_best(self) -> list[Best]:
        """The requests for a checkpoint since the last call."""
        taken, self.best = self.best, []
        self.pending = self.restore is not None
        return taken

    def take_restore(self) -> tuple[int, str, str] | None:
        """The request to go back, once."""
        taken, self.restore = self.restore, None
        self.pending = bool(self.best)
        return taken
