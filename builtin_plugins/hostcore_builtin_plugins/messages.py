"""Texts of the events of a run."""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from hostcore_builtin_plugins.progress import format_bytes, format_devices, format_rate, format_value
from hostcore_hookspecs import Event
from hostcore_hookspecs.events import (
    ArtifactUploaded,
    BatchSplit,
    CheckpointSaved,
    CheckpointSkipped,
    EpochStarted,
    Metrics,
    Progress,
    ReporterFailed,
    ResumeProbe,
    RunCancelled,
    RunFailed,
    RunPreempted,
    RunResumed,
    RunStarted,
    RunSubmitted,
    RunSucceeded,
    SampleSaved,
    StopRequested,
    Test,
    TrainerRestored,
    UploadFailed,
    Validation,
    Warning,
)

#: Of a step's debug values, in characters; all of them are in the event.
_MOST_DEBUG: Final = 500


def message_of(event: Event, *, best: Collection[str] = ()) -> str | None:  # noqa: PLR0912 - one for each event
    """Return the text of an event for people; None for an event that only moves the progress on.

    :param best: The metrics of a validation that are to be marked as the best so far.
    """
    match event.payload:
        case Metrics() | Progress() | ResumeProbe():  # most of all events
            return None
        case RunSubmitted(devices=devices) if len(devices) > 1:
            return format_devices(devices)
        case RunResumed(path=path, owed=owed):
            kinds = [one.partition("/")[0] for one in owed]
            return f"resumed from {path}" + (f", with the {' and the '.join(kinds)} due there" if kinds else "")
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
        case BatchSplit(rows=rows, micro_batch_rows=size, rank=rank, error=error):
            where = f" on rank {rank}" if rank else ""
            now = f"batches of {rows} rows are taken in parts of {size}"
            return f"warning: memory ran out in step {event.step}{where}: {now} ({error})"
        case ReporterFailed(reporter=reporter, message=message):
            return f"warning: reporter {reporter} failed: {message}"
        case UploadFailed(path=path, uploader=uploader, message=message, will_retry=will_retry):
            then = "it will be tried again" if will_retry else "it is given up"
            what = f"upload of {path} by" if path else "uploader"
            return f"warning: {what} {uploader} failed, {then}: {message}"
        case TrainerRestored(restored_step=step, reason=reason, requested_by=requested_by):
            return f"the trainer went back to its state of step {step:,}: {reason} ({requested_by})"
        case StopRequested(reason=reason, requested_by=requested_by):
            by_component = requested_by not in ("user", "host") and not requested_by.startswith("signal:")
            return f"stopping: {reason}" + (f" (asked by {requested_by})" if by_component else "")
        case _:
            return _end(event)


def text_of(event: Event) -> str:
    """Return the text of an event in a list, without its name, step and time. May be empty."""
    match event.payload:
        case RunSubmitted():
            return ", ".join(_submitted(event.attempt, event.payload))
        case RunStarted(device=device, world_size=ranks):
            return f"on {device}" + (f", {ranks} ranks" if ranks > 1 else "")
        case EpochStarted():
            return f"epoch {(event.epoch or 0) + 1}"
        case Metrics(metrics=metrics, samples_per_second=rate, debug=debug):
            values = (f"{name} {format_value(value)}" for name, value in metrics.items())
            return "  ".join([*values, *_rate(rate), *_debug(debug)])
        case Progress(samples_per_second=rate):
            return "".join(_rate(rate))
        case ArtifactUploaded(path=path, uri=uri, uploader=uploader):
            return f"{path} uploaded to {uri} by {uploader}"
    return message_of(event) or ""


def _submitted(attempt: int, payload: RunSubmitted) -> Iterator[str]:
    yield f"attempt {attempt}: {payload.trainer}"
    if steps := payload.total_steps or payload.max_steps:
        yield f"{steps:,} steps"
    if payload.num_rows:
        yield f"{payload.num_rows:,} rows"
    if payload.devices:
        yield f"on {format_devices(payload.devices)}"


def _debug(debug: Mapping[str, Any]) -> Iterator[str]:
    if debug:
        text = json.dumps(debug, ensure_ascii=False)
        yield f"debug {text if len(text) <= _MOST_DEBUG else text[:_MOST_DEBUG] + '…'}"


def _rate(rate: float | None) -> Iterator[str]:
    if rate is not None:
        yield f"({format_rate(rate)} samples/s)"


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
