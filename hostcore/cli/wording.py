"""Numbers and times as commands show them to people."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

#: Stands for what is not there.
NOTHING: Final = "-"

_UNITS: Final = (("day", 86400), ("hour", 3600), ("minute", 60))


def ago(time_ms: int, now: int) -> str:
    """``just now``, ``3 minutes ago``; both times in milliseconds since 1970."""
    seconds = (now - time_ms) // 1000
    for unit, size in _UNITS:
        if (count := seconds // size) >= 1:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return f"{seconds} s ago" if seconds >= 1 else "just now"


def lasting(seconds: float | None) -> str:
    """``0.4s``, ``42s``, ``3m12s``, ``2h05m``, ``3d04h``."""
    if seconds is None:
        return NOTHING
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d{hour:02}h"
    if hours:
        return f"{hours}h{minute:02}m"
    return f"{minutes}m{second:02}s" if minutes else f"{second}s"


def steps_of(step: int, max_steps: int) -> str:
    """``1,500/2,000``."""
    return f"{step:,}/{max_steps:,}" if max_steps else f"{step:,}"


def by_phase(metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    """Metrics in the order of a run's phases: of training, then of validation, then of the test."""
    phases = ("val/", "test/")
    return dict(sorted(metrics.items(), key=lambda item: [item[0].startswith(phase) for phase in reversed(phases)]))


def figure(value: float | None) -> str:
    """A metric."""
    return "not finite" if value is None else f"{value:.6g}"


def best_of(best: Mapping[str, Any]) -> str:
    """``val/loss 0.5123 at step 1,200``: the best of a result."""
    return f"{best['metric']} {figure(best['value'])} at step {best['step']:,}"


def in_columns(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Aligned columns, a line each."""
    cells = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
