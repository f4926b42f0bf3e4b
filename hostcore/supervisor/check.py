"""Checking a job as ``hostcore run`` would, short of starting it: the workers' start-up, and no run directory."""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hostcore.errors import Errors
from hostcore.job.layers import Origins
from hostcore.job.spec import JobSpec
from hostcore.runs.channel import errors_of_content
from hostcore.runs.contract import WorkerContract
from hostcore.runs.record import RunRecord
from hostcore.supervisor.attempt.ending import name_of_worker, tail
from hostcore.supervisor.devices import shared_device
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.workers.group import WorkerGroup
from hostcore.supervisor.workers.spawn import LocalRanks
from hostcore_hookspecs.errors import HostcoreError

_TICK_SECONDS: Final = 0.1


class CheckFailed(HostcoreError):
    """A worker died while it checked a job."""

    code = "worker.died"


def check_job(plan: RunPlan, *, timeout_seconds: float | None = None) -> Mapping[str, Any]:
    """Have a worker for each rank check a job: import plugins, structure their settings, open the data, try the device.

    :param timeout_seconds: How long it may take; None for as long as it takes.
    :return: What rank 0 found: ``device``, ``total_steps``, ``num_rows``, …; the ``devices`` of all ranks; and the
        ``rows_left_out`` of each epoch.
    :raises Errors: Everything that is wrong with the job, as the first rank says that finds anything.
    :raises CheckFailed: When a worker dies of it, or is not done in time.
    """
    with tempfile.TemporaryDirectory(prefix="hostcore-check-") as folder:
        place = Path(folder)
        record, contract = place / "run.json", place / "contract.json"
        RunRecord(job=_checked_here(plan.spec), job_dir=str(plan.spec.job_dir)).write(record)
        WorkerContract(
            trainer_plugin=plan.spec.trainer,
            job_spec_path=str(record),
            checkpoints_dir=str(place),
            samples_dir=str(place),
            events_path=str(place / "events.jsonl"),
            run_dir=folder,
            start_from=plan.fetched.parent or plan.spec.begins_from or "",
            inputs=plan.fetched.inputs,
        ).write(contract)
        ranks = 1 if plan.spec.runs_elsewhere else plan.spec.ranks
        outputs = [place / f"rank-{rank}.log" for rank in range(ranks)]
        workers = WorkerGroup()
        try:
            workers.start(LocalRanks(ranks), [(contract, output) for output in outputs])
            found = _found(workers, outputs, timeout_seconds, plan.spec.origins)
            if error := shared_device(plan.spec, found["devices"]):
                raise Errors([error])
            return {**found, "rows_left_out": plan.spec.rows_left_out(found["num_rows"])}
        finally:
            workers.close()  # they have said all there is to say; a thread that a plugin started could keep them


def _checked_here(spec: JobSpec) -> dict[str, Any]:
    """A job as far as it can be checked on this machine: of one that runs elsewhere, everything but its devices."""
    job = spec.to_json()
    if spec.runs_elsewhere:
        for key in ("device", "devices", "global_batch_size", "resources", "launcher"):
            job.pop(key, None)
    return job


def _found(
    workers: WorkerGroup, outputs: list[Path], timeout_seconds: float | None, origins: Origins
) -> Mapping[str, Any]:
    due = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    while any(member.summary is None for member in workers.members):
        for member, kind, content in workers.listen(_TICK_SECONDS):
            if kind == "invalid":
                raise errors_of_content(content, origins)
            member.summary = content
        for member in workers.members:
            if member.exit is not None and member.summary is None:
                name = name_of_worker(member.rank, of=len(outputs))
                hint = tail(outputs[member.rank]) or None
                raise CheckFailed(f"{name} {member.exit} while it checked the job", hint=hint)
        if due is not None and time.monotonic() >= due:
            _give_up(workers, outputs, timeout_seconds or 0.0)
    summaries = [member.summary for member in workers.members if member.summary is not None]
    return {**summaries[0], "devices": [summary["device"] for summary in summaries]}


def _give_up(workers: WorkerGroup, outputs: list[Path], seconds: float) -> None:
    slow = next((member for member in workers.members if member.summary is None), None)
    if slow is not None:
        raise CheckFailed(
            f"{name_of_worker(slow.rank, of=len(outputs))} was not done checking the job after {seconds:g} seconds",
            hint=tail(outputs[slow.rank])
            or "look at what its plugins do when they are imported, and at where its data lies",
        )
