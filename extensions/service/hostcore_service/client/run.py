"""A run of a service."""

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Final

from hostcore.checkpoints.names import step_of_folder
from hostcore.cli.run_client import RunHandle, RunLog
from hostcore.runs.result import RunResult
from hostcore.runs.summary import RunSummary
from hostcore.supervisor.cancelling import Cancellation
from hostcore.supervisor.run_status import RunStatus
from hostcore_service.client.client import shown, words_for
from hostcore_service.client.jobs import RemoteJob, RemoteJobs, path_of
from hostcore_service.client.logs import OutputLog, RemoteEventLog
from hostcore_service.client.status import status_of

#: Between two looks at a run that is shown, or waited for.
_LOOK_SECONDS: Final = 1.0
_WAIT_SECONDS: Final = 0.5


class ServiceRun(RunHandle):
    """A job of the service.

    :param job: In its last known state.
    """

    def __init__(self, jobs: RemoteJobs, job: RemoteJob) -> None:
        self._jobs = jobs
        self._job = job
        self.place = jobs.client.url + path_of(job.run_id)

    @property
    def run_id(self) -> str:
        """Return its id."""
        return self._job.run_id

    @property
    def words(self) -> Sequence[str]:
        """Name it by its id, and its service unless the environment names that."""
        return [self.run_id, *words_for(self._jobs.client.url)]

    def is_over(self) -> bool:
        """Return whether the service reports its end."""
        self._job = self._jobs.get_until_answered(self.run_id)
        return self._job.is_over

    def wait(self) -> None:
        """Wait."""
        self._jobs.client.sleep(_LOOK_SECONDS)

    def status(self) -> RunStatus:
        """Return its status as of the last request."""
        return status_of(self._job, self._jobs.client.url)

    def events(self, *, attempt: int | None, since: int | None) -> RunLog:
        """Return its event log."""
        return RemoteEventLog(self._jobs, self._job, attempt=attempt, since=since)

    def output(self, *, attempt: int | None, rank: int | None) -> RunLog:
        """Return the output of a rank, or that of the engine where the service sees no more."""
        return OutputLog(self._jobs, self._job, attempt=attempt, rank=rank)

    def cancel(
        self,
        *,
        reason: str,
        force: bool,  # noqa: ARG002 - a service ends by force what does not end by itself
        wait: bool,
        watch: Callable[[RunSummary], None],
    ) -> Cancellation:
        """Have the service end it."""
        requested = not self._job.is_over
        if requested:
            self._job = self._jobs.cancel(self.run_id, reason)
            while wait and not self.is_over():
                watch(self._job.summary)
                self._jobs.client.sleep(_WAIT_SECONDS)
        return Cancellation(
            run_id=self.run_id,
            status=self._job.status,
            attempt=self._job.attempt,
            requested=requested,
            result=self._jobs.result(self._job) if self._job.is_over else None,
        )

    def places(self, result: RunResult) -> Sequence[tuple[str, str]]:
        """Name the URLs of its files, and the command that resumes it."""
        step = step_of_folder(PurePosixPath(result.final_checkpoint).name) if result.final_checkpoint else None
        lines = [("checkpoint", f"{self.place}/checkpoints/{step}")] if step is not None else []
        lines.append(("everything", self.place))
        if result.status != "succeeded" and result.final_checkpoint:
            lines.append(("to go on", shown(self._jobs.client.url, "resume", self.run_id)))
        return lines
