"""A run that was submitted to a launcher, followed by its directory or, if that is not visible, by its launcher."""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

import attrs

from hostcore.cli.folder_run import FolderRun
from hostcore.cli.follow import EventScreen, WatchedRun
from hostcore.cli.output import OutputEcho, tell_aside
from hostcore.events.reader import GrowingLog
from hostcore.events.writer import now_ms
from hostcore.plugins.launching import JobLauncher, launcher_of
from hostcore.runs.following import follow, is_over
from hostcore.runs.launch import awaited_launch
from hostcore.runs.result import RunResult
from hostcore.runs.statuses import ALIVE
from hostcore.runs.summary import summarize, unrecorded
from hostcore.supervisor.cancelling import cancel
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.remote.watching import refresh_ended
from hostcore.supervisor.run_status import last_sign
from hostcore.supervisor.submit import Submission
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.launcher import LaunchStatus

_TICK_SECONDS: Final = 0.2
#: Between two polls of an engine: each may be a process, or a request.
_POLL_SECONDS: Final = 2.0


class LaunchedRun(FolderRun, WatchedRun):
    """A run that a launcher of this machine has taken.

    :param submitted: The submission of the plan; the result of a run that had finished before.
    """

    def __init__(self, plan: RunPlan, submitted: Submission | RunResult) -> None:
        super().__init__(plan.directory)
        self.place = str(plan.directory.path)
        self.finished = submitted if isinstance(submitted, RunResult) else None
        self._plan = plan
        self._submitted = submitted
        self._was_stopped = False
        #: Position in the engine's output.
        self._read_to = ""
        self._status = LaunchStatus(status="submitted")
        self._polled_at = time.monotonic()

    @property
    def _submission(self) -> Submission:
        assert isinstance(self._submitted, Submission)
        return self._submitted

    @cached_property
    def _launcher(self) -> JobLauncher:
        return launcher_of(self._plan.spec.launcher, self._plan.discovered, job_dir=self._plan.spec.job_dir)

    def submission(self) -> Mapping[str, Any]:
        """Return the submission as plain JSON."""
        return self._submission.as_dict()

    def screen(self) -> EventScreen:
        """Return the display of its events; an empty one where only its launcher sees them."""
        if not self._launcher.sees_run_dir:
            return EventScreen(None)
        place, before = self._directory.path, self._submission.attempt - 1
        return EventScreen(self._plan.spec, run_id=self.run_id, run_dir=place, after_attempt=before)

    def lines(self, meanwhile: Callable[[], None]) -> Iterator[bytes]:
        """Iterate over its events or, where only its launcher sees them, print its output."""

        def wait() -> None:
            meanwhile()
            time.sleep(_TICK_SECONDS)

        if self._launcher.sees_run_dir:
            log = GrowingLog(self._directory.events)
            yield from follow(log.read, is_over=self._is_over_here, wait=wait)
            return
        printed = OutputEcho(err=True)
        while not self._is_over_there(printed):
            wait()
        printed.end()
        refresh_ended(self._plan.spec, self._directory)

    def _is_over_here(self) -> bool:
        if awaited_launch(self._directory) is None:
            return is_over(self._directory)
        if self._poll() and self._status.status not in ALIVE and awaited_launch(self._directory) is not None:
            if self._was_stopped:  # in the queue, where no supervisor reads the request
                cancel(self._directory)
            return True
        return False

    def _is_over_there(self, printed: OutputEcho) -> bool:
        if not self._poll():
            return False
        over = self._status.status not in ALIVE  # first: output before the end is read after it
        try:
            while chunk := self._launcher.read_logs(self._submission.handle, self._read_to):
                self._read_to = chunk.next
                printed.show(chunk.text)
                if not chunk.text:
                    break
        except HostcoreError as error:
            tell_aside(f"{self.run_id}  {error.message}")
        return over

    def _poll(self) -> bool:
        """Poll the engine if that is due, and print its message when it changes; return whether it was polled."""
        now = time.monotonic()
        if now - self._polled_at < _POLL_SECONDS:
            return False
        self._polled_at = now
        try:
            status = self._launcher.poll(self._submission.handle)
        except HostcoreError as error:
            status = LaunchStatus(status=self._status.status, message=error.message)
        if status.message and status.message != self._status.message and status.status in ALIVE:
            tell_aside(f"{self.run_id}  {status.status}: {status.message}")
        self._status = status
        return True

    def stop(self, reason: str) -> None:
        """Request its cancellation of its supervisor, or of its launcher."""
        if not self._launcher.sees_run_dir or not self._stop_here(reason):
            self._launcher.cancel(self._submission.handle, self._plan.spec.grace_seconds)
        self._was_stopped = True

    def _stop_here(self, reason: str) -> bool:
        """Request the cancellation in the run directory; return whether a supervisor reads it."""
        cancel(self._directory, reason=reason, wait=False)
        return awaited_launch(self._directory) is None

    def result(self) -> RunResult:
        """Return its result; of a run that its engine has lost, the known facts."""
        result = RunResult.read(self._directory.result)
        if result is not None and result.attempt >= self._submission.attempt:
            return result
        summary = summarize(self._directory)
        status = self._status.status if self._status.status not in ALIVE else "lost"
        why = self._status.message or (last_sign(self._directory, summary) if status == "lost" else "")
        return unrecorded(attrs.evolve(summary, status=status), told=why, ended_ms=now_ms())
