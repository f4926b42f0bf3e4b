"""What an exception means for the run: that the job is invalid, or that the run failed, and through whom."""

import errno
import traceback

from hostcore.plugins.attribution import attribute, plugin_place, plugin_traceback
from hostcore.worker.feed.transform_failure import TransformFailed
from hostcore.worker.startup import Prepared
from hostcore_hookspecs.errors import HostcoreError, InvalidData, InvalidSettings, RunError

#: Makes the job invalid if it is raised before the first step: its data or its settings.
INVALID_BEFORE_FIRST_STEP = (InvalidData, InvalidSettings)

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DiskFull(HostcoreError):
    """The run directory cannot take the run any more."""

    code = "run.unwritable"


def located(error: HostcoreError, prepared: Prepared) -> HostcoreError:
    """What a component found wrong with the job once it was called, with the component and the place in the job."""
    culprit = attribute(error, prepared.components)
    if culprit is None:
        return error
    error.plugin = error.plugin or culprit.ref.provenance
    error.file = error.file or plugin_place(error, culprit)
    if isinstance(error, InvalidSettings):
        error.pointer = prepared.pointers[culprit.use] + (error.pointer or "")
    elif prepared.dataset is not None:
        error.pointer = error.pointer or "/dataset"
    return error


def run_error(error: BaseException, prepared: Prepared, *, rank: int) -> RunError:
    """Why the run failed.

    A plugin's exception has its traceback, without the host's frames; an error that explains itself has none.
    """
    if isinstance(error, TransformFailed):
        return error.as_run_error(rank=rank)
    culprit = attribute(error, prepared.components)
    if culprit is None and isinstance(error, OSError) and error.errno in _NO_ROOM:
        error = DiskFull(
            f"the run directory cannot be written: {error.strerror}", hint="make room, then run the job again"
        )
    if isinstance(error, HostcoreError):
        shown = ""
    elif culprit is not None:
        shown = plugin_traceback(error, culprit)
    else:
        shown = "".join(traceback.format_exception(error))
    return RunError(
        type=type(error).__name__,
        message=_message(error),
        traceback=shown,
        plugin=culprit.ref.provenance if culprit else getattr(error, "plugin", None),
        rank=rank,
        hint=error.hint if isinstance(error, HostcoreError) else None,
    )


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a plugin's own __str__
        return "<exception str() failed>"  # as Python's own tracebacks have it
