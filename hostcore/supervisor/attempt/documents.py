"""The documents of an attempt: the record of the run, the contracts of its workers, and ``result.json``."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from hostcore import __version__
from hostcore.checkpoints.find import committed
from hostcore.events.bounds import bounded_error
from hostcore.events.writer import now_ms
from hostcore.job.data import with_sections
from hostcore.plugins.resolve import in_room
from hostcore.runs.contract import WorkerContract
from hostcore.runs.directory import RunDirectory
from hostcore.runs.documents import from_document, write_text
from hostcore.runs.record import RunRecord
from hostcore.runs.result import EXIT_CODES, RunResult
from hostcore.runs.retrained import with_conditions
from hostcore.runs.used import Used, recorded_use, used_by, with_use
from hostcore.supervisor.attempt.ending import STATUS, End
from hostcore.supervisor.attempt.journal import Journal
from hostcore.supervisor.opening import Opening
from hostcore.supervisor.plan import RunPlan
from hostcore_hookspecs import events


def write_record(
    plan: RunPlan,
    before: Mapping[str, Any] | None,
    *,
    started_ms: int,
    attempt: int,
    world_size: int = 0,
    total_steps: int = 0,
    summary: Mapping[str, Any] | None = None,
) -> None:
    """Write the run's record.

    :param before: The run's record before this attempt; None for a new run.
    :param attempt: The one that begins, or is to begin.
    :param world_size: Ranks; 0 while that is not known.
    :param total_steps: As a check of the job has found; 0 if it was not checked, or cannot tell.
    :param summary: What the worker has found out about the job; None before it has.
    """
    found: Mapping[str, Any] = summary or {}
    before = before or {}
    brought, rows_left_out = before.get("brought"), before.get("rows_left_out", 0)
    if summary:
        brought = summary.get("brought", {})
        rows_left_out = with_sections(plan.spec, brought).rows_left_out(summary["num_rows"])
    plugins = _plugins(plan, found.get("plugins"))
    job, conditions = plan.spec.to_json(), before.get("conditions", [])
    if summary:
        environment = {"hostcore": __version__, **found["environment"]}
        conditions = with_conditions(conditions, attempt=attempt, environment=environment, job=job)
    RunRecord(
        job=job,
        job_dir=str(plan.spec.job_dir),
        refs=plan.refs,
        plugins=plugins,
        used=[attrs.asdict(one) for one in _used(plan.directory, before, summary, plugins, attempt)],
        conditions=conditions,
        environment={"hostcore": __version__, **found.get("environment", {})},
        parent=before.get("parent") or plan.spec.begins_from,
        submitted_ms=before.get("submitted_ms") or started_ms,
        total_steps=found.get("total_steps") or total_steps or before.get("total_steps") or 0,
        rows_left_out=rows_left_out,
        brought=brought,
        world_size=world_size,
    ).write(plan.directory.record)
    if plan.lock is not None:
        write_text(plan.directory.lock, plan.lock)


def _used(
    directory: RunDirectory,
    before: Mapping[str, Any],
    summary: Mapping[str, Any] | None,
    plugins: Sequence[Mapping[str, Any]],
    attempt: int,
) -> Sequence[Used]:
    """What all attempts used; of this one, once its workers have said so."""
    earlier: list[Used] = []
    if before and attempt > 1:
        record = from_document(RunRecord, before, file=directory.record)
        # Without entries an earlier hostcore wrote it: its plugins are those of the attempt before.
        earlier = recorded_use(record, directory.record) or used_by(record, attempt=attempt - 1, file=directory.record)
    if summary is None:
        return earlier
    found = {"attempt": attempt, "plugins": plugins, "data": summary["data"].get("shards", "")}
    return with_use(earlier, Used.of(found, file=directory.record))


def _plugins(plan: RunPlan, of_worker: Sequence[Mapping[str, Any]] | None) -> Sequence[Mapping[str, Any]]:
    """The plugins of both rooms; those of the worker as it found them, once it has."""
    known = plan.selected if of_worker is None else in_room(plan.selected, "supervisor")
    return [*(of_worker or ()), *(attrs.asdict(plan.provenance_of(one)) for one in known)]


def write_contracts(plan: RunPlan, opening: Opening) -> None:
    """Write the contracts of the attempt's workers, one for each rank."""
    directory, attempt, data = opening.directory, opening.attempt, plan.spec.dataset
    for rank in range(plan.spec.ranks):
        WorkerContract(
            trainer_plugin=plan.spec.trainer,
            job_spec_path=str(directory.record),
            arrow_ipc_path=data.arrow_path if data is not None and Path(data.arrow_path).is_file() else "",
            checkpoints_dir=str(plan.checkpoints_dir),
            samples_dir=str(plan.samples_dir),
            events_path=str(directory.rank_events(attempt, rank)),
            run_dir=str(directory.path),
            attempt=attempt,
            attempts_dir=str(directory.attempts),
            start_from=plan.fetched_parent or opening.parent,
            inputs=plan.inputs,
            devices=plan.devices.names,
            python=plan.python,
            programs_python=plan.programs_python,
            must_resume=plan.spec.resume_from_checkpoint is True,
            trace_path=str(directory.rank_hooks(attempt, rank)) if plan.trace_hooks else "",
        ).write(directory.contract(attempt, rank))


def result_of(
    payload: End, opening: Opening, journal: Journal, *, checkpoints: Path, asked_by: str | None, started_ms: int
) -> RunResult:
    """The result of an attempt.

    :param payload: How it ended.
    :param checkpoints: Where its checkpoints lie.
    :param asked_by: Who asked it to stop, if the request did not reach the worker.
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
        restored_step=journal.restored_step,
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
