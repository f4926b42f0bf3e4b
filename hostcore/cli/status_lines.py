"""A run as ``hostcore status`` shows it to people, wherever it runs."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from hostcore.cli.output import shown, style
from hostcore.events.bounds import bounded
from hostcore.events.times import moment
from hostcore.events.writer import now_ms
from hostcore.report.wording import (
    NOTHING,
    ago,
    best_of,
    by_phase,
    figure,
    in_columns,
    lasting,
    named_values,
    steps_of,
    warnings_of,
)
from hostcore.runs.directory import runs_dir
from hostcore.runs.history import AttemptHistory
from hostcore.runs.result import RunWarning
from hostcore.runs.summary import RunSummary
from hostcore.supervisor.run_status import RunStatus, can_go_on
from hostcore_builtin_plugins.progress import format_bytes, format_devices, format_duration, format_rate
from hostcore_hookspecs.errors import RunError

_COLORS = {"running": "cyan", "succeeded": "green", "failed": "red", "lost": "red"}
#: In the table of attempts, in bytes; the newest error stands above it as a whole.
_LONGEST_WHY = 300


@attrs.frozen(kw_only=True)
class CheckpointLine:
    """A committed checkpoint."""

    #: Of its folder.
    name: str
    epoch: int
    bytes: int
    attempt: int
    #: Milliseconds since 1970.
    saved_ms: int
    final: bool


@attrs.frozen(kw_only=True)
class Sight:
    """What is shown of a run."""

    summary: RunSummary
    #: Where it was launched, and what it is called there; empty where that is not known.
    engine: str = ""
    #: What its engine says of it; empty for nothing.
    detail: str = ""
    metrics: Mapping[str, float | None]
    attempts: Sequence[AttemptHistory]
    checkpoints: Sequence[CheckpointLine]
    plugins: Sequence[Mapping[str, Any]]
    devices: Sequence[str]
    parent: str | None
    lost: str | None
    reason: str | None
    error: RunError | None
    best: Mapping[str, Any] | None
    samples_per_second: float | None
    eta_seconds: float | None
    warnings: Sequence[RunWarning] = ()
    #: The words of the command that continues it.
    resume: Sequence[str]
    #: Where to look for more, by what is there.
    places: Mapping[str, str]

    @property
    def can_go_on(self) -> bool:
        """See :func:`can_go_on`."""
        return can_go_on(self.summary, self.checkpoints)


def sight_of(run_status: RunStatus) -> Sight:
    """What is shown of a run of this machine."""
    directory = run_status.directory
    elsewhere = directory.path.parent != runs_dir()
    return Sight(
        summary=run_status.summary,
        metrics=run_status.metrics,
        attempts=run_status.attempts,
        checkpoints=[
            CheckpointLine(
                name=one.record.folder_name,
                epoch=one.record.epoch,
                bytes=one.record.size,
                attempt=one.record.attempt,
                saved_ms=one.saved_ms,
                final=one.record.final,
            )
            for one in run_status.checkpoints
        ],
        plugins=run_status.plugins,
        devices=run_status.devices,
        parent=run_status.parent,
        lost=run_status.lost,
        reason=run_status.reason,
        warnings=run_status.warnings,
        error=run_status.error,
        best=run_status.result.best if run_status.result else None,
        samples_per_second=run_status.progress.samples_per_second,
        eta_seconds=run_status.progress.eta_seconds,
        resume=["hostcore", "resume", str(directory.path) if elsewhere else run_status.summary.run_id],
        places={name: str(path) for name, path in run_status.places.items()},
    )


def page_of(sight: Sight, *, verbose: bool) -> str:
    """Everything."""
    return "\n".join([*head_of(sight, verbose=verbose), *_tables(sight), *_places(sight)])


def head_of(sight: Sight, *, verbose: bool) -> Iterator[str]:
    """What it is, how far it is, and what became of it."""
    summary = sight.summary
    yield f"{style(summary.status, fg=_COLORS.get(summary.status, 'yellow'), bold=True)}  {summary.run_id}"
    lines = [*_facts(sight), *((name, figure(value)) for name, value in by_phase(sight.metrics).items())]
    yield from named_values(lines)
    if verbose and sight.error and sight.error.traceback:
        yield ""
        yield sight.error.traceback.rstrip("\n")


def _facts(sight: Sight) -> Iterator[tuple[str, str]]:
    summary, now = sight.summary, now_ms()
    yield "trainer", summary.trainer
    if sight.engine:
        yield "engine", sight.engine
    if sight.detail:
        yield "detail", sight.detail
    if sight.parent:
        yield "begun from", sight.parent
    yield "steps", ", ".join(_pace(sight))
    yield "attempt", str(summary.attempt) if summary.attempt else NOTHING
    if len(sight.devices) > 1:
        yield "devices", format_devices(sight.devices)
    yield "submitted", f"{moment(summary.submitted_ms)} ({ago(summary.submitted_ms, now)})"
    if summary.status == "running":
        yield "running", f"for {lasting(summary.seconds(now))}"
    elif summary.ended_ms:
        yield (
            "ended",
            f"{moment(summary.ended_ms)} ({ago(summary.ended_ms, now)}), after {lasting(summary.seconds(now))}",
        )
    yield from warnings_of(sight.warnings)
    if sight.best:
        yield "best", best_of(sight.best)
    if sight.lost:
        yield "lost", sight.lost
    if sight.reason:
        yield "reason", sight.reason
    if sight.error:
        yield from _error(sight.error)
    if sight.can_go_on:
        yield "to go on", shlex.join(sight.resume)


def _error(error: RunError) -> Iterator[tuple[str, str]]:
    where = [f"in {error.plugin}"] if error.plugin else []
    where += [f"on rank {error.rank}"] if error.rank else []
    yield "error", f"{error.type}: {error.message}" + (f" ({', '.join(where)})" if where else "")
    if error.hint:
        yield "hint", error.hint
    if error.traceback:
        yield "traceback", "shown with -v"


def _why(attempt: AttemptHistory) -> str:
    return f"{attempt.error.type}: {attempt.error.message}" if attempt.error else attempt.reason or ""


def _pace(sight: Sight) -> Iterator[str]:
    """How far it is and, while it runs, how fast."""
    summary = sight.summary
    share = f" ({min(1.0, summary.step / summary.max_steps):.0%})" if summary.max_steps else ""
    yield f"{steps_of(summary.step, summary.max_steps)}{share}"
    if summary.status == "running":
        if sight.samples_per_second is not None:
            yield f"{format_rate(sight.samples_per_second)} samples/s"
        if sight.eta_seconds is not None:
            yield f"eta {format_duration(sight.eta_seconds)}"


def _tables(sight: Sight) -> Iterator[str]:
    now = now_ms()
    if sight.attempts:
        yield ""
        yield from in_columns(
            ["ATTEMPT", "STATUS", "STARTED", "DURATION", "STEPS", "WHY"],
            [
                (
                    *(one.attempt, one.status, moment(one.started_ms) if one.started_ms else NOTHING),
                    *(lasting(one.seconds(now)), _range(one.first_step, one.last_step)),
                    bounded(_why(one).partition("\n")[0], _LONGEST_WHY),
                )
                for one in sight.attempts
            ],
        )
    if sight.checkpoints:
        yield ""
        yield from in_columns(
            ["CHECKPOINT", "EPOCH", "SIZE", "ATTEMPT", "SAVED", ""],
            [
                (
                    *(one.name, one.epoch + 1, format_bytes(one.bytes), one.attempt),
                    *(ago(one.saved_ms, now), "final" if one.final else ""),
                )
                for one in sight.checkpoints
            ],
        )
    if sight.plugins:
        yield ""
        yield from in_columns(
            ["PLUGIN", "KIND", "DISTRIBUTION", "VERSION"],
            [
                (one["name"], one["kind"], one.get("distribution") or NOTHING, one.get("version") or NOTHING)
                for one in sight.plugins
            ],
        )


def _range(first: int | None, last: int | None) -> str:
    if last is None:
        return NOTHING
    return f"{first:,} to {last:,}" if first is not None else f"{last:,}"


def _places(sight: Sight) -> Iterator[str]:
    yield ""
    yield from named_values(list(sight.places.items()))


def follow_status(
    *, is_over: Callable[[], bool], look: Callable[[], Sight], wait: Callable[[], None], draw: bool
) -> None:
    """Wait until a run is over.

    :param look: How it is.
    :param wait: Called between two looks.
    :param draw: Whether to show it meanwhile.
    """
    if not draw:
        while not is_over():
            wait()
        return
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False, transient=True) as live:
        while not is_over():
            text = "\n".join(head_of(look(), verbose=False))
            live.update(Text.from_ansi(shown(text), no_wrap=True, overflow="ellipsis"), refresh=True)
            wait()
