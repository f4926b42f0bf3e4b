"""Warning events that the end of a run and its status repeat."""

from collections.abc import Mapping
from typing import Final

from hostcore.runs.result import RunWarning
from hostcore.runs.retrained import DIFFERS
from hostcore_hookspecs.events import Event, RunStarted, Warning

OTHER_PLUGINS: Final = "resume.plugins"
OTHER_CODE: Final = "plugin.other_code"
#: Of :mod:`hostcore.worker.mistakes`.
_MISTAKES: Final = ("weights.unread", "hyperparams.unread", "optimizer.not_saved", "parameters.unchanged")
#: The codes that are repeated, with what to do about each.
_HINTS: Final[Mapping[str, str | None]] = {
    DIFFERS: "a resume is exact when state_dict returns, and load_state_dict takes, all that the training depends on: "
    "counters, generators, and the state of datasets and callbacks; `hostcore check` finds what is missing",
    OTHER_PLUGINS: "--same-plugins refuses to resume with other plugins",
    **dict.fromkeys((OTHER_CODE, *_MISTAKES)),  # their messages have the remedy
}
_MARKS: Final = tuple(f'"code":"{code}"'.encode() for code in _HINTS)
#: So many warnings are shown at the end.
_MOST: Final = 20


def is_repeated(line: bytes) -> bool:
    """Return whether the line of a warning event is of a code that is repeated."""
    return any(mark in line for mark in _MARKS)


class LoggedWarnings:
    """The warnings to repeat, by the events of a run in the order of its log."""

    def __init__(self) -> None:
        self._found: list[Event] = []

    def note(self, event: Event) -> None:
        """Take in an event. A warning behind the step that a later attempt begins at has not happened."""
        if isinstance(event.payload, RunStarted):
            begins_at, attempt = event.step or 0, event.attempt
            self._found = [one for one in self._found if one.attempt == attempt or (one.step or 0) <= begins_at]
        elif isinstance(event.payload, Warning) and event.payload.code in _HINTS:
            self._found.append(event)

    def warnings(self) -> list[RunWarning]:
        """Return a warning for each message."""
        payloads = {one.payload.message: (one, one.payload) for one in self._found if isinstance(one.payload, Warning)}
        return [
            RunWarning(code=payload.code, message=payload.message, hint=_HINTS[payload.code], first_step=event.step)
            for event, payload in list(payloads.values())[:_MOST]
        ]
