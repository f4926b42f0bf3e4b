"""Cancelling a run, whatever has become of it: asked of its supervisor, or done in its place if it has none."""

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import attrs

from hostcore.job.names import is_builtin
from hostcore.runs.attempts import await_proof, newest_attempt, next_attempt
from hostcore.runs.control import read_cancel, request_cancel
from hostcore.runs.directory import RunDirectory
from hostcore.runs.launch import Launch, awaited_launch
from hostcore.runs.record import RunRecord
from hostcore.runs.result import RunResult
from hostcore.runs.statuses import ALIVE
from hostcore.runs.summary import RunSummary, summarize
from hostcore.supervisor.abandoned import cancel_abandoned, wait_for_orphan
from hostcore.supervisor.opening import RunConflict
from hostcore.supervisor.writable import RunUnwritable

if TYPE_CHECKING:
    from hostcore.job.spec import JobSpec
    from hostcore.plugins.launching import JobLauncher

REASON: Final = "cancelled by the user"
_REQUESTED_BY: Final = "user"
_POLL_SECONDS: Final = 0.1


@attrs.frozen(kw_only=True)
class Cancellation:
    """Result of a request to cancel a run."""

    run_id: str
    #: Of the run, when this was written.
    status: str
    #: The attempt that was cancelled, or had ended before.
    attempt: int
    #: Whether there was anything to cancel.
    requested: bool
    #: Result of the attempt; None while it runs.
    result: RunResult | None = None

    def as_dict(self) -> dict[str, Any]:
        """The cancellation as plain JSON."""
        return {**attrs.asdict(self, recurse=False), "result": self.result.as_dict() if self.result else None}


def cancel(
    directory: RunDirectory,
    *,
    reason: str = REASON,
    force: bool = False,
    wait: bool = True,
    watch: Callable[[RunSummary], None] = lambda _: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Cancellation:
    """Cancel a run. One that has ended stays as it is.

    :param force: Kill the worker at once, without a checkpoint.
    :param wait: Until the run has ended.
    :param watch: Called with the summary of the run, again and again while it is waited for.
    :raises UnknownRun: When there is no such run.
    :raises RunUnwritable: When this user may not write into its directory.
    """
    launch = Launch.read(directory.launch)
    if launch is not None and not launch.sees_run_dir:
        return _cancel_far(directory, launch, force=force, wait=wait, watch=watch, sleep=sleep)
    asked: int | None = None
    while True:
        # Before the run is looked at: of two that find it abandoned, only one can claim this number.
        attempt = next_attempt(directory)
        summary = summarize(directory)
        if summary.status not in (*ALIVE, "lost"):
            return _ended(RunResult.read(directory.result), summary, requested=asked is not None)
        if asked is not None and _begun_again(directory, summary, asked):
            return Cancellation(run_id=summary.run_id, status=summary.status, attempt=asked, requested=True)
        with _file_errors(directory):
            if _nobody_runs(directory, summary, sleep):
                asked = None  # nobody reads a request
                if not force:
                    wait_for_orphan(directory, summary.attempt, sleep=sleep)
                result = _end(directory, attempt, reason=reason)
                if result is None:
                    continue
                return _ended(result, summary, requested=True)
            if asked is None:
                asked = _request(directory, summary, reason=reason, force=force)
                if summary.status == "submitted":
                    _take_out_of_queue(directory)
        if not wait:
            return Cancellation(run_id=summary.run_id, status=summary.status, attempt=asked, requested=True)
        watch(summary)
        sleep(_POLL_SECONDS)


def ask_to_end(directory: RunDirectory, attempt: int, *, reason: str = REASON) -> None:
    """Ask the supervisor of an attempt to end it, and do nothing else.

    For a service that cancels runs of others and knows their launchers: nothing in the run directory is trusted.

    :param attempt: Runs, or is about to begin.
    :raises RunUnwritable: When that cannot be written.
    """
    with _file_errors(directory):
        folder = directory.cancel_request(attempt).parent
        if folder.is_symlink():  # the run's owner could redirect the write to another folder
            raise NotADirectoryError(errno.ENOTDIR, "a link is in the way", str(folder))
        request_cancel(directory, attempt, requested_by=_REQUESTED_BY, reason=reason)


def _cancel_far(
    directory: RunDirectory,
    launch: Launch,
    *,
    force: bool,
    wait: bool,
    watch: Callable[[RunSummary], None],
    sleep: Callable[[float], None],
) -> Cancellation:
    """Cancel a run through its launcher, since it does not see its directory."""
    from hostcore.supervisor.remote.watching import refresh_far

    summary = summarize(directory)
    requested = summary.status in ALIVE
    if requested:
        if launch.handle is None:
            raise RunConflict(
                f"the run {directory.run_id!r} is just being launched", hint="try again in a moment, when it has been"
            )
        spec, launcher = _launcher_of(directory)
        launcher.cancel(launch.handle, 0.0 if force else spec.grace_seconds)
    while wait and summary.status in ALIVE:
        watch(summary)
        sleep(_POLL_SECONDS)
        summary = summarize(directory)
    refresh_far(directory)
    result = RunResult.read(directory.result)
    ended = result if result and result.attempt >= launch.attempt and summary.status not in ALIVE else None
    return _ended(ended, summary, requested=requested)


def _launcher_of(directory: RunDirectory) -> "tuple[JobSpec, JobLauncher]":
    from hostcore.plugins.installed import discover
    from hostcore.plugins.launching import launcher_of

    spec = RunRecord.read(directory.record).spec()
    return spec, launcher_of(spec.launcher, discover(), job_dir=spec.job_dir)


def _take_out_of_queue(directory: RunDirectory) -> None:
    """End a run that its engine has not begun yet: no supervisor reads the request, and that may last for days."""
    launch = awaited_launch(directory)
    if launch is None or launch.handle is None or is_builtin(launch.handle.launcher, "local"):
        return
    spec, launcher = _launcher_of(directory)
    if launcher.poll(launch.handle).status == "submitted":
        launcher.cancel(launch.handle, spec.grace_seconds)


def _ended(result: RunResult | None, summary: RunSummary, *, requested: bool) -> Cancellation:
    return Cancellation(
        run_id=summary.run_id,
        status=result.status if result else summary.status,
        attempt=result.attempt if result else summary.attempt,
        requested=requested,
        result=result,
    )


def _request(directory: RunDirectory, summary: RunSummary, *, reason: str, force: bool) -> int:
    """Ask the supervisor of the attempt that runs, or is about to begin.

    :return: The attempt.
    """
    launch = awaited_launch(directory)
    begun = newest_attempt(directory.attempts) if summary.status == "submitted" else summary.attempt
    attempt = launch.attempt if launch else begun
    request_cancel(directory, attempt, requested_by=_REQUESTED_BY, reason=reason, force=force)
    return attempt


def _begun_again(directory: RunDirectory, summary: RunSummary, asked: int) -> bool:
    """Return whether the attempt that was asked has ended, and a newer one runs that is not to be cancelled."""
    return summary.status in ALIVE and summary.attempt > asked and read_cancel(directory, summary.attempt) is None


def _nobody_runs(directory: RunDirectory, summary: RunSummary, sleep: Callable[[float], None]) -> bool:
    if summary.status == "lost":
        return not await_proof(directory, sleep=sleep)
    # A record alone is what a submission leaves that was killed before it launched anything.
    return summary.status == "submitted" and not directory.launch.exists()


def _end(directory: RunDirectory, attempt: int, *, reason: str) -> RunResult | None:
    """Write the end that no other process will write; None if another has just begun to write it or to run the run."""
    try:
        return cancel_abandoned(
            directory, attempt, requested_by=_REQUESTED_BY, reason=f"{reason}; its supervisor was gone"
        )
    except RunConflict:
        return None


@contextmanager
def _file_errors(directory: RunDirectory) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunUnwritable(
            f"the run {directory.run_id!r} cannot be cancelled: {error.strerror or error}",
            file=error.filename or str(directory.path),
            hint=f"cancel it as {_owner(directory)}" if isinstance(error, PermissionError) else "make room on its disk",
        ) from error


def _owner(directory: RunDirectory) -> str:
    try:
        return f"{directory.path.owner()}, whose run it is"
    except (KeyError, OSError):
        return "the user whose run it is"
