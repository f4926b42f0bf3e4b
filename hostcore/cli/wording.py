"""Numbers, times and texts of a run as people read them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from hostcore_builtin_plugins.control_characters import visible

if TYPE_CHECKING:  # commands that show no run do not wait for cattrs
    from hostcore.runs.history import AttemptHistory
    from hostcore.runs.result import RunWarning

#: Stands for what is not there.
NOTHING: Final = "-"

#: The least room for a name in front of its value.
_NAME_WIDTH: Final = 12

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


def duration_of(seconds: float | None, attempts: "Sequence[AttemptHistory]", now: int) -> str:
    """``9.7s``; of a run of several attempts ``9.7s (21.3s in 2 attempts)``.

    :param seconds: Of the newest attempt: :meth:`hostcore.runs.summary.RunSummary.seconds`.
    :param now: Milliseconds since 1970.
    """
    if len(attempts) < 2:
        return lasting(seconds)
    from hostcore.runs.history import total_seconds

    return f"{lasting(seconds)} ({lasting(total_seconds(attempts, now))} in {len(attempts)} attempts)"


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


def shortened(text: str, most: int) -> str:
    """A text, or the beginning of it with a word about the rest.

    :param most: Characters.
    """
    return text if len(text) <= most else f"{text[:most]} … ({len(text) - most:,} more characters)"


def best_of(best: Mapping[str, Any]) -> str:
    """``val/loss 0.5123 at step 1,200``: the best of a result."""
    return f"{best['metric']} {figure(best['value'])} at step {best['step']:,}"


def warnings_of(warnings: "Sequence[RunWarning]") -> list[tuple[str, str]]:
    """The warnings of a run as lines with a name each; what to do follows those that it is for."""
    lines: list[tuple[str, str]] = []
    for at, one in enumerate(warnings):
        lines.append(("warning", one.message))
        if one.hint and [other.hint for other in warnings[at + 1 : at + 2]] != [one.hint]:
            lines.append(("hint", one.hint))
    return lines


def in_columns(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Aligned columns, a line each."""
    cells = [[visible(str(cell), one_line=True) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def named_values(lines: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Names and their values below a head; the lines of a value stand under each other."""
    shown = [(visible(name, one_line=True), value) for name, value in lines]
    width = max([_NAME_WIDTH, *(len(name) + 2 for name, _ in shown)])
    for name, value in shown:
        first, *more = visible(value).splitlines() or [""]
        yield f"  {name:<{width}}{first}"
        yield from (f"  {'':<{width}}{line}" for line in more)
