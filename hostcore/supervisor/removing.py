"""Removing a run directory: never that of a run that lives, and never half of it under its own name."""

import os
import shutil
from pathlib import Path

from hostcore.runs.attempts import await_proof
from hostcore.runs.directory import RunDirectory
from hostcore.runs.statuses import ALIVE
from hostcore.runs.summary import RunSummary, summarize
from hostcore.supervisor.opening import RunConflict
from hostcore.supervisor.writable import RunUnwritable

#: Begins the folders that hold what is being removed.
_PREFIX = ".removing-"


def require_over(directory: RunDirectory, summary: RunSummary) -> None:
    """See that a run may be removed.

    :raises RunConflict: When it is running, or about to, or when its folder is a link.
    """
    if summary.status in ALIVE:
        raise RunConflict(
            f"the run {directory.run_id!r} is {summary.status}, and is not removed",
            file=str(directory.path),
            hint=f"`hostcore cancel {directory.run_id}` ends it",
        )
    if directory.path.is_symlink():
        raise RunConflict(
            f"the directory of the run {directory.run_id!r} is a link, and is not removed",
            file=str(directory.path),
            hint="remove the link, or name the directory that it leads to",
        )


def remove_run(directory: RunDirectory) -> None:
    """Remove the directory of a run.

    It gets another name first: whoever looks for the run sees a whole one, or none. If it was started in between, it
    gets its name back.

    :raises RunConflict: See :func:`require_over`.
    :raises RunUnwritable: When the system refuses; what could not be removed is in a hidden folder beside it.
    """
    await_proof(directory)  # a supervisor elsewhere may live although its lease is old
    require_over(directory, summarize(directory))
    aside = directory.path.parent / f"{_PREFIX}{directory.run_id}-{os.getpid()}"
    moved = RunDirectory(aside / directory.path.name)
    try:
        aside.mkdir(exist_ok=True)
        directory.path.rename(moved.path)
        try:
            require_over(directory, summarize(moved))
        except RunConflict:
            moved.path.rename(directory.path)
            aside.rmdir()
            raise
        shutil.rmtree(aside)
    except OSError as error:
        raise RunUnwritable(
            f"the run {directory.run_id!r} could not be removed: {error.strerror or error}",
            file=error.filename or str(directory.path),
        ) from error


def size_of(directory: RunDirectory) -> int:
    """Bytes of all files of a run; a file with several names counts once."""
    sizes: dict[tuple[int, int], int] = {}
    for folder, _, names in os.walk(directory.path):
        for name in names:
            try:
                status = Path(folder, name).lstat()
            except FileNotFoundError:
                continue
            sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())
