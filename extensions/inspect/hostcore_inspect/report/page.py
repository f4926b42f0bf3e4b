"""The page that ``hostcore report`` writes: a run in one HTML file that needs nothing else.

``templates/`` has its layout; the contents of its sections are gathered here.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import attrs
import orjson

from hostcore.cli.wording import by_phase, duration_of, figure, steps_of
from hostcore.runs.directory import RunDirectory
from hostcore.runs.record import RunRecord
from hostcore.runs.result import RunResult
from hostcore.supervisor.run_status import CommittedCheckpoint, RunStatus
from hostcore_builtin_plugins.progress import format_duration, format_rate
from hostcore_hookspecs.errors import RunError
from hostcore_inspect.report.charts import LOSS, charts_of, phase_of
from hostcore_inspect.report.document import Section, assets, render
from hostcore_inspect.report.drawing import SMOOTHING
from hostcore_inspect.report.recording import EventRow, Recording, SavedCheckpoint
from hostcore_inspect.report.samples import newest_samples

T = TypeVar("T")

_MOST_METRICS: Final = 8
_MOST_SAMPLES: Final = 24
_MOST_ATTEMPTS: Final = 100
_MOST_CHECKPOINTS: Final = 200
#: Of the end of the output, in bytes.
_OUTPUT_BYTES: Final = 8_000
#: The kinds of events as people choose among them.
_KINDS: Final = {
    "warnings": "Warnings",
    "life": "Starts and ends",
    "files": "Checkpoints, samples, uploads",
    "other": "Validations and others",
}


@attrs.frozen
class _Newest(Generic[T]):
    """The end of a list that may be long."""

    shown: Sequence[T]
    #: How many older ones there are.
    left_out: int

    def __bool__(self) -> bool:
        return bool(self.shown)


@attrs.frozen(kw_only=True)
class _FailureSection:
    """Failure or loss of a run, with the last output."""

    error: RunError | None
    lost: str | None
    rank: int
    #: The end of the output of this rank; may be empty.
    output: str
    #: Bytes of the output before that.
    output_left_out: int


@attrs.frozen(kw_only=True)
class _CheckpointRow:
    """A checkpoint that was saved or lies in the folder of checkpoints."""

    saved: SavedCheckpoint
    is_kept: bool
    #: Whether the result calls it the best.
    is_best: bool

    @property
    def what_for(self) -> str:
        """Reasons to keep the checkpoint; may be empty."""
        words = ["final"] * self.saved.final
        words += [f"best {name} ({figure(value)})" for name, value in self.saved.best.items()]
        words += ["best"] * (self.is_best and not self.saved.best)
        return ", ".join(words)


@attrs.frozen(kw_only=True)
class _Events:
    """Events of some kinds, in their order."""

    rows: Sequence[EventRow]
    #: By kind: what people call it.
    kinds: Mapping[str, str]
    #: By what people call a kind: how many of its events are missing between the first and the newest ones.
    left_out: Mapping[str, int]

    def __bool__(self) -> bool:
        return bool(self.rows)


def write_page(run_status: RunStatus, record: RunRecord, recording: Recording, *, name: str, now: int) -> str:
    """The report of a run: an HTML document that needs no other file and no network.

    :param record: The run's.
    :param recording: Contents of its event log.
    :param name: The run's name on the command line.
    :param now: When it is written, in milliseconds since 1970.
    """
    return render(
        "page.html",
        run_status=run_status,
        summary=run_status.summary,
        requested_by=_requested_by(run_status),
        recording=recording,
        sections=[one for one in _sections(run_status, record, recording) if one.content],
        pace=", ".join(_pace(run_status)),
        duration=duration_of(run_status.summary.seconds(now), run_status.attempts, now),
        foremost=_foremost(run_status.metrics),
        name=name,
        now=now,
        smoothing=SMOOTHING,
        style=assets("hostcore_inspect.report", "page.css", "plots.css"),
        script=assets("hostcore_inspect.report", "events.js", "scales.js", "picture.js", "gallery.js", "curves.js"),
    )


def _directory_of(run_status: RunStatus) -> RunDirectory:
    assert run_status.directory is not None
    return RunDirectory(Path(run_status.directory))


def _requested_by(run_status: RunStatus) -> str | None:
    """Return who asked a run that has ended to stop."""
    result = RunResult.read(_directory_of(run_status).result) if run_status.summary.ended_ms is not None else None
    return result.requested_by if result else None


def _pace(run_status: RunStatus) -> Iterator[str]:
    summary = run_status.summary
    share = f" ({min(1.0, summary.step / summary.max_steps):.0%})" if summary.max_steps else ""
    yield f"{steps_of(summary.step, summary.max_steps)}{share}"
    if run_status.samples_per_second is not None:
        yield f"{format_rate(run_status.samples_per_second)} samples/s"
    if summary.status == "running" and run_status.eta_seconds is not None:
        yield f"eta {format_duration(run_status.eta_seconds)}"


def _foremost(metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    """The metrics that matter most: the losses, and what was measured in several phases; the table has the others."""
    names = list(by_phase(metrics))
    titles = [phase_of(name)[1] for name in names]
    chosen = [name for name, title in zip(names, titles, strict=True) if title == LOSS or titles.count(title) > 1]
    return {name: metrics[name] for name in (chosen or names)[:_MOST_METRICS]}


def _sections(run_status: RunStatus, record: RunRecord, recording: Recording) -> Iterator[Section]:
    requests = record.job.get("samples") or []
    samples = newest_samples(_directory_of(run_status).samples, requests, most=_MOST_SAMPLES)
    yield Section("failure", "Failure", _failure(run_status))
    yield Section("curves", "Curves", charts_of(recording))
    yield Section("warnings", "Warnings", _events(recording, ["warnings"]))
    yield Section("samples", "Samples", _Newest(*samples))
    yield Section("attempts", "Attempts", _newest(run_status.attempts, _MOST_ATTEMPTS))
    yield Section("checkpoints", "Checkpoints", _checkpoints(run_status, recording))
    yield Section("events", "Events", _events(recording, list(_KINDS)))
    yield Section("plugins", "Plugins", _plugins(run_status.plugins))
    yield Section("environment", "Environment", list(_flat("", record.environment)))
    yield Section("job", "Job", orjson.dumps(record.job_with_data, option=orjson.OPT_INDENT_2).decode())


def _newest(items: Sequence[T], most: int) -> _Newest[T]:
    return _Newest(items[-most:], max(0, len(items) - most))


def _failure(run_status: RunStatus) -> _FailureSection | None:
    """None for a run that neither failed nor is lost."""
    error = run_status.error
    if error is None and run_status.lost is None:
        return None
    rank = (error.rank if error else None) or 0
    output, left_out = _end_of(_directory_of(run_status).rank_output(run_status.summary.attempt, rank))
    return _FailureSection(error=error, lost=run_status.lost, rank=rank, output=output, output_left_out=left_out)


def _end_of(path: Path) -> tuple[str, int]:
    """The end of what a rank has printed, and how many bytes come before it."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            before = max(0, size - _OUTPUT_BYTES)
            file.seek(before)
            return file.read().decode(errors="replace").rstrip(), before
    except OSError:  # it never came so far, or may not be read
        return "", 0


def _events(recording: Recording, kinds: Sequence[str]) -> _Events:
    told = {kind: recording.told[kind] for kind in kinds if recording.told[kind].lines}
    rows = [EventRow.of(line, kind=kind) for kind, excerpt in told.items() for line in excerpt.lines]
    return _Events(
        rows=sorted(rows, key=lambda row: row.seq),
        kinds={kind: _KINDS[kind] for kind in told},
        left_out={_KINDS[kind]: excerpt.left_out for kind, excerpt in told.items() if excerpt.left_out},
    )


def _checkpoints(run_status: RunStatus, recording: Recording) -> _Newest[_CheckpointRow]:
    """The checkpoints that are there, and the newest of those that were saved; the newest first."""
    kept = {one.step: one for one in run_status.checkpoints}
    steps = sorted({*recording.saved, *kept})
    wanted = {*kept, *steps[-_MOST_CHECKPOINTS:]}
    best = run_status.best
    rows = []
    for step in reversed(steps):
        if step in wanted:
            saved = _saved(recording.saved.get(step), kept.get(step))
            is_best = best is not None and best["step"] == step
            rows.append(_CheckpointRow(saved=saved, is_kept=step in kept, is_best=is_best))
    return _Newest(rows, len(steps) - len(rows))


def _saved(told: SavedCheckpoint | None, there: CommittedCheckpoint | None) -> SavedCheckpoint:
    """A checkpoint by its commit record, or by the log where there is no record any more.

    :param told: The checkpoint in the log.
    :param there: The checkpoint in the folder of checkpoints. One of the two is given.
    """
    if there is None:
        assert told is not None
        return told
    return SavedCheckpoint(
        step=there.step,
        epoch=there.epoch,
        attempt=there.attempt,
        final=there.final,
        bytes=there.bytes,
        time_ms=told.time_ms if told else there.saved_ms or 0,
        best=told.best if told else {},
    )


def _plugins(plugins: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The plugins, each once: a data source may be used for training, validation and test."""
    told = ("name", "kind", "distribution", "version", "value", "sha256")
    rows: list[Mapping[str, Any]] = []
    for one in plugins:
        row = {key: one.get(key) for key in told}
        if row not in rows:
            rows.append(row)
    return rows


def _flat(before: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(f"{before}{name} ", value)
        else:
            yield f"{before}{name}", value if isinstance(value, str) else orjson.dumps(value).decode()
