"""A run that goes on elsewhere, shown and stopped on this terminal as if it went on here."""

import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from hostcore.cli.output import echo
from hostcore.events.codec import CorruptLog, decode_event
from hostcore.job.spec import JobSpec, job_view
from hostcore.runs.result import CANCELLED
from hostcore.supervisor.interrupts import Interrupts
from hostcore_builtin_plugins.terminal import TerminalReporter
from hostcore_hookspecs.errors import FatalError, HostcoreError
from hostcore_hookspecs.reporter import ReporterContext

_ASKED: Final = "is asked to stop; Ctrl-C once more ends the waiting, not the request"
#: Who could not be asked to stop is asked again so often.
_ASK_SECONDS: Final = 2.0


class Screen:
    """Shows events as the job's own reporter ``terminal`` would; nothing, if the job wants none.

    :param run_dir: Of the run, if it is seen from here.
    :param after_attempt: Events of this attempt and earlier ones are not shown.
    """

    def __init__(self, spec: JobSpec, *, run_id: str, run_dir: Path | None = None, after_attempt: int = 0) -> None:
        use = spec.terminal_use
        every = use.settings.get("every_seconds") if use else None
        settings = TerminalReporter.Settings(every_seconds=every) if isinstance(every, int | float) else None
        self._reporter = TerminalReporter(settings=settings) if use else None
        # Without a directory, the reporter does without what was before.
        self._context = ReporterContext(
            run_id=run_id, attempt=after_attempt + 1, job=job_view(spec), run_dir=str(run_dir or "/dev/null")
        )
        self._after_attempt = after_attempt

    def __enter__(self) -> "Screen":
        if self._reporter is not None:
            self._reporter.open(self._context)
        return self

    def __exit__(self, *_: object) -> None:
        if self._reporter is not None:
            self._reporter.close()

    def show(self, line: bytes) -> None:
        """Show an event, from its line in ``events.jsonl``."""
        if self._reporter is None:
            return
        try:
            event = decode_event(line)
            if event.attempt > self._after_attempt:
                self._reporter.report_event(event)
        except CorruptLog:
            return  # of a newer hostcore: this one knows nothing to show for it
        except FatalError:  # the terminal is gone
            self._reporter = None


class WatchSignals:
    """What the signals ask for: the first Ctrl-C cancels the run, and any other signal ends the watching alone.

    :param cancel: Called with the reason until it has gone well, once.
    :param retry_on: What it raises when that may go well another time.
    :param watch: The words of the command that shows how the run goes.
    """

    def __init__(
        self,
        run_id: str,
        interrupts: Interrupts,
        *,
        cancel: Callable[[str], object],
        retry_on: type[HostcoreError],
        watch: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run_id = run_id
        self._interrupts = interrupts
        self._cancel = cancel
        self._retry_on = retry_on
        self._watch = watch
        self._clock = clock
        #: When to ask again; None: it did not go wrong yet.
        self._due: float | None = None
        #: Whether the run was asked to stop.
        self.cancel_was_sent = False

    def handle(self) -> None:
        """Do what has been asked for meanwhile. To be called often.

        :raises SystemExit: When a second Ctrl-C or another signal ends the watching.
        :raises HostcoreError: When the run cannot be asked to stop.
        """
        asked = self._interrupts.first
        if asked is None:
            return
        if asked.status == "cancelled" and not self.cancel_was_sent:
            self._ask_to_stop(asked.reason)
        if asked.status != "cancelled" or self._interrupts.forced:
            self._leave(asked.requested_by)

    def _ask_to_stop(self, reason: str) -> None:
        if self._due is not None and (self._interrupts.forced or self._clock() < self._due):
            return
        try:
            self._cancel(reason)
        except self._retry_on as error:
            if self._due is None:
                echo(f"{self._run_id}  cannot be asked to stop yet: {error.message}; trying again", err=True)
            self._due = self._clock() + _ASK_SECONDS
            return
        self.cancel_was_sent = True
        echo(f"{self._run_id}  {_ASKED}", err=True)

    def _leave(self, requested_by: str) -> None:
        state = "goes on without being watched" if self._due is None else "could not be asked to stop, and goes on"
        state = "is still asked to stop" if self.cancel_was_sent else state
        echo(f"{self._run_id}  {state}; `{shlex.join(self._watch)}` shows how it goes", err=True)
        name = requested_by.removeprefix("signal:")
        sys.exit(128 + signal.Signals[name] if requested_by != name else CANCELLED)
