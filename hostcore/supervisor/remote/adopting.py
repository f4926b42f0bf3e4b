"""Adopting a run: its mirror becomes a run directory of this machine, and from there on it is a run like any other.

::

    the mirror has config/run.json ─▶ the same job? ─▶ attempts, event log, result, newest checkpoint that verifies
                                                        ─▶ runs/.adopting-…/<run_id>/ ─▶ runs/<run_id>/, by a rename

Every process that runs a job adopts. Who submits asks the mirror first, as far as it can, and fetches nothing.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from hostcore.checkpoints.durable import move, write_file
from hostcore.checkpoints.find import Found
from hostcore.checkpoints.names import record_name
from hostcore.runs.attempts import claimed_attempts, is_orphaned, newest_attempt, read_claim, remove_orphaned
from hostcore.runs.directory import RunDirectory
from hostcore.runs.documents import lives
from hostcore.runs.launch import Launch
from hostcore.runs.record import RunRecord
from hostcore.runs.result import RunResult
from hostcore.runs.statuses import ALIVE
from hostcore.runs.summary import summarize
from hostcore.supervisor.opening import MirrorConflict, asks_for_more, require_same_job
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.remote.cache import put_in_place, sync_folders
from hostcore.supervisor.remote.checkpoints import bring_newest
from hostcore.supervisor.remote.mirror import LOCK, Mirror, mirror_of
from hostcore.supervisor.writable import file_errors
from hostcore_builtin_plugins.processes import place_name
from hostcore_builtin_plugins.stores.errors import ObjectMissing, StoreError, Unreachable
from hostcore_builtin_plugins.stores.location import Location

Tell = Callable[[str], object]

_RESUME: Final = "/resume_from_checkpoint"
_START_ANEW: Final = '"resume_from_checkpoint": false begins a new run without looking there'


def adopt_from_mirror(plan: RunPlan, tell: Tell, *, launched: bool = False) -> None:
    """Bring a run here that lies in the job's ``checkpoint_base_uri``, and not on this machine.

    To be called by the process that runs it, before the run is examined or opened. Nothing is looked for where no
    earlier run can exist: without a mirror, or with a generated run id.

    :param tell: Gets a line about what people should know.
    :param launched: See :func:`hostcore.supervisor.opening.open_run`.
    :raises RunConflict: When the run was gone on with elsewhere, belongs to another job, or should be new.
    :raises StoreError: When the mirror cannot be read, so that it is unknown whether the run is there.
    :raises RunUnwritable: When there is no place for it here.
    """
    if not _may_be_mirrored(plan):
        return
    is_here = _is_here(plan.directory, launched=launched)
    try:
        if (mirror := _mirror_to_adopt(plan, is_here=is_here)) is not None:
            with file_errors(plan.directory):
                _adopt(plan, mirror, tell, launched=launched)
    except Unreachable as error:
        if not is_here and not _is_to_be_new(plan):
            raise _unknown(plan, error) from error
        what = "the run goes on with what is here" if is_here else "the run begins anew"
        tell(f"it is unknown whether the run {plan.spec.run_id!r} is in its mirror, and {what}: {error.message}")


def newest_attempt_to_adopt(plan: RunPlan, tell: Tell) -> int | None:
    """Refuse a submission that the launched process would refuse. Nothing is fetched: that process adopts the run.

    :param tell: Gets a line about what people should know.
    :return: The newest attempt of the run in the mirror; 0 if there is nothing to adopt; None if the mirror cannot be
        read from here: the launched process may have the credentials, and decides.
    :raises RunConflict: See :func:`adopt_from_mirror`.
    """
    if not _may_be_mirrored(plan):
        return 0
    try:
        mirror = _mirror_to_adopt(plan, is_here=_is_here(plan.directory))
        return 0 if mirror is None else max(mirror.attempts(), default=0)
    except StoreError as error:
        tell(f"it is left to the launched process whether the run {plan.spec.run_id!r} is in its mirror: {error}")
        return None


def find_in_mirror(plan: RunPlan) -> str:
    """Return the URI of the run's mirror, if the run is there and not on this machine; empty otherwise. Fetch nothing.

    :raises RunConflict: See :func:`adopt_from_mirror`.
    :raises StoreError: When the mirror cannot be read.
    """
    if not _may_be_mirrored(plan) or _is_here(plan.directory):
        return ""
    mirror = _mirror_to_adopt(plan, is_here=False)
    return "" if mirror is None else mirror.uri


def _may_be_mirrored(plan: RunPlan) -> bool:
    return plan.spec.checkpoint_base_uri is not None and not plan.spec.generated_run_id


def _is_here(directory: RunDirectory, *, launched: bool = False) -> bool:
    """Return whether the directory is where the run is kept, or a living launch has it.

    A submission that has not begun, and one that was begun where the directory is not seen, are only notes of a run.
    """
    if not directory.path.exists() or is_orphaned(directory):
        return False
    launch, begun = Launch.read(directory.launch), newest_attempt(directory.attempts) > 0
    if not directory.record.exists() or (begun and (launch is None or launch.sees_run_dir)):
        return True
    return launch is not None and not launched and summarize(directory).status in ALIVE


def _mirror_to_adopt(plan: RunPlan, *, is_here: bool) -> Mirror | None:
    """The mirror of a run that is there alone; None if there is nothing to adopt.

    :raises RunConflict: When the run must not go on here, or not as it is asked for.
    :raises StoreError: When the mirror cannot be read.
    """
    mirror = mirror_of(plan.spec)
    assert mirror is not None
    record = mirror.record()
    if record is None:
        if plan.spec.resume_from_checkpoint is True and not is_here:
            raise MirrorConflict(
                f"there is no run {plan.spec.run_id!r} to resume, neither here nor in its mirror",
                pointer=_RESUME,
                file=mirror.uri,
                hint='"auto" starts a new run where there is none',
            )
        return None
    if is_here:
        _refuse_overtaken(plan, mirror)
        return None
    if _is_to_be_new(plan):
        raise MirrorConflict(
            f"the run {plan.spec.run_id!r} exists already, in its mirror",
            pointer="/run_id",
            file=mirror.uri,
            hint="choose another run_id, or leave it out to have one made",
        )
    require_same_job(plan, record, file=f"{mirror.uri}/config/run.json", where="in the mirror")
    return mirror


def _is_to_be_new(plan: RunPlan) -> bool:
    return plan.spec.resume_from_checkpoint is False or plan.spec.begins_from is not None


def _unknown(plan: RunPlan, error: Unreachable) -> Unreachable:
    """The error for a mirror that cannot be asked: going on without it could throw away what it has."""
    return Unreachable(
        f"it is unknown whether the run {plan.spec.run_id!r} is to be continued: {error.message}",
        pointer=error.pointer,
        file=error.file,
        hint=f"{error.hint}. {_START_ANEW}",
    )


def _refuse_overtaken(plan: RunPlan, mirror: Mirror) -> None:
    """Refuse a run that was continued elsewhere since it was here."""
    here, there = newest_attempt(plan.directory.attempts), max(mirror.attempts(), default=0)
    claim = plan.directory.attempts / f"{here}.json"
    if there < here or here == 0:
        return
    # Of the same number, one that was begun elsewhere is another one.
    if there == here and mirror.place.below(f"attempts/{here}.json").read() in (None, claim.read_bytes()):
        return
    raise MirrorConflict(
        f"the run {plan.spec.run_id!r} was gone on with elsewhere: its mirror is at attempt {there}, and what is here "
        f"{'is another one of that number' if there == here else f'ends with attempt {here}'}",
        pointer="/run_id",
        file=str(plan.directory.path),
        hint=f"move {plan.directory.path} away to go on from {mirror.uri}, or choose another run_id",
    )


def _adopt(plan: RunPlan, mirror: Mirror, tell: Tell, *, launched: bool) -> None:
    """Bring the run here under a hidden name, and give it its own when it is whole."""
    place = plan.directory.path.resolve()  # which may be a link to a folder on another disk
    runs = place.parent
    outer = runs / f".adopting-{plan.spec.run_id}-{place_name()}-{os.getpid()}"
    _remove_leftovers(runs, plan.spec.run_id)
    tell(f"the run {plan.spec.run_id!r} is not on this machine, and is fetched from {mirror.uri}")
    try:
        runs.mkdir(parents=True, exist_ok=True)
        temporary = outer / plan.spec.run_id
        remove_orphaned(plan.directory)
        is_noted = plan.directory.record.exists()
        is_elsewhere = is_noted or plan.checkpoints_dir != plan.directory.checkpoints
        fetch_run(mirror, temporary, plan.checkpoints_dir if is_elsewhere else None, tell)
        if is_noted:
            _add_to_note(RunDirectory(temporary), plan.directory, launched=launched)
        else:
            put_in_place(temporary, place, lambda: True)  # another process has adopted it: the content is the same
    finally:
        shutil.rmtree(outer, ignore_errors=True)


def _add_to_note(arrived: RunDirectory, directory: RunDirectory, *, launched: bool) -> None:
    """Give a directory that holds only the note of a launch what has arrived. The newest claim makes it the run's."""
    own, theirs = RunRecord.read(directory.record), RunRecord.read(arrived.record)
    launch, result = Launch.read(directory.launch), RunResult.read(arrived.result)
    attrs.evolve(theirs, job=own.job, job_dir=own.job_dir).write(directory.record)
    for name in (LOCK, "logs/events.jsonl", "result.json"):
        if (arrived.path / name).exists():
            move(arrived.path / name, directory.path / name)
    newest = newest_attempt(arrived.attempts)
    is_over = result is not None and result.status == "succeeded" and not asks_for_more(own.spec(), theirs.spec())
    if launch is not None:
        attempt = newest + 1 if launched and not is_over else newest
        attrs.evolve(launch, attempt=attempt, sees_run_dir=True).write(directory.launch)
    for number in reversed(claimed_attempts(arrived.attempts)):
        move(arrived.attempts / f"{number}.json", directory.attempts / f"{number}.json")


def _remove_leftovers(runs: Path, run_id: str) -> None:
    """Remove what killed processes of this machine have left of the same."""
    prefix = f".adopting-{run_id}-{place_name()}-"
    for left in runs.glob(f"{prefix}*"):
        pid = left.name.removeprefix(prefix)  # no number: of another machine, whose name begins like this one's
        if pid.isdecimal() and not lives(int(pid)):
            shutil.rmtree(left, ignore_errors=True)


def fetch_run(mirror: Mirror, target: Path, checkpoints: Path | None, tell: Tell) -> None:
    """Make a run directory from a mirror.

    :param target: Does not exist.
    :param checkpoints: Where the checkpoint goes, if not into the run directory.
    :raises StoreError: When the store cannot be read.
    """
    directory = RunDirectory(target)
    directory.make()
    attempts = mirror.attempts()
    for name in (LOCK, "config/run.json", *(f"attempts/{number}.json" for number in attempts), "result.json"):
        content = mirror.place.below(name).read()
        if content is not None:
            write_file(target / name, [content])
        elif name not in (LOCK, "result.json"):  # it was there a moment ago
            raise ObjectMissing(f"{mirror.uri}/{name} is gone", file=mirror.uri)
    _bring_log(mirror.place.below("logs/events.jsonl"), directory.events)
    _tell_of_end(directory, max(attempts, default=0), tell)
    committed, abandoned = mirror.steps()
    folder = mirror.place.below("checkpoints")
    found = bring_newest(folder, committed, abandoned, directory.checkpoints, tell)
    if found is None and committed:
        tell(f"none of the {len(committed)} checkpoints in {folder.uri} verifies: the run starts again at step 0")
    if found is not None and checkpoints is not None:
        _move_to(checkpoints, found)
    sync_folders(target)


def _bring_log(place: Location, target: Path) -> None:
    """Bring the event log here, which may be large. A run that had no time to copy it begins another."""
    from hostcore_builtin_plugins.stores.get import Wanted, bring

    try:
        bring(place.filesystem, [Wanted(source=place.path, uri=place.uri, target=target)], label="events")
    except ObjectMissing:
        target.unlink(missing_ok=True)


def _tell_of_end(directory: RunDirectory, attempt: int, tell: Tell) -> None:
    """Warn if the end of the newest attempt is not recorded: it may still be running elsewhere."""
    result, claim = RunResult.read(directory.result), read_claim(directory.attempts, attempt)
    if claim is not None and (result is None or result.attempt < attempt):
        process = f"process {claim.process.pid} on {claim.process.host}"
        tell(f"its attempt {attempt} ({process}) has no end in the mirror: see that it does not run any more")


def _move_to(checkpoints: Path, found: Found) -> None:
    """Move a checkpoint to the environment's folder of checkpoints, unless it is there: the record last."""
    record = found.folder.with_name(record_name(found.record.step))
    target = checkpoints / found.folder.name
    if (checkpoints / record.name).exists():
        return
    shutil.rmtree(target, ignore_errors=True)  # of a process that was killed before it moved the record
    checkpoints.mkdir(parents=True, exist_ok=True)
    hidden = checkpoints / f".{found.folder.name}.adopted"
    shutil.rmtree(hidden, ignore_errors=True)
    shutil.move(found.folder, hidden)  # may be on another disk
    move(hidden, target)
    shutil.copyfile(record, hidden.with_suffix(".json"))
    move(hidden.with_suffix(".json"), checkpoints / record.name)
    record.unlink()
