"""The reporter ``terminal``: shows a run on standard error, as a bar on a terminal and as lines elsewhere."""

import errno
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Protocol, TextIO

import attrs
import orjson
from annotated_types import Ge

from hostcore_builtin_plugins.control_characters import visible
from hostcore_builtin_plugins.messages import message_of
from hostcore_builtin_plugins.progress import RunProgress
from hostcore_hookspecs import Event, FatalError, ReporterContext
from hostcore_hookspecs.events import ENDS, Metrics, Progress, Validation

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

#: The bar is redrawn at most this often.
_REDRAW_SECONDS = 0.25
#: What writing to a terminal or a pipe fails with when its reader is gone.
_GONE = frozenset({errno.EPIPE, errno.EIO, errno.EBADF, errno.ENXIO})
_MARK: Final = b'"event":"validation"'


class TerminalReporter:
    """Shows how far the run is, and what happens to it.

    :param clock: Seconds, from anywhere; decides how often something is shown, not what.
    """

    #: Earlier events are in the log; here they would only scroll by.
    LIVE_ONLY = True

    @attrs.frozen(kw_only=True)
    class Settings:
        """Output of the reporter."""

        every_seconds: Annotated[float, Ge(0)] = attrs.field(
            default=5.0, metadata={"help": "Where there is no terminal: the time from one line to the next."}
        )

    def __init__(self, *, settings: Settings | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings or self.Settings()
        self._clock = clock
        self._view: _View | None = None
        self._losses = LowestLosses()
        self._log: Path | None = None

    def open(self, ctx: ReporterContext) -> None:
        """Look at what standard error is."""
        self._log = Path(ctx.run_dir, "logs", "events.jsonl")
        stream = sys.stderr
        if stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb"):
            self._view = _BarView(ctx.run_id, stream, self._clock)
        else:
            self._view = _LineView(ctx.run_id, stream, self._clock, self._settings.every_seconds)

    def report_event(self, event: Event) -> None:
        """Show the event, or what it changes.

        :raises FatalError: When the terminal is gone.
        """
        if self._view is None:
            return
        if self._log is not None:  # the first one: what was before it counts for the lowest losses
            log, self._log = self._log, None
            self._losses.read(log, before=event.seq)
        try:
            message = message_of(event, best=self._losses.note(event))
            self._view.show(event, message and visible(message))
        except (OSError, ValueError) as error:  # ValueError: it was closed
            if isinstance(error, OSError) and error.errno not in _GONE:
                raise
            raise FatalError(f"standard error is gone: {error}") from error

    def close(self) -> None:
        """Leave the terminal as it was, even if the run had no end."""
        view, self._view = self._view, None
        if view is not None:
            view.close()


class _View(Protocol):
    def show(self, event: Event, message: str | None) -> None: ...

    def close(self) -> None: ...


class _LineView:
    """Plain lines, for logs and pipes."""

    def __init__(self, run_id: str, stream: TextIO, clock: Callable[[], float], every_seconds: float) -> None:
        self._run_id = run_id
        self._stream = stream
        self._clock = clock
        self._every_seconds = every_seconds
        self._progress = RunProgress()
        self._shown_at = clock()
        self._shown: str | None = None

    def show(self, event: Event, message: str | None) -> None:
        self._progress.update(event)
        if event.name in ENDS and self._progress.step:
            self._show_progress()  # the last step, if it was not shown
        if message:
            self._write(message)
        if isinstance(event.payload, (Metrics, Progress)) and self._is_due(event):
            self._show_progress()

    def close(self) -> None:
        """Nothing to put back."""

    def _is_due(self, event: Event) -> bool:
        is_first = self._shown is None and isinstance(event.payload, Metrics)
        return is_first or self._clock() - self._shown_at >= self._every_seconds

    def _show_progress(self) -> None:
        text = visible(" ".join(self._progress.parts().values()), one_line=True)
        if text != self._shown:
            self._write(text)
        self._shown, self._shown_at = text, self._clock()

    def _write(self, text: str) -> None:
        self._stream.write("".join(f"{self._run_id} {line}\n" for line in text.splitlines()))
        self._stream.flush()


class _BarView:
    """A line that is redrawn in place, and messages above it.

    No thread redraws it: a dead terminal then raises where the host catches it.
    """

    def __init__(self, run_id: str, stream: TextIO, clock: Callable[[], float]) -> None:
        from rich.console import Console
        from rich.live import Live

        self._run_id = run_id
        self._clock = clock
        self._progress = RunProgress()
        self._console = Console(file=stream, force_terminal=True, highlight=False, markup=False, emoji=False)
        # Standard output belongs to results, which may be piped elsewhere: it is left alone.
        self._live = Live(self, console=self._console, auto_refresh=False, redirect_stdout=False)
        self._drawn_at: float | None = None

    def show(self, event: Event, message: str | None) -> None:
        self._progress.update(event)
        if not self._live.is_started and event.name not in ENDS:
            self._live.start()
        if event.name in ENDS:
            self.close()
        if message:
            failed = event.name == "run_failed"
            self._console.print(message, style="red" if failed else None, soft_wrap=True)
        if self._live.is_started and (self._drawn_at is None or self._clock() - self._drawn_at >= _REDRAW_SECONDS):
            self._live.refresh()
            self._drawn_at = self._clock()

    def close(self) -> None:
        if self._live.is_started:
            self._live.stop()  # draws it a last time

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.cells import cell_len
        from rich.progress_bar import ProgressBar
        from rich.segment import Segment
        from rich.text import Text

        width = options.max_width - 1  # a full line would wrap on some terminals
        parts = {name: visible(part, one_line=True) for name, part in self._progress.parts().items()}
        for name in ("rate", "validated", "nonfinite", "eta", "metric"):
            if cell_len("  ".join(parts.values())) > width:
                parts.pop(name, None)
        text = Text("  ".join(parts.values()), no_wrap=True, end="")
        if text.cell_len + len(self._run_id) + 2 <= width:
            text = Text.assemble((self._run_id, "bold"), "  ", text, no_wrap=True, end="")
        text.truncate(width, overflow="ellipsis")
        yield text
        room = width - text.cell_len - 2
        if self._progress.fraction is not None and room >= 10:
            yield Text("  ", end="")
            bar = ProgressBar(total=1.0, completed=self._progress.fraction, width=min(room, 40))
            yield from console.render(bar)
        yield Segment.line()


class LowestLosses:
    """Validations, and those of their losses that were never lower.

    Whether other metrics should fall or rise is unknown; a metric is a loss if its name ends with ``loss``.
    """

    def __init__(self) -> None:
        self._lowest: dict[str, float] = {}

    def read(self, log: Path, *, before: int) -> None:
        """Note the validations that were before an event.

        :param log: The run's ``events.jsonl``; may be missing.
        :param before: The event's ``seq``.
        """
        try:
            lines = log.read_bytes().splitlines()
        except OSError:  # a missing mark is no reason to fail a run
            return
        for line in lines:
            if _MARK in line and line.endswith(b"}"):
                found = orjson.loads(line)
                if found["seq"] >= before:
                    return
                self._note(found["metrics"])

    def note(self, event: Event) -> frozenset[str]:
        """The losses of an event that are lower than all before. That of a first validation is not."""
        return self._note(event.payload.metrics) if isinstance(event.payload, Validation) else frozenset()

    def _note(self, metrics: Mapping[str, float | None]) -> frozenset[str]:
        losses = {name: value for name, value in metrics.items() if value is not None and name.endswith("loss")}
        lower = {name: value for name, value in losses.items() if value < self._lowest.get(name, value)}
        for name, value in losses.items():
            self._lowest[name] = min(value, self._lowest.get(name, value))
        return frozenset(lower)
