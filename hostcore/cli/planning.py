"""Plans of command lines: of a job file, of a resumed run, of a run that begins from a checkpoint."""

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import attrs
import click

from hostcore.checkpoints.find import load_record
from hostcore.cli.job_options import JobOptions
from hostcore.cli.output import tell_aside
from hostcore.errors import all_errors
from hostcore.job.files import is_piped_in
from hostcore.job.load import load_job
from hostcore.job.names import make_run_id
from hostcore.job.spec import JobSpec
from hostcore.runs.attempts import newest_attempt
from hostcore.runs.directory import RunDirectory
from hostcore.runs.find import find_run
from hostcore.runs.record import RunRecord
from hostcore.runs.summary import UnknownRun
from hostcore.supervisor.opening import RunConflict
from hostcore.supervisor.plan import RunPlan, make_plan
from hostcore_hookspecs.errors import HostcoreError

_FAST_DEV_STEPS: Final = 3


def plan_job(source: Path | Mapping[str, Any], options: JobOptions, **where: Any) -> RunPlan:
    """Plan a job, or a job file, with the options applied.

    :param where: For :func:`make_plan`.
    :raises HostcoreError: Everything that is wrong with the job, attributed to the options.
    """
    _require_one_beginning(options)
    return make_plan(source, **_overriding(options), profile=options.profile, tell=tell_aside, **where)


def job_with_options(job: Path, options: JobOptions) -> JobSpec:
    """Load a job file with the options applied, without a plan: its plugins are not resolved.

    :raises HostcoreError: See :func:`plan_job`.
    """
    _require_one_beginning(options)
    return load_job(job, **_overriding(options), profile=options.profile)


def for_fast_dev_run(job: Path, options: JobOptions) -> JobOptions:
    """Return the options of a separate run with 3 steps, and one validation if the job validates, without a mirror.

    :raises HostcoreError: See :func:`plan_job`.
    """
    if is_piped_in(job):
        raise click.UsageError("--fast-dev-run reads the job twice: it takes a file, not a pipe")
    spec = job_with_options(job, options)
    changes = {
        "run_id": make_run_id("fast-dev-run", now=lambda: datetime.now(UTC), token=lambda: os.urandom(2).hex()),
        "max_steps": _FAST_DEV_STEPS,
        "epochs": None,
        "metric_every": 1,
        "validate_every": _FAST_DEV_STEPS if spec.validate_every else 0,
        "sanity_batches": 0,
        "resume_from_checkpoint": "auto",
        "checkpoint_base_uri": None,
        "max_restarts": 0,
    }
    fast = {f"{key}={json.dumps(value)}": "--fast-dev-run" for key, value in changes.items()}
    after = {one: option for one, option in options.short.items() if option in ("--from", "--weights")}
    before = {one: option for one, option in options.short.items() if one not in after}
    return attrs.evolve(options, short={**before, **fast, **after})


def _require_one_beginning(options: JobOptions) -> None:
    if {"--resume", "--from"} <= {*options.short.values()}:
        raise click.UsageError(
            "--resume and --from exclude each other: one continues a run, the other begins a new one"
        )


def _overriding(options: JobOptions) -> dict[str, Any]:
    """Return the overrides of options, and the names of those options, for :func:`load_job`."""
    return {"overrides": [*options.overrides, *options.short], "override_names": options.short}


def plan_run(run: str, options: JobOptions, *, runs: Path, **where: Any) -> RunPlan:
    """Plan the next attempt of a run.

    :raises UnknownRun: When there is no such run.
    """
    if Path(run).is_file():
        hint = "the run of a job file is gone on with by `hostcore run JOB`; `hostcore list` shows the runs there are"
        raise UnknownRun(f"{run!r} is neither a run nor a checkpoint's commit record", file=run, hint=hint)
    directory = find_run(run, runs)
    recorded = RunRecord.read(directory.record).job.get("resume_from_checkpoint")
    must_be_there = recorded is True and newest_attempt(directory.attempts) == 0  # as submitted, by its mirror
    keys = {"run_id": directory.run_id, "resume_from_checkpoint": must_be_there or "auto"}
    plan = _of_record(directory, keys, options, runs=directory.path.parent, **where)
    if plan.directory.path != directory.path:
        raise RunConflict(
            f"the run {directory.run_id!r} keeps its id when it goes on",
            pointer="/run_id",
            file="--set run_id",
            hint=f"to begin another run from where it is, name a checkpoint in {directory.checkpoints}",
        )
    return plan


def plan_from_checkpoint(path: Path, options: JobOptions, **where: Any) -> RunPlan:
    """Plan a new run that begins from a checkpoint.

    :raises CheckpointError: When it is not there.
    :raises UnknownRun: When it does not lie in a run directory, so that its job is unknown.
    """
    parent = RunDirectory(load_record(path.absolute()).folder.parent.parent)
    if not parent.record.is_file():
        raise UnknownRun(
            f"the checkpoint does not lie in a run directory: there is no {parent.record}",
            file=str(path),
            hint=f"give the job as well: hostcore run JOB --from {path}",
        )
    # None: a new id is made.
    return _of_record(parent, {"run_id": None, "resume_from_checkpoint": str(path.absolute())}, options, **where)


def _of_record(recorded: RunDirectory, keys: dict[str, Any], options: JobOptions, **where: Any) -> RunPlan:
    """Plan the job that a run recorded, with some of its keys changed."""
    record = RunRecord.read(recorded.record)
    job = {key: value for key, value in {**record.job, **keys}.items() if value is not None}
    try:
        return plan_job(job, options, job_dir=Path(record.job_dir), **where)
    except HostcoreError as error:
        for one in all_errors(error):
            one.file = one.file or str(recorded.record)
        raise
