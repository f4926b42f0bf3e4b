"""A run that this command has submitted and watches: by its directory or, where that is not seen, by its launcher."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from hostcore.cli.folder_runs import FolderRun
from hostcore.cli.output import OutputEcho, tell_aside
from hostcore.cli.report import name_of
from hostcore.cli.run_client import SubmittedRun
from hostcore.cli.watching import Screen, WatchSignals
from hostcore.events.reader import GrowingLog
from hostcore.events.writer import now_ms
from hostcore.plugins.launching import launcher_of
from hostcore.runs.following import is_over
from hostcore.runs.launch import awaited_launch
from hostcore.runs.result import RunResult
from hostcore.runs.statuses import ALIVE
from hostcore.runs.summary import summarize, unrecorded
from hostcore.supervisor.cancelling import cancel
from hostcore.supervisor.interrupts import Interrupts
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.remote.watching import refresh_ended
from hostcore.supervisor.run_status import last_sign
from hostcore.supervisor.submit import Submission
from hostcore_hookspecs.errors import HostcoreError, TransientError
from hostcore_hookspecs.launcher import LaunchStatus

_TICK_SECONDS: Final = 0.2
#: Engines are asked so often: each question may be a process, or a request.
_POLL_SECONDS: Final = 2.0


class LaunchedRun(FolderRun, SubmittedRun):
    """A run that a launcher of this machine has taken.

    :param submitted: What the submission of the plan came to.
    """

    def __init__(self, plan: RunPlan, submitted: Submission | RunResult) -> None:
        super().__init__(plan.directory)
        self._plan = plan
        self._submitted = submitted
        self.finished = submitted if isinstance(submitted, RunResult) else None
        self.words: Sequence[str] = [name_of(plan.directory)]
        self.place = str(plan.directory.path)

    def submission(self) -> Mapping[str, Any]:
        """The submission as plain JSON."""
        return self._submitted.as_dict()

    def watch(self, interrupts: Interrupts) -> RunResult:
        """Show it to its end; for a run that its engine has lost, the result is what is known of it."""
        assert isinstance(self._submitted, Submission)
        return _Watch(self._plan, self._submitted, interrupts).to_the_end()


class _Watch:
    def __init__(self, plan: RunPlan, submission: Submission, interrupts: Interrupts) -> None:
        self._plan = plan
        self._submission = submission
        self._directory = plan.directory
        self._launcher = launcher_of(plan.spec, plan.discovered)
        self._log = GrowingLog(self._directory.events)
        self._printed = OutputEcho(err=True)
        #: How far what the launched process printed was read.
        self._read_to = ""
        self._status = LaunchStatus(status="submitted")
        self._polled_at = time.monotonic()
        self._signals = WatchSignals(
            plan.spec.run_id,
            interrupts,
            cancel=self._cancel,
            retry_on=TransientError,
            watch=["hostcore", "logs", "-f", name_of(plan.directory)],
        )

    def to_the_end(self) -> RunResult:
        """See :meth:`LaunchedRun.watch`."""
        if not self._launcher.sees_run_dir:
            while not self._is_over_afar():
                self._rest()
            self._printed.end()
            refresh_ended(self._plan.spec, self._directory)
            return self._result()
        screen = Screen(
            self._plan.spec,
            run_id=self._directory.run_id,
            run_dir=self._directory.path,
            after_attempt=self._submission.attempt - 1,
        )
        with screen:
            for line in self._lines():
                screen.show(line)
        return self._result()

    def _lines(self) -> Iterator[bytes]:
        """The events of the run, to its end."""
        while True:
            over = self._is_over_here()  # first: what was written before the end is read after it
            yield from self._log.read()
            if over:
                return
            self._rest()

    def _rest(self) -> None:
        self._signals.handle()
        time.sleep(_TICK_SECONDS)

    def _is_over_here(self) -> bool:
        if awaited_launch(self._directory) is None:
            return is_over(self._directory)
        if self._poll() and self._status.status not in ALIVE and awaited_launch(self._directory) is not None:
            if self._signals.cancel_was_sent:  # it was waiting in a queue, and will never hear of it
                cancel(self._directory)
            return True
        return False

    def _is_over_afar(self) -> bool:
        if not self._poll():
            return False
        over = self._status.status not in ALIVE  # first: what was printed before the end is read after it
        try:
            while chunk := self._launcher.read_logs(self._submission.handle, self._read_to):
                self._read_to = chunk.next
                self._printed.show(chunk.text)
                if not chunk.text:
                    break
        except HostcoreError as error:
            tell_aside(f"{self._directory.run_id}  {error.message}")
        return over

    def _poll(self) -> bool:
        """Ask the engine how it goes, if it is time; whether it has answered. What it says is told when it changes."""
        now = time.monotonic()
        if now - self._polled_at < _POLL_SECONDS:
            return False
        self._polled_at = now
        try:
            status = self._launcher.poll(self._submission.handle)
        except HostcoreError as error:
            status = LaunchStatus(status=self._status.status, message=error.message)
        if status.message and status.message != self._status.message and status.status in ALIVE:
            tell_aside(f"{self._directory.run_id}  {status.status}: {status.message}")
        self._status = status
        return True

    def _cancel(self, reason: str) -> None:
        if self._launcher.sees_run_dir:
            cancel(self._directory, reason=reason, wait=False)
            if awaited_launch(self._directory) is None:
                return
        self._launcher.cancel(self._submission.handle, self._plan.spec.grace_seconds)

    def _result(self) -> RunResult:
        result = RunResult.read(self._directory.result)
        if result is not None and result.attempt >= self._submission.attempt:
            return result
        summary = summarize(self._directory)
        status = self._status.status if self._status.status not in ALIVE else "lost"
        told = self._status.message or (last_sign(self._directory, summary) if status == "lost" else "")
        return unrecorded(attrs.evolve(summary, status=status), told=told, ended_ms=now_ms())
