"""Events as lines for people: when, at which step, what, and what matters of it."""

import orjson

from hostcore.cli.output import style
from hostcore.cli.wording import NOTHING
from hostcore.events.codec import CorruptLog, decode_event, unknown_text
from hostcore.events.kinds import EVENT_KINDS, EventKind
from hostcore.events.times import moment
from hostcore_builtin_plugins.control_characters import visible
from hostcore_builtin_plugins.messages import text_of
from hostcore_hookspecs.events import ENDS

#: The longest name of an event.
_NAME_WIDTH = 18
_STEP_WIDTH = 8
_END_COLORS = {"run_succeeded": "green", "run_failed": "red"}


def line_of(line: bytes) -> str:
    """Format an event of ``events.jsonl``: one line, or more if its message has more.

    Events of a newer hostcore are shown as they are.

    :raises CorruptLog: When it is no event at all.
    """
    try:
        event = decode_event(line)
    except CorruptLog:
        return _unknown(line)
    head = _head(event.time_ms, event.step, event.name)
    first, *more = visible(text_of(event)).splitlines() or [""]
    shown, color = f"{head}  {first}".rstrip(), _color(event.name)
    shown = style(shown, fg=color, bold=event.name in ENDS) if color else shown
    return "\n".join([shown, *(f"{'':{len(head)}}  {text}" for text in more)])


def is_wanted(line: bytes, *, attempt: int | None, since: int | None = None) -> bool:
    """Return whether a line of the event log is of an attempt and after an event; None: of any, after none.

    :raises CorruptLog: When it is no event.
    """
    if attempt is None and since is None:
        return True
    try:
        envelope = orjson.loads(line)
        return attempt in (None, envelope["attempt"]) and (since is None or envelope["seq"] > since)
    except (KeyError, TypeError, orjson.JSONDecodeError) as error:
        raise CorruptLog(f"not an event: {line!r:.200}") from error


def _head(time_ms: int, step: int | None, name: str) -> str:
    return f"{moment(time_ms)}  {NOTHING if step is None else f'{step:,}':>{_STEP_WIDTH}}  {name:<{_NAME_WIDTH}}"


def _unknown(line: bytes) -> str:
    try:
        found = orjson.loads(line)
        return f"{_head(found['time_ms'], found['step'], found['event'])}  {unknown_text(found)}"
    except (KeyError, TypeError, AttributeError, orjson.JSONDecodeError) as error:
        raise CorruptLog(f"not an event: {line!r:.200}") from error


def _color(name: str) -> str | None:
    if EVENT_KINDS.get(name) in (EventKind.WARNING, EventKind.STOP, EventKind.END):
        return _END_COLORS.get(name, "yellow")
    return None
