"""What there is to list: attempts, checkpoints, plugins, the environment, the job."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import orjson

from hostcore.checkpoints.record import CommitRecord
from hostcore.cli.report import name_of
from hostcore.cli.report_page.head import time_of
from hostcore.cli.report_page.markup import Html, element, join, shortened, table
from hostcore.cli.report_page.recording import Recording, SavedCheckpoint
from hostcore.cli.wording import NOTHING, figure, lasting
from hostcore.runs.history import AttemptHistory
from hostcore.supervisor.standing import CheckpointSeen, Standing
from hostcore_builtin_plugins.progress import format_bytes

_MOST_ATTEMPTS: Final = 100
_MOST_CHECKPOINTS: Final = 200
_LONGEST_VALUE: Final = 500
#: Of the job, in characters. One that was generated, or has its batches in it, can be of any size.
_LONGEST_JOB: Final = 100_000
_LONGEST_TRACEBACK: Final = 10_000


def attempts_section(standing: Standing, now: int) -> Html | None:
    """Each start of the run; None before the first."""
    if not standing.attempts:
        return None
    shown = standing.attempts[-_MOST_ATTEMPTS:]
    rows: list[list[str | None]] = [
        [
            str(one.attempt),
            element("span", one.status, class_=f"status {one.status}"),
            time_of(one.started_ms) if one.started_ms else NOTHING,
            lasting(one.seconds(now)),
            NOTHING if one.first_step is None else f"{one.first_step:,}",
            NOTHING if one.last_step is None else f"{one.last_step:,}",
            _why(one),
        ]
        for one in shown
    ]
    head = ["Attempt", "Status", "Started", "Duration", "From step", "To step", "Why it ended"]
    return join(
        table("Attempts", head, rows, numeric=frozenset({0, 4, 5})), left_out(len(standing.attempts) - len(shown))
    )


def left_out(count: int) -> Html | None:
    """A word about rows that are older than those shown; None if all are there."""
    return element("p", f"{count:,} older ones are left out.", class_="note") if count else None


def _why(one: AttemptHistory) -> str | None:
    if one.error is None:
        return shortened(one.reason, _LONGEST_VALUE) if one.reason else None
    told = shortened(f"{one.error.type}: {one.error.message}", _LONGEST_VALUE)
    if not one.error.traceback:
        return told
    return element("details", element("summary", told), traceback(one.error.traceback, most=_LONGEST_TRACEBACK))


def traceback(text: str, *, most: int) -> Html:
    """A traceback. Of a long one, its beginning is left out: what matters stands at its end.

    :param most: Characters.
    """
    cut = len(text) - most
    shown = text if cut <= 0 else f"({cut:,} characters are left out) …{text[cut:]}"
    return element("pre", shown.rstrip("\n"), tabindex=0, class_="scroll")


def checkpoints_section(standing: Standing, recording: Recording) -> Html | None:
    """The checkpoints that were saved, and which of them are there; None if there is none."""
    kept = {one.record.step: one for one in standing.checkpoints}
    steps = sorted({*recording.saved, *kept})
    if not steps:
        return None
    wanted = {*kept, *steps[-_MOST_CHECKPOINTS:]}
    rows = [_checkpoint(recording.saved.get(step), kept.get(step), standing) for step in steps if step in wanted]
    note = "Kept ones have their commit record; this reads every byte of them and compares: "
    verify = shlex.join(["hostcore", "verify", name_of(standing.directory)])
    head = ["Step", "Epoch", "Size", "Attempt", "Saved", "Now", "What for"]
    return join(
        table("Checkpoints", head, rows, numeric=frozenset({0, 1, 2, 3})),
        left_out(len(steps) - len(rows)),
        element("p", note, element("code", verify), class_="note"),
    )


def _checkpoint(told: SavedCheckpoint | None, there: CheckpointSeen | None, standing: Standing) -> list[str | None]:
    """A row.

    :param told: What the log says of it.
    :param there: What lies in the folder of checkpoints. One of the two is given.
    """
    if told is None:
        assert there is not None
        record = there.record
        told = SavedCheckpoint(time_ms=there.saved_ms, bytes=record.size, best={}, **_envelope(record))
    elif there is not None:
        told = attrs.evolve(told, bytes=there.record.size, **_envelope(there.record))
    best = standing.result.best if standing.result else None
    words = ["final"] * told.final + [f"best {name} ({figure(value)})" for name, value in told.best.items()]
    words += ["best"] * (best is not None and best["step"] == told.step and not told.best)
    return [
        f"{told.step:,}",
        NOTHING if told.epoch is None else f"{told.epoch + 1:,}",
        format_bytes(told.bytes),
        str(told.attempt),
        time_of(told.time_ms),
        element("b", "kept") if there else "removed",
        ", ".join(words),
    ]


def _envelope(record: CommitRecord) -> dict[str, Any]:
    return {"step": record.step, "epoch": record.epoch, "attempt": record.attempt, "final": record.final}


def plugins_section(plugins: Sequence[Mapping[str, Any]]) -> Html | None:
    """What the run was made of."""
    rows: list[list[str | None]] = []
    for one in plugins:
        row: list[str | None] = [
            str(one.get("name")),
            str(one.get("kind")).replace("_", " "),
            one.get("distribution") or NOTHING,
            one.get("version") or NOTHING,
            element("code", str(one.get("value"))),
            element("code", one.get("sha256") or NOTHING, class_="hash"),
        ]
        if row not in rows:  # a data source may be used for training, validation and test
            rows.append(row)
    head = ["Plugin", "Kind", "Distribution", "Version", "Found at", "SHA-256 of its files"]
    return table("Plugins", head, rows) if rows else None


def environment_section(environment: Mapping[str, Any]) -> Html | None:
    """What the run ran on."""
    rows: list[list[str | None]] = [
        [name, element("code", shortened(value, _LONGEST_VALUE))] for name, value in _flat("", environment)
    ]
    return table("Environment", ["What", "Value"], rows) if rows else None


def _flat(before: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(f"{before}{name} ", value)
        else:
            yield f"{before}{name}", value if isinstance(value, str) else orjson.dumps(value).decode()


def job_section(job: Mapping[str, Any]) -> Html:
    """The job with all of its defaults; secrets are references."""
    text = orjson.dumps(job, option=orjson.OPT_INDENT_2).decode()
    return element(
        "details",
        element("summary", "job.json, with all defaults filled in"),
        element("pre", shortened(text, _LONGEST_JOB), tabindex=0, class_="scroll"),
    )
