"""A sweep on the terminal: a live table or, where there is none, a line for everything that happens to a trial."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, TextIO

from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hostcore.cli.output import echo
from hostcore.cli.wording import NOTHING, figure, lasting
from hostcore_builtin_plugins.control_characters import visible
from hostcore_sweeps.space import Values
from hostcore_sweeps.status import RowState, SweepStatus, TrialRow

_REFRESH_SECONDS: Final = 0.5
#: Rows of a live table, beside its best.
_MOST_ROWS: Final = 20
#: Characters between columns.
_GAP: Final = 2
#: Of failures: lines, and numbers in one.
_MOST_REASONS: Final = 3
_MOST_NUMBERS: Final = 8
_COLOURS: Final[Mapping[RowState, str]] = {
    "running": "cyan",
    "paused": "yellow",
    "complete": "green",
    "pruned": "bright_black",
    "failed": "red",
}


def short_names(pointers: Sequence[str]) -> dict[str, str]:
    """Return the column names of parameters: the last key of each pointer, if no two have the same."""
    last = [pointer.rpartition("/")[2] for pointer in pointers]
    return {pointer: name if last.count(name) == 1 else pointer for pointer, name in zip(pointers, last, strict=True)}


def columns(status: SweepStatus) -> list[str]:
    """The head of the table of trials."""
    metrics = [one.metric for one in status.objectives]
    return ["TRIAL", "STATE", "STEP", *metrics, *short_names(list(status.sweep.space)).values()]


def cells(status: SweepStatus, row: TrialRow) -> list[str]:
    """One trial as a row of the table."""
    best = "*" if row.number in status.best else ""
    metrics = [
        figure(row.objective[one.metric]) if one.metric in row.objective else NOTHING for one in status.objectives
    ]
    values = [shown(row.values, pointer) for pointer in status.sweep.space]
    return [f"{row.number}{best}", row.state, f"{row.step:,}", *metrics, *values]


def shown(values: Values, pointer: str) -> str:
    """The value of a parameter; - where its condition does not hold."""
    if pointer not in values:
        return NOTHING
    value: Any = values[pointer]
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def summary(status: SweepStatus) -> str:
    """A sweep in a line."""
    counts = [f"{count} {state}" for state in _COLOURS if (count := status.count(state))]
    head = f"{status.sweep.sweep_id}  {status.state}  {len(status.trials)}/{status.most_trials} trials"
    return "  ".join([head, ", ".join(counts), lasting(status.driven_ms / 1000)])


def failures(status: SweepStatus) -> list[str]:
    """Return a line per reason for failed trials, the reason of most trials first."""
    numbers: dict[str, list[int]] = {}
    for row in status.trials:
        if row.state == "failed":
            numbers.setdefault(row.reason or "for no known reason", []).append(row.number)
    frequent = sorted(numbers.items(), key=lambda one: -len(one[1]))[:_MOST_REASONS]
    return [f"{_of_trials(of_reason)} failed: {reason}" for reason, of_reason in frequent]


def _of_trials(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"trial {numbers[0]}"
    more = f" and {len(numbers) - _MOST_NUMBERS} more" if len(numbers) > _MOST_NUMBERS else ""
    return f"trials {', '.join(map(str, numbers[:_MOST_NUMBERS]))}{more}"


class Screen(Protocol):
    """Shows a sweep while it is entered."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *_: object) -> None: ...

    def show(self, ask: Callable[[], SweepStatus]) -> None:
        """Show the status that ``ask`` returns. Called several times a second."""


def screen_on(stream: TextIO) -> Screen:
    """Return the display of a sweep on a stream: lines, unless a terminal can redraw a table."""
    return LiveTable() if stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb") else LineScreen()


class LiveTable:
    """Shows a sweep on a terminal, on standard error, while it is entered."""

    def __init__(self, *, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due = 0.0
        self._live = Live(console=console or Console(stderr=True), auto_refresh=False, transient=True)

    def __enter__(self) -> "LiveTable":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, ask: Callable[[], SweepStatus]) -> None:
        """Draw it anew, if it is time."""
        if self._clock() >= self._due:
            self._due = self._clock() + _REFRESH_SECONDS
            # Not as wide as the terminal: behind the last line, ^C is echoed, and must not begin another.
            self._live.update(_picture(ask(), width=self._live.console.width - 3), refresh=True)


def _picture(status: SweepStatus, *, width: int) -> Group:
    lines = [summary(status), *([told] if (told := _stopping(status)) else [])]
    return Group(*(Text(visible(line, one_line=True)) for line in lines), _table(status, width=width))


def _table(status: SweepStatus, *, width: int) -> Table:
    """Return the table of trials, with as many of the parameters as there is room for: cut values are useless."""
    newest = sorted(status.trials, key=lambda row: (row.is_over, -row.number))[:_MOST_ROWS]
    numbers = {*(row.number for row in newest), *status.best[:1]}
    rows = [row for row in status.trials if row.number in numbers]
    lines = [columns(status), *(cells(status, row) for row in rows)]
    texts = [[visible(cell, one_line=True) for cell in line] for line in lines]
    fitting = _fitting(texts, width=width, least=len(columns(status)) - len(status.sweep.space))
    table = Table(box=None, pad_edge=False)
    for name in texts[0][:fitting]:
        table.add_column(name, no_wrap=True)
    if fitting < len(texts[0]):
        table.add_column("…")
    for row, line in zip(rows, texts[1:], strict=True):
        table.add_row(*(Text(cell, style=_COLOURS[row.state]) for cell in line[:fitting]))
    return table


def _fitting(lines: Sequence[Sequence[str]], *, width: int, least: int) -> int:
    """Return the number of columns that have room, with a sign for the others."""
    widths = [max(map(cell_len, column)) + _GAP for column in zip(*lines, strict=True)]
    if sum(widths) - _GAP <= width:
        return len(widths)
    return max(least, *(count for count in range(len(widths)) if sum(widths[:count]) + 1 <= width))


def _stopping(status: SweepStatus) -> str | None:
    """Return the notice while trials are being paused; None at other times."""
    if status.state != "running" or not status.reason:
        return None
    return f"stopping: {status.reason}; each trial writes a checkpoint and ends. A second Ctrl-C kills them"


class LineScreen:
    """Prints a line, on standard error, for each trial that was started or has ended. What is new at its exit, too."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due = 0.0
        self._ask: Callable[[], SweepStatus] | None = None
        #: By trial: the reported state; None before the first poll.
        self._told: dict[int, tuple[str, int]] | None = None
        self._is_stopping = False

    def __enter__(self) -> "LineScreen":
        return self

    def __exit__(self, *_: object) -> None:
        if self._ask is not None:
            with suppress(OSError):  # its reader has seen enough: how the sweep has ended counts
                self._tell(self._ask())

    def show(self, ask: Callable[[], SweepStatus]) -> None:
        """Print what is new, if it is time."""
        self._ask = ask
        if self._clock() >= self._due:
            self._due = self._clock() + _REFRESH_SECONDS
            self._tell(ask())

    def _tell(self, status: SweepStatus) -> None:
        if (stopping := _stopping(status)) and not self._is_stopping:
            self._is_stopping = True
            echo(stopping, err=True)
        if self._told is None:  # reported by an earlier driver
            self._told = {row.number: (row.state, row.starts) for row in status.trials if row.is_over}
        for row in status.trials:
            about = (row.state, row.starts)
            if self._told.get(row.number) != about:
                self._told[row.number] = about
                echo(_line(status, row), err=True)


def _line(status: SweepStatus, row: TrialRow) -> str:
    names = short_names(list(status.sweep.space))
    words = [f"trial {row.number}", "goes on" if row.starts > 1 and not row.is_over else row.state]
    if row.is_over:
        words += [f"{name}={figure(value)}" for name, value in row.objective.items()]
    words += [f"{names[pointer]}={shown(row.values, pointer)}" for pointer in row.values]
    return "  ".join([*words, *([row.reason] if row.reason else [])])
