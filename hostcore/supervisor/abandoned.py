"""The end of an abandoned run, written by another process than its supervisor, which died or never came."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from hostcore.events.codec import CorruptLog
from hostcore.events.merger import RankTail
from hostcore.events.reader import read_events
from hostcore.events.writer import now_ms
from hostcore.runs.contract import artifact_folders
from hostcore.runs.control import request_cancel
from hostcore.runs.directory import RunDirectory
from hostcore.runs.lease import RENEW_SECONDS, Lease
from hostcore.runs.result import RunResult
from hostcore.supervisor.attempt.documents import result_of
from hostcore.supervisor.attempt.ending import End, is_end
from hostcore.supervisor.attempt.journal import Journal
from hostcore.supervisor.opening import Opening, claim
from hostcore_hookspecs import events
from hostcore_hookspecs.job import Job

#: How long a worker may live on after its supervisor: it writes a checkpoint, and stops.
ORPHAN_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.05


def wait_for_orphan(
    directory: RunDirectory,
    attempt: int,
    *,
    now: Callable[[], int] = now_ms,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait for the workers of a supervisor that has died: once their attempt is overtaken, they commit no checkpoint.

    No longer than it may take since the newest sign of life of its supervisor.

    :param now: The clock, in milliseconds since 1970.
    """
    lease = Lease.read(directory.lease)
    if lease is None:
        return
    heard_ms = min(lease.renewed_ms, now())  # another machine's clock may be ahead
    until_ms = heard_ms + round((RENEW_SECONDS + ORPHAN_SECONDS) * 1000)
    ranks = directory.ranks(attempt) or [0]
    logs = [RankTail(directory.rank_events(attempt, rank), rank=rank, attempt=attempt) for rank in ranks]
    while logs and now() < until_ms:
        logs = [log for log in logs if not _tells_its_end(log)]
        if logs:
            sleep(_POLL_SECONDS)


def _tells_its_end(log: RankTail) -> bool:
    try:
        return any(is_end(entry) for entry in log.read())
    except CorruptLog:
        return False


def cancel_abandoned(directory: RunDirectory, attempt: int, *, requested_by: str, reason: str) -> RunResult:
    """Cancel a run that has no live supervisor.

    :param attempt: The one after the newest, as it was before the run was examined. Claiming it
        keeps all others from writing: another cancel, and a supervisor wrongly presumed dead.
    :raises RunConflict: When another process has just taken it.
    """
    with _claimed(directory, attempt):
        # Another `hostcore cancel` waits for the run's end, and sees by this that it is near.
        request_cancel(directory, attempt, requested_by=requested_by, reason=reason)
        return _write_end(directory, attempt, events.RunCancelled(reason=reason), requested_by=requested_by)


def fail_abandoned(directory: RunDirectory, attempt: int, failure: events.RunFailed) -> RunResult:
    """End a submitted run whose supervisor could not even begin it.

    :param attempt: The one that it was to begin.
    :raises RunConflict: When another process has just taken it.
    """
    with _claimed(directory, attempt):
        return _write_end(directory, attempt, failure, requested_by=None)


@contextmanager
def _claimed(directory: RunDirectory, attempt: int) -> Iterator[None]:
    """Hold an attempt; if its end cannot be written, it has never been."""
    lease = directory.lease.read_bytes() if directory.lease.exists() else None
    claim(directory, attempt)
    try:
        yield
    except BaseException:
        directory.cancel_request(attempt).unlink(missing_ok=True)
        if lease is None:
            directory.lease.unlink(missing_ok=True)
        else:
            directory.lease.write_bytes(lease)
        (directory.attempts / f"{attempt}.json").unlink(missing_ok=True)
        raise


def _write_end(directory: RunDirectory, attempt: int, payload: End, *, requested_by: str | None) -> RunResult:
    checkpoints, _ = artifact_folders(directory, attempt - 1)
    opening = Opening(directory=directory, attempt=attempt)
    # No reporter gets these events, so that the job, which may be broken, is not needed.
    journal = Journal(opening, Job())
    journal.open()  # which also merges what earlier workers wrote after their supervisors had died
    journal.recall(event for event, _ in read_events(directory.events))
    journal.end(payload)
    result = result_of(
        payload, opening, journal, checkpoints=checkpoints, asked_by=requested_by, started_ms=opening.started_ms
    )
    result.write(directory.result)
    directory.lease.unlink(missing_ok=True)
    return result
