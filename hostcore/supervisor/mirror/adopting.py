"""Adopting a run: its mirror becomes a run directory of this machine, and from there on it is a run like any other.

::

    the mirror has config/run.json ─▶ the same job? ─▶ attempts, event log, result, newest checkpoint that verifies
                                                        ─▶ runs/.adopting-…/<run_id>/ ─▶ runs/<run_id>/, by a rename
"""

import errno
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hostcore.runs.attempts import newest_attempt
from hostcore.runs.orphaned import is_orphaned, remove_orphaned
from hostcore.supervisor.opening import RunConflict, require_same_job
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.writable import file_errors

if TYPE_CHECKING:
    from hostcore.supervisor.mirror.place import Mirror
    from hostcore.supervisor.remote.errors import StoreError

Tell = Callable[[str], object]

_RESUME: Final = "/resume_from_checkpoint"
_START_ANEW: Final = '"resume_from_checkpoint": false begins a new run without looking there'


def adopt_from_mirror(plan: RunPlan, tell: Tell) -> None:
    """Bring a run here that lies in the job's ``checkpoint_base_uri``, and not on this machine.

    To be called before a run is examined or opened. Nothing is looked for where no earlier run can exist: without
    a mirror, or with a generated run id.

    :param tell: Gets a line about what people should know.
    :raises RunConflict: When the run was gone on with elsewhere, belongs to another job, or should be new.
    :raises StoreError: When the mirror cannot be read, so that it is unknown whether the run is there.
    :raises RunUnwritable: When there is no place for it here.
    """
    if plan.spec.checkpoint_base_uri is None or plan.spec.generated_run_id:
        return
    from hostcore.supervisor.remote.errors import StoreError

    is_here = plan.directory.path.exists() and not is_orphaned(plan.directory)
    try:
        _look(plan, is_here=is_here, tell=tell)
    except StoreError as error:
        if not error.is_outage:
            raise
        if not is_here and not _is_to_be_new(plan):
            raise _unknown(plan, error) from error
        what = "the run goes on with what is here" if is_here else "the run begins anew"
        tell(f"it is unknown whether the run {plan.spec.run_id!r} is in its mirror, and {what}: {error.message}")


def find_in_mirror(plan: RunPlan) -> str:
    """Where the run's mirror is, if the run is there and not on this machine; empty otherwise. Fetches nothing.

    :raises StoreError: When the mirror cannot be read.
    """
    if plan.spec.checkpoint_base_uri is None or plan.spec.generated_run_id or plan.directory.path.exists():
        return ""
    from hostcore.supervisor.mirror.place import mirror_of

    mirror = mirror_of(plan.spec)
    return mirror.uri if mirror is not None and mirror.record() is not None else ""


def _look(plan: RunPlan, *, is_here: bool, tell: Tell) -> None:
    from hostcore.supervisor.mirror.place import mirror_of

    mirror = mirror_of(plan.spec)
    assert mirror is not None
    record = mirror.record()
    if record is None:
        if plan.spec.resume_from_checkpoint is True and not is_here:
            raise RunConflict(
                f"there is no run {plan.spec.run_id!r} to resume, neither here nor in its mirror",
                pointer=_RESUME,
                file=mirror.uri,
                hint='"auto" starts a new run where there is none',
            )
        return
    if is_here:
        _refuse_overtaken(plan, mirror)
    elif _is_to_be_new(plan):
        raise RunConflict(
            f"the run {plan.spec.run_id!r} exists already, in its mirror",
            pointer="/run_id",
            file=mirror.uri,
            hint="choose another run_id, or leave it out to have one made",
        )
    else:
        require_same_job(plan, record, file=f"{mirror.uri}/config/run.json", where="in the mirror")
        with file_errors(plan.directory):
            _adopt(plan, mirror, tell)


def _is_to_be_new(plan: RunPlan) -> bool:
    return plan.spec.resume_from_checkpoint is False or plan.spec.begins_from is not None


def _unknown(plan: RunPlan, error: "StoreError") -> "StoreError":
    """The error for a mirror that cannot be asked: going on without it could throw away what it has."""
    return type(error)(
        f"it is unknown whether the run {plan.spec.run_id!r} is to be continued: {error.message}",
        code=error.code,
        pointer=error.pointer,
        file=error.file,
        hint=f"{error.hint}. {_START_ANEW}",
    )


def _refuse_overtaken(plan: RunPlan, mirror: "Mirror") -> None:
    """Refuse a run that was continued elsewhere since it was here."""
    here, there = newest_attempt(plan.directory.attempts), max(mirror.attempts(), default=0)
    claim = plan.directory.attempts / f"{here}.json"
    if there < here or here == 0:
        return
    # Of the same number, one that was begun elsewhere is another one.
    if there == here and mirror.place.below(f"attempts/{here}.json").read() in (None, claim.read_bytes()):
        return
    raise RunConflict(
        f"the run {plan.spec.run_id!r} was gone on with elsewhere: its mirror is at attempt {there}, and what is here "
        f"{'is another one of that number' if there == here else f'ends with attempt {here}'}",
        pointer="/run_id",
        file=str(plan.directory.path),
        hint=f"move {plan.directory.path} away to go on from {mirror.uri}, or choose another run_id",
    )


def _adopt(plan: RunPlan, mirror: "Mirror", tell: Tell) -> None:
    """Bring the run here under a hidden name, and give it its own when it is whole."""
    from hostcore.supervisor.mirror.contents import fetch_run

    place = plan.directory.path.resolve()  # which may be a link to a folder on another disk
    runs = place.parent
    outer = runs / f".adopting-{plan.spec.run_id}-{socket.gethostname()}-{os.getpid()}"
    _remove_leftovers(runs, plan.spec.run_id)
    tell(f"the run {plan.spec.run_id!r} is not on this machine, and is fetched from {mirror.uri}")
    try:
        runs.mkdir(parents=True, exist_ok=True)
        temporary = outer / plan.spec.run_id
        fetch_run(mirror, temporary, plan.checkpoints_dir if _is_elsewhere(plan) else None, tell)
        remove_orphaned(plan.directory)
        _move_into_place(temporary, place)
    finally:
        shutil.rmtree(outer, ignore_errors=True)


def _is_elsewhere(plan: RunPlan) -> bool:
    return plan.checkpoints_dir != plan.directory.checkpoints


def _move_into_place(temporary: Path, path: Path) -> None:
    from hostcore.checkpoints.durable import fsync_folder

    try:
        temporary.rename(path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return  # another process has adopted it meanwhile, with the same content
    fsync_folder(path.parent)


def _remove_leftovers(runs: Path, run_id: str) -> None:
    """Remove what killed processes of this machine have left of the same."""
    for left in runs.glob(f".adopting-{run_id}-{socket.gethostname()}-*"):
        pid = left.name.rpartition("-")[2]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
            shutil.rmtree(left, ignore_errors=True)
