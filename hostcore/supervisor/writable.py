"""Write access to a run directory: checked before anything is started, with a clear error when it fails."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from hostcore.runs.directory import RUNS_DIR_VARIABLE, RunDirectory
from hostcore.supervisor.plan import RunPlan
from hostcore_hookspecs.errors import HostcoreError


class RunUnwritable(HostcoreError):
    """The run directory cannot be made or written."""

    code = "run.unwritable"


def require_writable(plan: RunPlan) -> None:
    """See that everything that the run writes could be written: better now than at the first checkpoint."""
    _require_folder(plan.directory.path)
    for what, path in (("checkpoints", plan.checkpoints_dir), ("generated samples", plan.samples_dir)):
        try:
            _require_folder(path)
        except OSError as error:
            raise RunUnwritable(
                f"{what} cannot be written to {path}: {error.strerror}",
                file=str(path),
                hint="name a folder for them that you may write to",
            ) from error


def _require_folder(path: Path) -> None:
    """See that a folder could be made, and files in it."""
    folder = _nearest(path)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{folder} is not a folder", str(folder))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


@contextlib.contextmanager
def file_errors(directory: RunDirectory) -> Iterator[None]:
    """Convert the system's errors about the run directory into :class:`RunUnwritable`."""
    try:
        yield
    except OSError as error:
        raise unwritable(directory.path, error) from error


def _nearest(path: Path) -> Path:
    """The path, or the nearest folder above it that can be seen."""
    return next(place for place in (path, *path.parents) if os.path.lexists(place))


def unwritable(path: Path, error: OSError) -> RunUnwritable:
    """The error for a run directory that cannot be written."""
    folder = _nearest(path)
    hint = f"set {RUNS_DIR_VARIABLE} to a folder that you may write to"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        hint = f"make room, or set {RUNS_DIR_VARIABLE} to a folder on another disk"
    elif not os.access(folder, os.W_OK):
        hint = f"{folder} is not writable for this user; {hint}"
    return RunUnwritable(
        f"the run directory cannot be written: {error.strerror or error}",
        file=error.filename or str(path),
        hint=hint,
    )
