"""Reporters: each is called alone and guarded, so that none can hurt the run or another."""

from collections.abc import Callable, Sequence

import attrs

from hostcore.plugins.component import Component
from hostcore.plugins.errors import one_line
from hostcore.plugins.hooks import Hooks
from hostcore_hookspecs.events import Event
from hostcore_hookspecs.reporter import ReporterContext


def _nothing(*_: object) -> None:
    """Stands for ``open`` and ``close`` of a reporter that has none."""


@attrs.frozen(kw_only=True, eq=False)
class Listener:
    """Somebody who is told every event."""

    #: How messages name it.
    label: str
    report_event: Callable[[Event], object]
    open: Callable[[ReporterContext], object] = _nothing
    close: Callable[[], object] = _nothing


def listeners_of(reporters: Sequence[Component]) -> list[Listener]:
    """The listeners that a job's reporters are."""
    hooks = Hooks(reporters, kinds=("reporter",))
    return [
        Listener(
            label=one.ref.provenance,
            report_event=hooks.bind("report_event", of=one) or _nothing,
            open=hooks.bind("open", of=one) or _nothing,
            close=hooks.bind("close", of=one) or _nothing,
        )
        for one in reporters
    ]


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

    def open(self, ctx: ReporterContext) -> list[Failure]:
        """Open all."""
        return self._each(lambda listener: listener.open(ctx))

    def tell(self, event: Event) -> list[Failure]:
        """Tell all of an event."""
        return self._each(lambda listener: listener.report_event(event))

    def close(self) -> list[Failure]:
        """Close all; nobody is told anything after that."""
        failures = self._each(lambda listener: listener.close())
        self._listeners.clear()
        return failures

    def _each(self, call: Callable[[Listener], object]) -> list[Failure]:
        failures = []
        for listener in list(self._listeners):
            try:
                call(listener)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a reporter raises, the run goes on
                self._listeners.remove(listener)
                failures.append(Failure(listener.label, error))
        return failures
