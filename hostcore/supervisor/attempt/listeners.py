"""Listeners of the Python call: told of every event while it is written, and guarded, so that none can hurt the run."""

from collections.abc import Callable, Sequence

import attrs

from hostcore.interruption import is_by_signal
from hostcore.plugins.errors import one_line
from hostcore_hookspecs.events import Event


@attrs.frozen(kw_only=True, eq=False)
class Listener:
    """A receiver of every event."""

    #: How messages name it.
    label: str
    report_event: Callable[[Event], object]


@attrs.frozen
class Failure:
    """A listener that raised, and what."""

    label: str
    error: BaseException

    @property
    def message(self) -> str:
        """One line."""
        return one_line(self.error)


class Audience:
    """All listeners of a run. One that raises gets nothing more; the others go on."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = list(listeners)

    def tell(self, event: Event) -> list[Failure]:
        """Tell all of an event."""
        failures = []
        for listener in list(self._listeners):
            try:
                listener.report_event(event)
            except BaseException as error:
                if is_by_signal(error):
                    raise
                self._listeners.remove(listener)
                failures.append(Failure(listener.label, error))
        return failures
