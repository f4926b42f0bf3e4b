"""Start a run and follow it until it ends, in this process, at a launcher or at a service: ``run`` and ``resume``."""

import shlex
import signal
import sys
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar, Final, NoReturn

from hostcore.cli.output import echo
from hostcore.cli.report import print_result, print_submission
from hostcore.cli.run_client import StartedRun
from hostcore.cli.stopping import leave
from hostcore.events.codec import CorruptLog, decode_event
from hostcore.job.spec import JobSpec, job_view
from hostcore.runs.result import CANCELLED, SUCCEEDED, RunResult
from hostcore.supervisor.interrupts import Interrupts
from hostcore_builtin_plugins.terminal import TerminalReporter
from hostcore_hookspecs.errors import FatalError, TransientError
from hostcore_hookspecs.reporter import ReporterContext

_ASKED: Final = "is asked to stop; Ctrl-C once more ends the waiting, not the request"


def start_and_follow(
    start: Callable[[Interrupts], AbstractContextManager[StartedRun]], *, detach: bool = False, as_json: bool = False
) -> NoReturn:
    """Start a run, follow it until it ends unless it is detached, report it, and exit with its code.

    :param start: Starts the run; it is held while the returned context is entered.
    """
    with Interrupts() as interrupts, start(interrupts) as run:
        code = SUCCEEDED
        if run.finished is not None:
            print_result(run.finished, run, as_json=as_json, note="finished before: nothing to do")
        elif detach:
            print_submission(run, as_json=as_json)
        else:
            result = run.follow(interrupts)
            print_result(result, run, as_json=as_json)
            code = result.exit_code
        leave(interrupts, code)


class WatchedRun(StartedRun):
    """A started run whose supervisor is another process.

    The first Ctrl-C cancels the run; a second one, or another signal, ends the watching alone.
    """

    #: Between two attempts to cancel a run whose engine or service does not answer.
    retry_seconds: ClassVar[float] = 2.0

    @abstractmethod
    def lines(self, meanwhile: Callable[[], None]) -> Iterator[bytes]:
        """Iterate over the lines of its event log until it ends.

        :param meanwhile: To be called several times a second; raises when the watching ends.
        """

    @abstractmethod
    def stop(self, reason: str) -> None:
        """Request its cancellation.

        :raises TransientError: When that may succeed at another time.
        """

    @abstractmethod
    def result(self) -> RunResult:
        """Return its result; of a lost run, the known facts."""

    @abstractmethod
    def screen(self) -> "EventScreen":
        """Return the display of its events."""

    def follow(self, interrupts: Interrupts) -> RunResult:
        """Show it on this terminal until it ends."""
        requests = _StopRequests(self, interrupts)
        with self.screen() as screen:
            for line in self.lines(requests.handle):
                screen.show(line)
        return self.result()


class EventScreen:
    """Display of events by the reporter ``terminal``; empty if the job does not use it.

    :param spec: None for a run whose events are not visible from here.
    :param run_dir: None if it is not visible from here.
    :param after_attempt: Events of this attempt and earlier ones are not shown.
    """

    def __init__(
        self, spec: JobSpec | None, *, run_id: str = "", run_dir: Path | None = None, after_attempt: int = 0
    ) -> None:
        self._after_attempt = after_attempt
        self._reporter: TerminalReporter | None = None
        if spec is not None and (use := spec.terminal_use):
            every = use.settings.get("every_seconds")
            settings = TerminalReporter.Settings(every_seconds=every) if isinstance(every, int | float) else None
            self._reporter = TerminalReporter(settings=settings)
            # Without a directory, the reporter does without earlier events.
            place = str(run_dir or "/dev/null")
            context = ReporterContext(run_id=run_id, attempt=after_attempt + 1, job=job_view(spec), run_dir=place)
            self._reporter.open(context)

    def __enter__(self) -> "EventScreen":
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
            return  # of a newer hostcore, with nothing to show
        except FatalError:  # the terminal is gone
            self._reporter = None


class _StopRequests:
    """Signals during the watching, and the cancellation that the first Ctrl-C requests."""

    def __init__(self, run: WatchedRun, interrupts: Interrupts) -> None:
        self._run = run
        self._interrupts = interrupts
        #: Time of the next try; None before the first one has failed.
        self._due: float | None = None
        self._was_sent = False

    def handle(self) -> None:
        """Act on new signals.

        :raises SystemExit: When a second Ctrl-C or another signal ends the watching.
        :raises HostcoreError: When the run refuses to be cancelled.
        """
        asked = self._interrupts.first
        if asked is None:
            return
        if asked.status == "cancelled" and not self._was_sent:
            self._request_stop(asked.reason)
        if asked.status != "cancelled" or self._interrupts.forced:
            self._leave(asked.requested_by)

    def _request_stop(self, reason: str) -> None:
        if self._due is not None and (self._interrupts.forced or time.monotonic() < self._due):
            return
        try:
            self._run.stop(reason)
        except TransientError as error:
            if self._due is None:
                echo(f"{self._run.run_id}  cannot be asked to stop yet: {error.message}; trying again", err=True)
            self._due = time.monotonic() + self._run.retry_seconds
            return
        self._was_sent = True
        echo(f"{self._run.run_id}  {_ASKED}", err=True)

    def _leave(self, requested_by: str) -> NoReturn:
        state = "goes on without being watched" if self._due is None else "could not be asked to stop, and goes on"
        state = "is still asked to stop" if self._was_sent else state
        watch = shlex.join(["hostcore", "logs", "-f", *self._run.words])
        echo(f"{self._run.run_id}  {state}; `{watch}` shows how it goes", err=True)
        name = requested_by.removeprefix("signal:")
        sys.exit(128 + signal.Signals[name] if requested_by != name else CANCELLED)
