"""Opening a run: a new run directory, or the next attempt of a run that exists. A run is never overwritten."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.find import committed, load_record
from hostcore.errors import Errors
from hostcore.events.writer import now_ms
from hostcore.job.differences import job_differences, listed
from hostcore.job.spec import JobSpec
from hostcore.runs.attempts import (
    EXPIRE_SECONDS,
    await_proof,
    claim_attempt,
    is_orphaned,
    newest_attempt,
    next_attempt,
    proven_held,
    read_claim,
    remove_orphaned,
)
from hostcore.runs.directory import RunDirectory
from hostcore.runs.documents import read_document, remove_torn, write_document
from hostcore.runs.launch import Launch, awaited_launch, launched_is_gone
from hostcore.runs.lease import Lease, ProcessIdentity
from hostcore.runs.record import RunRecord
from hostcore.runs.result import RunResult
from hostcore.runs.summary import summarize
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.writable import RunUnwritable, file_errors, require_writable
from hostcore_hookspecs.errors import HostcoreError


def _quiet(_: str) -> None:
    """Print nothing."""


class RunConflict(HostcoreError):
    """The run directory belongs to something else, or another process is running it."""

    code = "run.conflict"


class MirrorConflict(RunConflict):
    """The mirror holds another job's run, or a later attempt, or not the run that is to be resumed."""


@attrs.frozen(kw_only=True)
class Opening:
    """A claimed attempt."""

    directory: RunDirectory
    attempt: int
    #: The checkpoint of another run that this run began from; empty for none.
    parent: str = ""
    #: The run's record before this attempt; None for a new run.
    record_before: Mapping[str, Any] | None = None
    #: Whether the attempt was submitted before it began (``--detach``). Its start is not watched: if that fails, the
    #: run has failed, and is not withdrawn.
    submitted: bool = False

    @property
    def is_new(self) -> bool:
        """True if this attempt made the run directory."""
        return self.record_before is None

    @property
    def started_ms(self) -> int:
        """Time of the claim of the attempt, in milliseconds since 1970: the begin of its duration."""
        found = read_claim(self.directory.attempts, self.attempt)
        return found.started_ms if found else now_ms()

    def withdraw(self) -> None:
        """Leave no trace of an attempt that never started: the run is as it was before, or gone if it is new."""
        if self.is_new:
            self.directory.remove()
            return
        ranks = self.directory.ranks(self.attempt)
        for path in (
            *(self.directory.rank_output(self.attempt, rank) for rank in ranks),
            *(self.directory.rank_events(self.attempt, rank) for rank in ranks),
            *(self.directory.rank_hooks(self.attempt, rank) for rank in ranks),
            *(self.directory.contract(self.attempt, rank) for rank in ranks),
            self.directory.lease,
            self.directory.attempts / f"{self.attempt}.json",
            self.directory.cancel_request(self.attempt),  # it would hit the next attempt of this number
        ):
            path.unlink(missing_ok=True)
        if self.directory.record.parent.is_dir():  # else the run directory was removed meanwhile
            write_document(self.directory.record, self.record_before)


def examine_run(
    plan: RunPlan, *, launched: bool = False, elsewhere: bool = False, tell: Callable[[str], object] = _quiet
) -> RunResult | None:
    """See whether a run may be opened, without opening it.

    It may take half a minute where a supervisor of another machine or container has left a lease.

    :param launched: See :func:`open_run`.
    :param elsewhere: Whether the process that will run it adopts it from its mirror, or may do so.
    :param tell: Called with a line before such a wait.
    :return: The result of the run, if it is finished already.
    :raises RunConflict: When the run_id belongs to another job, the run is running or about to, or what should be
        resumed is not there.
    :raises CheckpointError: When the checkpoint to begin from is not there.
    :raises RunUnwritable: When the run directory cannot be made, as far as can be seen without trying.
    """
    with file_errors(plan.directory):
        must_be_here = plan.spec.resume_from_checkpoint is True and not elsewhere
        return _examine(plan, launched=launched, must_be_here=must_be_here, tell=tell)


def _examine(plan: RunPlan, *, launched: bool, must_be_here: bool, tell: Callable[[str], object]) -> RunResult | None:
    directory = plan.directory
    _refuse_dangling(directory)
    if not directory.path.exists() or is_orphaned(directory):
        if must_be_here:
            raise RunConflict(
                f"there is no run {directory.run_id!r} to resume",
                pointer="/resume_from_checkpoint",
                file=str(directory.path),
                hint='"auto" starts a new run where there is none; `hostcore list` shows the runs there are',
            )
        _require_checkpoint(plan.fetched_parent or plan.spec.begins_from)
        require_writable(plan)
        return None
    recorded = _refuse_foreign(plan, directory)
    _refuse_running(directory, launched=launched, tell=tell)
    result = _end_of(directory)
    if result and result.status == "succeeded" and not asks_for_more(plan.spec, recorded):
        return result
    if result and launched and _was_cancelled_before_it_began(directory, result):
        return result
    if must_be_here and not committed(plan.checkpoints_dir):
        raise RunConflict(
            f"the run {directory.run_id!r} has no checkpoint to resume from",
            pointer="/resume_from_checkpoint",
            file=str(plan.checkpoints_dir),
            hint='"auto" starts it again from the beginning',
        )
    require_writable(plan)
    return None


def open_run(plan: RunPlan, *, launched: bool = False, tell: Callable[[str], object] = _quiet) -> Opening | RunResult:
    """Claim the run's next attempt.

    :param launched: Whether this process is the supervisor that a launcher started for the run.
    :param tell: See :func:`examine_run`.
    :return: The attempt; or the result of the run, if it is finished already.
    :raises RunConflict: See :func:`examine_run`.
    :raises RunUnwritable: When the run directory cannot be made.
    """
    directory = plan.directory
    # Before the lease is read: of two that find no live supervisor, only one can claim this number.
    with file_errors(directory):
        attempt = next_attempt(directory)
    finished = examine_run(plan, launched=launched, tell=tell)
    if finished is not None:
        return finished
    remove_orphaned(directory)
    if directory.is_free:
        return _open_new(directory, parent=plan.spec.begins_from or "")
    with file_errors(directory):
        record = read_document(directory.record)
        parent = record.get("parent") or ""
        if not launched:  # a new start does not obey a request to an attempt that never began
            directory.cancel_request(attempt).unlink(missing_ok=True)
        opening = Opening(
            directory=directory,
            attempt=attempt,
            parent=parent,
            record_before=record,
            submitted=launched and awaited_launch(directory) is not None,
        )
        claim(directory, attempt)
        for folder in (directory.path, directory.record.parent):
            remove_torn(folder)
        return opening


def _open_new(directory: RunDirectory, *, parent: str) -> Opening:
    with file_errors(directory):
        make_directory(directory)
        opening = Opening(directory=directory, attempt=1, parent=parent)
        try:
            claim(directory, 1)
        except BaseException:
            opening.withdraw()
            raise
        return opening


def make_directory(directory: RunDirectory) -> None:
    """Make the directory of a new run.

    :raises RunConflict: When another process was faster.
    """
    try:
        directory.make()
    except FileExistsError as error:
        raise RunConflict(
            f"the run {directory.run_id!r} was just started by another process", file=str(directory.path)
        ) from error


def claim(directory: RunDirectory, attempt: int) -> None:
    """Take an attempt for this process, with a lease.

    :raises RunConflict: When another process was faster.
    """
    process, now = ProcessIdentity.current(), now_ms()
    try:
        claim_attempt(directory.attempts, attempt, process=process, started_ms=now)
    except FileExistsError as error:
        raise _just_started(directory, attempt) from error
    Lease(process=process, attempt=attempt, step=0, last_progress_ms=now, renewed_ms=now).write(directory.lease)


def _just_started(directory: RunDirectory, attempt: int) -> RunConflict:
    return RunConflict(
        f"attempt {attempt} of run {directory.run_id!r} was just started by another process",
        file=str(directory.attempts / f"{attempt}.json"),
    )


def _refuse_dangling(directory: RunDirectory) -> None:
    """See that a run directory that is a link leads somewhere."""
    if directory.path.is_symlink() and not directory.path.exists():
        target = directory.path.readlink()
        raise RunUnwritable(
            f"the run directory is a link to {target}, which does not exist",
            file=str(directory.path),
            hint="make that folder, or remove the link",
        )


def _refuse_foreign(plan: RunPlan, directory: RunDirectory) -> JobSpec:
    """The job that the run was made for, if this one may go on with it."""
    if plan.spec.resume_from_checkpoint is False or plan.spec.begins_from:
        raise RunConflict(
            f"the run {directory.run_id!r} exists already",
            pointer="/run_id",
            file=str(directory.path),
            hint="choose another run_id, or leave it out to have one made",
        )
    try:
        record = RunRecord.read(directory.record)
    except FileNotFoundError as error:
        raise RunConflict(
            f"{directory.path.name!r} exists in the runs folder but is no run of hostcore's",
            pointer="/run_id",
            file=str(directory.path),
            hint="choose another run_id, or move that folder away",
        ) from error
    return require_same_job(plan, record, file=str(directory.record))


def require_same_job(plan: RunPlan, record: RunRecord, *, file: str, where: str = "") -> JobSpec:
    """See that a run was made for the job of a plan.

    :param file: Where its record lies.
    :param where: The same in words, if it is not this machine: ``in the mirror``.
    :return: The job as recorded.
    :raises RunConflict: When it was made for another job.
    """
    # Before the first attempt of a submitted run, the number of ranks that its engine will start is unknown.
    recorded = record.spec(world_size=record.world_size or plan.spec.world_size)
    if different := job_differences(recorded, plan.spec):
        place, conflict = (f", {where}", MirrorConflict) if where else ("", RunConflict)
        raise conflict(
            f"the run_id {plan.spec.run_id!r} belongs to another job{place}: {listed(different)}",
            pointer="/run_id",
            file=file,
            hint="choose another run_id, or leave it out to have one made",
        )
    return recorded


def require_same_data(spec: JobSpec, record: RunRecord, directory: RunDirectory) -> None:
    """See that the trainer brings the data that a run was made for.

    :param spec: The job, with what the trainer brings now.
    :param record: Of the run, as it was before this attempt.
    :raises Errors: When it brings other data.
    """
    if record.brought is None:
        return
    recorded = record.spec(world_size=record.world_size or spec.world_size, with_data=True)
    if different := job_differences(recorded, spec):
        error = RunConflict(
            f"the trainer brings other data than the run {spec.run_id!r} was made for: {listed(different)}",
            pointer="/trainer",
            file=str(directory.record),
            hint="choose another run_id, or leave it out to have one made",
        )
        raise Errors([error])


def _refuse_running(directory: RunDirectory, *, launched: bool, tell: Callable[[str], object]) -> None:
    """Refuse a run that is running, or about to."""
    if proven_held(directory) is None:
        lease = Lease.read(directory.lease)
        holder = f"process {lease.process.pid} on {lease.process.host}" if lease else "a process elsewhere"
        tell(f"{holder} may still run {directory.run_id!r}: its lease is watched for {EXPIRE_SECONDS:.0f} s")
    if await_proof(directory):
        lease = Lease.read(directory.lease)
        holder = (
            f" (process {lease.process.pid} on {lease.process.host}, attempt {lease.attempt}, step {lease.step})"
            if lease
            else ""
        )
        raise RunConflict(
            f"the run {directory.run_id!r} is running{holder}",
            pointer="/run_id",
            file=str(directory.lease),
            hint=f"wait for its end, or stop it first: hostcore cancel {directory.run_id}",
        )
    if summarize(directory).status == "running":
        raise _just_started(directory, newest_attempt(directory.attempts))
    launch = None if launched else awaited_launch(directory)
    if launch and not launched_is_gone(directory):
        raise RunConflict(
            f"the run {directory.run_id!r} is submitted: its supervisor is about to begin attempt {launch.attempt}",
            pointer="/run_id",
            file=str(directory.launch),
            hint=f"wait for its end, or stop it first: hostcore cancel {directory.run_id}",
        )


def _end_of(directory: RunDirectory) -> RunResult | None:
    """Return the result of the run, if nothing has begun since, and nothing is to begin."""
    result = RunResult.read(directory.result)
    ended = result is not None and result.attempt >= newest_attempt(directory.attempts)
    return result if ended and awaited_launch(directory) is None else None


def _was_cancelled_before_it_began(directory: RunDirectory, result: RunResult) -> bool:
    """Return whether a launched supervisor comes too late: the run was cancelled before it began."""
    launch = Launch.read(directory.launch)
    return launch is not None and result.status == "cancelled" and result.attempt >= launch.attempt


def asks_for_more(asked: JobSpec, recorded: JobSpec) -> bool:
    """Return whether a job has more steps or epochs than the run was made for."""

    def limits(spec: JobSpec) -> tuple[float, float]:
        unlimited = math.inf if spec.max_steps else 1
        return spec.max_steps or math.inf, unlimited if spec.epochs is None else spec.epochs

    return any(new > old for new, old in zip(limits(asked), limits(recorded), strict=True))


def _require_checkpoint(named: str | None) -> None:
    """See that the checkpoint that a new run is to begin from is there. The worker verifies it."""
    if named is None:
        return
    try:
        load_record(Path(named))
    except CheckpointError as error:
        error.pointer = "/resume_from_checkpoint"
        raise
