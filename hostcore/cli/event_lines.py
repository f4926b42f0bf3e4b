"""Events as lines for people: when, at which step, what, and what matters of it."""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from hostcore.cli.output import style
from hostcore.cli.wording import NOTHING
from hostcore.events.codec import CorruptLog, decode_event
from hostcore.events.times import moment
from hostcore_builtin_plugins.control_characters import visible
from hostcore_builtin_plugins.messages import message_of
from hostcore_builtin_plugins.progress import format_devices, format_rate, format_value
from hostcore_hookspecs.events import (
    ENDS,
    ArtifactUploaded,
    EpochStarted,
    Event,
    Metrics,
    Progress,
    RunStarted,
    RunSubmitted,
)

#: The longest name of an event.
_NAME_WIDTH = 18
_STEP_WIDTH = 8
_WARNINGS = frozenset({"warning", "checkpoint_skipped", "reporter_failed", "upload_failed", "stop_requested"})


def line_of(line: bytes) -> str:
    """An event of ``events.jsonl``, in a line; more, if its message has more.

    What a newer hostcore wrote is shown as it is.

    :raises CorruptLog: When it is no event at all.
    """
    try:
        event = decode_event(line)
    except CorruptLog:
        return _unknown(line)
    head = _head(event.time_ms, event.step, event.name)
    first, *more = visible(_message(event)).splitlines() or [""]
    shown, color = f"{head}  {first}".rstrip(), _color(event.name)
    shown = style(shown, fg=color, bold=event.name in ENDS) if color else shown
    return "\n".join([shown, *(f"{'':{len(head)}}  {text}" for text in more)])


def is_wanted(line: bytes, *, attempt: int | None, since: int | None = None) -> bool:
    """Whether a line of the event log is of an attempt, and after the event of a number; None: of any, after none.

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
        envelope = ("schema", "seq", "time_ms", "run_id", "attempt", "src", "event", "step", "epoch")
        rest = {key: value for key, value in found.items() if key not in envelope}
        return f"{_head(found['time_ms'], found['step'], found['event'])}  {orjson.dumps(rest).decode()}"
    except (KeyError, TypeError, AttributeError, orjson.JSONDecodeError) as error:
        raise CorruptLog(f"not an event: {line!r:.200}") from error


def _color(name: str) -> str | None:
    if name in _WARNINGS or name in ("run_cancelled", "run_preempted"):
        return "yellow"
    return {"run_failed": "red", "run_succeeded": "green"}.get(name)


def _message(event: Event) -> str:
    match event.payload:
        case RunSubmitted():
            return ", ".join(_submitted(event.attempt, event.payload))
        case RunStarted(device=device, world_size=ranks):
            return f"on {device}" + (f", {ranks} ranks" if ranks > 1 else "")
        case EpochStarted():
            return f"epoch {(event.epoch or 0) + 1}"
        case Metrics(metrics=metrics, samples_per_second=rate):
            return "  ".join([*_values(metrics), *_rate(rate)])
        case Progress(samples_per_second=rate):
            return "".join(_rate(rate))
        case ArtifactUploaded(path=path, uri=uri):
            return f"{path} uploaded to {uri}"
    return message_of(event) or ""


def _submitted(attempt: int, payload: RunSubmitted) -> Iterator[str]:
    yield f"attempt {attempt}: {payload.trainer}"
    if steps := payload.total_steps or payload.max_steps:
        yield f"{steps:,} steps"
    if payload.num_rows:
        yield f"{payload.num_rows:,} rows"
    if payload.devices:
        yield f"on {format_devices(payload.devices)}"


def _values(metrics: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{name} {format_value(value)}" for name, value in metrics.items())


def _rate(rate: float | None) -> Iterator[str]:
    if rate is not None:
        yield f"({format_rate(rate)} samples/s)"
