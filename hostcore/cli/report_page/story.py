"""What happened in the run, event by event."""

import shlex
from typing import Final

import orjson

from hostcore.cli.report_page.head import time_of
from hostcore.cli.report_page.markup import Html, element, join, shortened, table_of
from hostcore.cli.report_page.recording import Excerpt, Recording
from hostcore.cli.wording import NOTHING
from hostcore.events.codec import CorruptLog, decode_event
from hostcore_builtin_plugins.messages import message_of
from hostcore_builtin_plugins.progress import format_devices
from hostcore_hookspecs.events import ArtifactUploaded, Event, RunStarted, RunSubmitted

_LONGEST_MESSAGE: Final = 500
#: The kinds of events as people choose among them.
_KINDS: Final = {
    "warnings": "Warnings",
    "life": "Starts and ends",
    "files": "Checkpoints, samples, uploads",
    "other": "Validations and others",
}
_ENVELOPE: Final = frozenset({"schema", "seq", "time_ms", "run_id", "attempt", "src", "event", "step", "epoch"})


def warnings_section(recording: Recording, run: str) -> Html | None:
    """What went wrong without stopping the run; None if nothing did.

    :param run: What to call the run on the command line.
    """
    told = recording.told["warnings"]
    if not told.lines:
        return None
    return join(_table("Warnings", {"warnings": told}), _left_out({"warnings": told}, run))


def events_section(recording: Recording, run: str) -> Html | None:
    """All events but those that only move the run on; None if there are none.

    :param run: What to call the run on the command line.
    """
    kinds = {kind: told for kind, told in recording.told.items() if told.lines}
    if not kinds:
        return None
    return join(_filter(kinds), _table("Events", kinds), _left_out(kinds, run), _counts(recording))


def _filter(kinds: "dict[str, Excerpt]") -> Html:
    boxes = [
        element("label", element("input", type="checkbox", value=kind, checked=True), f" {_KINDS[kind]}")
        for kind in kinds
    ]
    return element(
        "div",
        element("label", "Find in events ", element("input", type="search", id="find-event")),
        *boxes,
        element("output", id="events-shown"),
        class_="controls",
        id="event-controls",
        role="group",
        aria_label="Which events are shown",
        hidden=True,
    )


def _table(caption: str, kinds: "dict[str, Excerpt]") -> Html:
    rows = [_row(line, kind) for kind, told in kinds.items() for line in told.lines]
    rows.sort(key=lambda row: row[0])
    head = ["Time", "Step", "Attempt", "Event", "What"]
    return table_of(caption, head, [row for _, row in rows], numeric=frozenset({1, 2}))


def _row(line: bytes, kind: str) -> tuple[int, Html]:
    """An event as a row, with its number."""
    found = orjson.loads(line)
    seq, step, name = found.get("seq") or 0, found.get("step"), str(found.get("event"))
    row = element(
        "tr",
        element("td", time_of(found.get("time_ms") or 0)),
        element("td", NOTHING if step is None else f"{step:,}", class_="number"),
        element("td", str(found.get("attempt")), class_="number"),
        element("td", element("code", name)),
        element("td", shortened(_message(line), _LONGEST_MESSAGE)),
        class_=kind,
        data_kind=kind,
    )
    return seq, row


def _message(line: bytes) -> str:
    try:
        event = decode_event(line)
    except CorruptLog:  # a newer hostcore has written it
        found = orjson.loads(line)
        return orjson.dumps({key: value for key, value in found.items() if key not in _ENVELOPE}).decode()
    return _in_words(event).removeprefix("warning: ")


def _in_words(event: Event) -> str:
    match event.payload:
        case RunSubmitted(trainer=trainer, num_rows=rows, devices=devices):
            data = f", {rows:,} rows" if rows else ""
            return f"{trainer}{data}" + (f", on {format_devices(devices)}" if devices else "")
        case RunStarted(device=device, world_size=ranks):
            return f"on {device}" + (f", {ranks} ranks" if ranks > 1 else "")
        case ArtifactUploaded(path=path, uri=uri, uploader=uploader):
            return f"{path} uploaded to {uri} by {uploader}"
    return message_of(event) or ""


def _left_out(kinds: "dict[str, Excerpt]", run: str) -> Html | None:
    missing = [f"{told.left_out:,} of “{_KINDS[kind]}”" for kind, told in kinds.items() if told.left_out]
    if not missing:
        return None
    note = f"Left out, between the first and the newest of their kind: {', '.join(missing)}. All of them: "
    return element("p", note, element("code", shlex.join(["hostcore", "logs", run])), class_="note")


def _counts(recording: Recording) -> Html:
    told = ", ".join(f"{count:,} {name}" for name, count in sorted(recording.counts.items()))
    broken = f" {recording.unreadable:,} lines of the log are no events." if recording.unreadable else ""
    return element("p", f"The log has {recording.count:,} events: {told}.{broken}", class_="note")
