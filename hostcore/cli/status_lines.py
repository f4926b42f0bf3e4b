"""The page of ``hostcore status``."""

import shlex
from collections.abc import Iterator

from hostcore.cli.output import shown, style
from hostcore.cli.report import error_with_place
from hostcore.cli.run_client import RunHandle
from hostcore.cli.wording import (
    NOTHING,
    ago,
    best_of,
    by_phase,
    duration_of,
    figure,
    in_columns,
    lasting,
    named_values,
    steps_of,
    warnings_of,
)
from hostcore.events.bounds import bounded
from hostcore.events.times import moment
from hostcore.events.writer import now_ms
from hostcore.runs.history import AttemptHistory
from hostcore.runs.used import shown_fingerprint
from hostcore.supervisor.run_status import RunStatus
from hostcore_builtin_plugins.progress import format_bytes, format_devices, format_duration, format_rate
from hostcore_hookspecs.errors import RunError

_COLORS = {"running": "cyan", "succeeded": "green", "failed": "red", "lost": "red"}
#: In the table of attempts, in bytes; the newest error stands above it as a whole.
_LONGEST_WHY = 300


def page_of(status: RunStatus, *, verbose: bool) -> str:
    """Format the whole page."""
    return "\n".join([*head_of(status, verbose=verbose), *_tables(status), *_places(status)])


def head_of(status: RunStatus, *, verbose: bool) -> Iterator[str]:
    """Format status, progress and end."""
    summary = status.summary
    yield f"{style(summary.status, fg=_COLORS.get(summary.status, 'yellow'), bold=True)}  {summary.run_id}"
    lines = [*_facts(status), *((name, figure(value)) for name, value in by_phase(status.metrics).items())]
    yield from named_values(lines)
    if verbose and status.error and status.error.traceback:
        yield ""
        yield status.error.traceback.rstrip("\n")


def _facts(status: RunStatus) -> Iterator[tuple[str, str]]:
    summary, now = status.summary, now_ms()
    yield "trainer", summary.trainer
    if status.engine:
        yield "engine", status.engine
    if status.detail:
        yield "detail", status.detail
    if status.parent:
        yield "begun from", status.parent
    yield "steps", ", ".join(_pace(status))
    yield "attempt", str(summary.attempt) if summary.attempt else NOTHING
    if len(status.devices) > 1:
        yield "devices", format_devices(status.devices)
    if fingerprint := status.data:
        yield "data", shown_fingerprint(fingerprint)
    yield "submitted", f"{moment(summary.submitted_ms)} ({ago(summary.submitted_ms, now)})"
    if summary.ended_ms:
        yield "ended", f"{moment(summary.ended_ms)} ({ago(summary.ended_ms, now)})"
    if (seconds := summary.seconds(now)) is not None:
        yield "duration", duration_of(seconds, status.attempts, now)
    yield from warnings_of(status.warnings)
    if status.best:
        yield "best", best_of(status.best)
    if status.lost:
        yield "lost", status.lost
    if status.reason:
        yield "reason", status.reason
    if status.error:
        yield from _error(status.error)
    if status.can_go_on:
        yield "to go on", shlex.join(status.resume)


def _error(error: RunError) -> Iterator[tuple[str, str]]:
    yield "error", error_with_place(error)
    if error.hint:
        yield "hint", error.hint
    if error.traceback:
        yield "traceback", "shown with -v"


def _why(attempt: AttemptHistory) -> str:
    return f"{attempt.error.type}: {attempt.error.message}" if attempt.error else attempt.reason or ""


def _pace(status: RunStatus) -> Iterator[str]:
    """Format the progress and, while it runs, the speed."""
    summary = status.summary
    share = f" ({min(1.0, summary.step / summary.max_steps):.0%})" if summary.max_steps else ""
    yield f"{steps_of(summary.step, summary.max_steps)}{share}"
    if summary.status == "running":
        if status.samples_per_second is not None:
            yield f"{format_rate(status.samples_per_second)} samples/s"
        if status.eta_seconds is not None:
            yield f"eta {format_duration(status.eta_seconds)}"


def _tables(status: RunStatus) -> Iterator[str]:
    now = now_ms()
    if status.attempts:
        yield ""
        yield from in_columns(
            ["ATTEMPT", "STATUS", "STARTED", "DURATION", "STEPS", "WHY"],
            [
                (
                    *(one.attempt, one.status, moment(one.started_ms) if one.started_ms else NOTHING),
                    *(lasting(one.seconds(now)), _range(one.first_step, one.last_step)),
                    bounded(_why(one).partition("\n")[0], _LONGEST_WHY),
                )
                for one in status.attempts
            ],
        )
    if status.checkpoints:
        yield ""
        yield from in_columns(
            ["CHECKPOINT", "EPOCH", "SIZE", "ATTEMPT", "SAVED", ""],
            [
                (
                    *(one.name, one.epoch + 1, format_bytes(one.bytes), one.attempt),
                    *(ago(one.saved_ms, now) if one.saved_ms else NOTHING, "final" if one.final else ""),
                )
                for one in status.checkpoints
            ],
        )
    if status.plugins:
        yield ""
        yield from in_columns(
            ["PLUGIN", "KIND", "DISTRIBUTION", "VERSION"],
            [
                (one["name"], one["kind"], one.get("distribution") or NOTHING, one.get("version") or NOTHING)
                for one in status.plugins
            ],
        )


def _range(first: int | None, last: int | None) -> str:
    if last is None:
        return NOTHING
    return f"{first:,} to {last:,}" if first is not None else f"{last:,}"


def _places(status: RunStatus) -> Iterator[str]:
    yield ""
    yield from named_values(list(status.places.items()))


def follow_status(run: RunHandle, *, draw: bool) -> None:
    """Wait until a run is over.

    :param draw: Whether to show it meanwhile.
    """
    if not draw:
        while not run.is_over():
            run.wait()
        return
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False, transient=True) as live:
        while not run.is_over():
            text = "\n".join(head_of(run.status(), verbose=False))
            live.update(Text.from_ansi(shown(text), no_wrap=True, overflow="ellipsis"), refresh=True)
            run.wait()
