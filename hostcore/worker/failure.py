"""Conversion of an exception into an invalid job or a failed run, with the component that caused it."""

import errno
import re
from typing import Final

import torch.distributed

from hostcore.events.bounds import bounded, bounded_error
from hostcore.plugins.attribution import attribute, plugin_place, plugin_traceback, whole_traceback
from hostcore.secrets.scrub import scrub
from hostcore.worker.feed.transform_failure import TransformFailed
from hostcore.worker.ranks.outcome import DistributedError
from hostcore.worker.startup import Prepared
from hostcore_hookspecs.errors import HostcoreError, InvalidData, InvalidSettings, RunError

#: Makes the job invalid if it is raised before the first step: its data or its settings.
INVALID_BEFORE_FIRST_STEP = (InvalidData, InvalidSettings)

#: Gloo's errors when the other side of a connection is gone, or does not answer.
_BROKEN_OFF: Final = re.compile(r"gloo/.*(connection|timed out|closed|reset)", re.IGNORECASE | re.DOTALL)

#: Torch's errors when doubles meet floats, and the remedy.
_TWO_TYPES: Final = re.compile(r"(dtype|scalar type).*\b(Double\b.*\bFloat|Float\b.*\bDouble)\b")
_OF_TYPES: Final = (
    "float64 columns are double tensors, and weights are float32: convert the batch in prepare_batch, `tensor.float()`"
)

#: How torch reports an error of a CUDA kernel: whenever it next asks something of the GPU.
_OF_CUDA: Final = re.compile(r"^CUDA error: (?!out of memory)")
_LATE: Final = (
    "a GPU reports errors late: this one is of {when}. Look for indices out of range (labels, tokens); with "
    "CUDA_LAUNCH_BLOCKING=1 in the environment the traceback shows the place"
)

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DiskFull(HostcoreError):
    """The run directory cannot take the run any more."""

    code = "run.unwritable"


def located(error: HostcoreError, prepared: Prepared) -> HostcoreError:
    """Add the component and the place in the job to an error that a component raised about the job."""
    culprit = attribute(error, prepared.components)
    if culprit is None:
        return error
    error.plugin = error.plugin or culprit.ref.provenance
    error.file = error.file or plugin_place(error, culprit)
    if isinstance(error, InvalidSettings):
        error.pointer = prepared.pointers[culprit.use] + (error.pointer or "")
    elif prepared.dataset is not None:
        error.pointer = error.pointer or "/dataset"
    return prepared.locate(error)


def run_error(error: BaseException, prepared: Prepared, *, rank: int, step: int | None = None) -> RunError:
    """Convert an exception into the error of a failed run.

    A plugin's exception has its traceback, without the host's frames; an error that explains itself has none. An error
    about the loss of another rank is a ``DistributedError``, in whatever code it was raised: it is never the first
    failure of a run.

    :param step: The step that was being made, or was made last; None: there was none.
    """
    if isinstance(error, TransformFailed):
        return bounded_error(error.as_run_error(rank=rank))
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
        shown = whole_traceback(error)
    broken_off = has_lost_touch(error)
    message = _message(error)
    failure = RunError(
        type=DistributedError.__name__ if broken_off else type(error).__name__,
        message=f"a collective of the ranks broke off: {message}" if broken_off else message,
        traceback=shown,
        plugin=culprit.ref.provenance if culprit else getattr(error, "plugin", None),
        rank=rank,
        hint="when another rank has ended, that is why: look at its own error" if broken_off else _hint(error, step),
    )
    return bounded_error(failure)


def has_lost_touch(error: BaseException) -> bool:
    """Return whether an exception means no more than that other ranks are gone, or do not answer."""
    if isinstance(error, torch.distributed.DistError):
        return True
    return isinstance(error, RuntimeError) and _BROKEN_OFF.search(_message(error)) is not None


def _hint(error: BaseException, step: int | None) -> str | None:
    """Return the remedy for an exception; a callback may have set it."""
    hint = getattr(error, "hint", None)
    if isinstance(hint, str):
        return hint
    if not isinstance(error, RuntimeError):
        return None
    if _OF_CUDA.search(_message(error)):
        when = "an earlier call" if step is None else f"step {step} or of one since metrics were recorded before it"
        return _LATE.format(when=when)
    return _OF_TYPES if _TWO_TYPES.search(_message(error)) else None


def _message(error: BaseException) -> str:
    try:
        return bounded(scrub(str(error)))
    except Exception:  # noqa: BLE001 - a plugin's own __str__
        return "<exception str() failed>"  # as Python's own tracebacks have it
