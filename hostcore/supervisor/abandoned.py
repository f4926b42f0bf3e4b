"""The end of a run that nobody runs any more, written by somebody else: its supervisor died, or never came."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hostcore.checkpoints.find import committed
from hostcore.events.codec import CorruptLog
from hostcore.events.merger import RankTail
from hostcore.events.reader import read_events
from hostcore.events.writer import now_ms
from hostcore.job.load import load_job
from hostcore.job.spec import job_view
from hostcore.runs.contract import WorkerContract
from hostcore.runs.control import request_cancel
from hostcore.runs.directory import RunDirectory
from hostcore.runs.lease import RENEW_SECONDS, Lease
from hostcore.runs.record import RunRecord
from hostcore.runs.result import EXIT_CODES, RunResult
from hostcore.supervisor.ending import STATUS, End, is_end
from hostcore.supervisor.journal import Journal
from hostcore.supervisor.opening import Opening, claim
from hostcore.supervisor.reporting import Audience
from hostcore_hookspecs import events

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
    """Wait for a worker whose supervisor has died: once its attempt is overtaken, it could commit no checkpoint.

    No longer than it may take since its supervisor was heard of last.

    :param now: The clock, in milliseconds since 1970.
    """
    lease = Lease.read(directory.lease)
    if lease is None:
        return
    heard_ms = min(lease.renewed_ms, now())  # another machine's clock may be ahead
    until_ms = heard_ms + round((RENEW_SECONDS + ORPHAN_SECONDS) * 1000)
    log = RankTail(directory.rank_events(attempt, 0), rank=0, attempt=attempt)
    while now() < until_ms and not _tells_its_end(log):
        sleep(_POLL_SECONDS)


def _tells_its_end(log: RankTail) -> bool:
    try:
        return any(is_end(entry) for entry in log.read())
    except CorruptLog:
        return False


def cancel_abandoned(directory: RunDirectory, attempt: int, *, requested_by: str, reason: str) -> RunResult:
    """Cancel a run that nobody runs.

    :param attempt: The one after the newest, as it was before anybody looked whether the run is abandoned. Claiming it
        keeps everybody else from writing: another cancel, and whoever runs the run against all appearance.
    :raises RunConflict: When somebody else has just taken it.
    """
    claim(directory, attempt)
    # Another `hostcore cancel` waits for the run's end, and sees by this that it is near.
    request_cancel(directory, attempt, requested_by=requested_by, reason=reason)
    return _write_end(directory, attempt, events.RunCancelled(reason=reason), requested_by=requested_by)


def fail_abandoned(directory: RunDirectory, attempt: int, failure: events.RunFailed) -> RunResult:
    """End a submitted run whose supervisor could not even begin it.

    :param attempt: The one that it was to begin.
    :raises RunConflict: When somebody else has just taken it.
    """
    claim(directory, attempt)
    return _write_end(directory, attempt, failure, requested_by=None)


def _write_end(directory: RunDirectory, attempt: int, payload: End, *, requested_by: str | None) -> RunResult:
    started_ms = now_ms()
    checkpoints = _checkpoints(directory, attempt)
    record = RunRecord.read(directory.record)
    opening = Opening(directory=directory, attempt=attempt)
    journal = Journal(opening, job_view(load_job(record.job)), Audience([]))
    journal.open()  # which also merges what earlier workers wrote after their supervisors had died
    for event, _ in read_events(directory.events):
        journal.step = journal.step if event.step is None else event.step
        journal.epoch = journal.epoch if event.epoch is None else event.epoch
        if isinstance(event.payload, events.Metrics):
            journal.metrics = event.payload.metrics
    journal.end(payload)
    status = STATUS[type(payload)]
    newest = committed(checkpoints)[-1:]
    result = RunResult(
        run_id=directory.run_id,
        status=status,
        exit_code=EXIT_CODES[status],
        reason=getattr(payload, "reason", None),
        requested_by=requested_by,
        attempt=attempt,
        step=journal.step,
        epoch=journal.epoch,
        metrics=journal.metrics,
        final_checkpoint=os.path.relpath(checkpoints / newest[0].folder_name, directory.path) if newest else None,
        error=payload.error if isinstance(payload, events.RunFailed) else None,
        started_ms=started_ms,
        ended_ms=now_ms(),
    )
    result.write(directory.result)
    directory.lease.unlink(missing_ok=True)
    return result


def _checkpoints(directory: RunDirectory, attempt: int) -> Path:
    """Where the attempt before wrote its checkpoints: its environment may have said so."""
    contract = directory.contract(attempt - 1, 0)
    return Path(WorkerContract.read(contract).checkpoints_dir) if contract.exists() else directory.checkpoints
