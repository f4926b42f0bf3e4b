"""What happens to a run, in words."""

from collections.abc import Collection, Mapping

from hostcore_builtin_plugins.progress import format_bytes, format_devices, format_value
from hostcore_hookspecs import Event
from hostcore_hookspecs.events import (
    CheckpointSaved,
    CheckpointSkipped,
    ReporterFailed,
    RunCancelled,
    RunFailed,
    RunPreempted,
    RunResumed,
    RunSubmitted,
    RunSucceeded,
    SampleSaved,
    StopRequested,
    Test,
    UploadFailed,
    Validation,
    Warning,
)


def message_of(event: Event, *, best: Collection[str] = ()) -> str | None:
    """What people should read about an event; None for one that only moves the progress on.

    :param best: The metrics of a validation that are to be marked as the best so far.
    """
    match event.payload:
        case RunSubmitted(devices=devices) if len(devices) > 1:
            return format_devices(devices)
        case RunResumed(path=path):
            return f"resumed from {path}"
        case CheckpointSaved(path=path, bytes=size, final=final, best=kept_for):
            why = f", best {_listed(kept_for)}" if kept_for else ""
            return f"{'final checkpoint' if final else 'checkpoint'} {path} saved ({format_bytes(size)}){why}"
        case CheckpointSkipped(path=path, reason=reason):
            return f"warning: checkpoint {path} skipped: {reason}"
        case SampleSaved(path=path):
            return f"sample {path} saved"
        case Validation(metrics=metrics):
            return f"validation at step {event.step}: {_listed(metrics, best)}"
        case Test(metrics=metrics):
            return f"test at step {event.step}: {_listed(metrics)}"
        case Warning(message=message):
            return f"warning: {message}"
        case ReporterFailed(reporter=reporter, message=message):
            return f"warning: reporter {reporter} failed: {message}"
        case UploadFailed(path=path, uploader=uploader, message=message, will_retry=will_retry):
            then = "it will be tried again" if will_retry else "it is given up"
            what = f"upload of {path} by" if path else "uploader"
            return f"warning: {what} {uploader} failed, {then}: {message}"
        case StopRequested(reason=reason, requested_by=requested_by):
            by_component = requested_by not in ("user", "host") and not requested_by.startswith("signal:")
            return f"stopping: {reason}" + (f" (asked by {requested_by})" if by_component else "")
        case _:
            return _end(event)


def _end(event: Event) -> str | None:
    at = f" at step {event.step}" if event.step is not None else ""
    match event.payload:
        case RunSucceeded(reason=reason):
            return f"succeeded{at}" + (f": {reason}" if reason else "")
        case RunFailed(error=error):
            on = f" on rank {error.rank}" if error.rank else ""
            return f"failed{at}{on}: {error.type}: {error.message.partition(chr(10))[0]}"
        case RunCancelled(reason=reason):
            return f"cancelled{at}" + (f": {reason}" if reason else "")
        case RunPreempted(reason=reason):
            return f"preempted{at}" + (f": {reason}" if reason else "")
    return None


def _listed(metrics: Mapping[str, float | None], best: Collection[str] = ()) -> str:
    return ", ".join(
        f"{name} {format_value(value)}{' (best)' if name in best else ''}" for name, value in metrics.items()
    )
