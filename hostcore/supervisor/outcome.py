"""``result.json`` of an attempt that has ended, out of its terminal event and its journal."""

import os
from pathlib import Path

from hostcore.checkpoints.find import committed
from hostcore.events.bounds import bounded_error
from hostcore.events.writer import now_ms
from hostcore.runs.result import EXIT_CODES, RunResult
from hostcore.supervisor.ending import STATUS, End
from hostcore.supervisor.journal import Journal
from hostcore.supervisor.opening import Opening
from hostcore_hookspecs import events


def result_of(
    payload: End, opening: Opening, journal: Journal, *, checkpoints: Path, asked_by: str | None, started_ms: int
) -> RunResult:
    """The result of an attempt.

    :param payload: How it ended.
    :param checkpoints: Where its checkpoints lie.
    :param asked_by: Who asked it to stop, if the worker did not hear of that.
    """
    status, reason = STATUS[type(payload)], getattr(payload, "reason", None)
    newest = _newest_checkpoint(checkpoints, journal.checkpoint_step)
    return RunResult(
        run_id=opening.directory.run_id,
        status=status,
        exit_code=EXIT_CODES[status],
        reason=reason,
        requested_by=(journal.requested_by or asked_by) if reason or status == "failed" else None,
        attempt=opening.attempt,
        step=journal.step,
        epoch=journal.epoch,
        metrics=journal.metrics,
        best=journal.best,
        final_checkpoint=os.path.relpath(newest, opening.directory.path) if newest else None,
        error=bounded_error(payload.error) if isinstance(payload, events.RunFailed) else None,
        started_ms=started_ms,
        ended_ms=now_ms(),
        warnings=tuple(journal.warnings),
    )


def _newest_checkpoint(folder: Path, step: int | None) -> Path | None:
    """That of a step, which the attempt saved or began from; else the newest there is. None of these is read."""
    records = committed(folder)
    known = [one for one in records if one.step == step] or records[-1:]
    return folder / known[0].folder_name if known else None
