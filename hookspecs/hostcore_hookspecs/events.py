"""The events of a run: the lines of ``logs/events.jsonl``, and what reporters are given.

An event is an envelope and a payload. As JSON they are one flat object; the class of the payload gives its fields, and
its name in ``PAYLOADS`` is the value of ``event``.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import attrs

from hostcore_hookspecs.errors import RunError

SCHEMA: Final = "hostcore.event/1"


@attrs.frozen(kw_only=True)
class RunSubmitted:
    """The run directory exists; the worker has checked the job and may start. Once per attempt."""

    trainer: str
    max_steps: int
    #: None: no limit.
    epochs: int | None = None
    #: Steps that this run will have when it ends, 0 if unknown.
    total_steps: int = 0
    #: Rows in the training data, 0 without data.
    num_rows: int = 0
    batch_size: int = 0
    devices: Sequence[str] = ()


@attrs.frozen(kw_only=True)
class RunStarted:
    """The trainer is set up; the first step comes next."""

    device: str
    world_size: int = 1
    #: Steps between two validations, and between two sets of samples; 0: there are none.
    validate_every: int = 0
    sample_every: int = 0
    #: Samples of a set.
    samples: int = 0
    #: Whether a test comes behind the last step.
    test: bool = False


@attrs.frozen(kw_only=True)
class RunResumed:
    """The state of a checkpoint was loaded; comes before ``run_started``."""

    #: The checkpoint, below the run directory, or absolute if it is another run's.
    path: str
    #: What was due at its step and an interruption has left to this attempt, which begins with it: ``validation``, and
    #: the samples of a step from a number on, ``samples/0``.
    owed: Sequence[str] = ()


@attrs.frozen(kw_only=True)
class EpochStarted:
    """An epoch begins."""


@attrs.frozen(kw_only=True)
class Metrics:
    """The trainer's metrics at a cadence step, and the host's throughput since the one before."""

    #: Null where the value is not finite.
    metrics: Mapping[str, float | None]
    #: The names whose value is not finite.
    nonfinite: Sequence[str] = ()
    #: Rows per second, over all ranks.
    samples_per_second: float | None = None
    #: Mean wall time of a step in seconds, waiting for data included.
    step_seconds: float | None = None
    #: Mean time per step spent waiting for data, in seconds.
    data_wait_seconds: float | None = None
    #: The ``StepResult.debug`` of the step, on the first rank.
    debug: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class BatchSplit:
    """Memory ran out in this step, which was made again with its batch in parts; so are the steps that follow."""

    #: Of a batch.
    rows: int
    #: Of a part, at most: what was found to fit.
    micro_batch_rows: int
    #: What the last try in larger parts failed with, and on which rank.
    error: str
    rank: int
    #: What was in use on that rank then, and what there is, in words.
    memory: str


@attrs.frozen(kw_only=True)
class Validation:
    """A validation is over."""

    #: The means over the data; null where the value is not finite.
    metrics: Mapping[str, float | None]
    #: Samples or tokens behind the means.
    weight: float
    #: The names whose value is not finite.
    nonfinite: Sequence[str] = ()


@attrs.frozen(kw_only=True)
class Test:
    """The test is over."""

    #: The means over the data; null where the value is not finite.
    metrics: Mapping[str, float | None]
    #: Samples or tokens behind the means.
    weight: float
    #: The names whose value is not finite.
    nonfinite: Sequence[str] = ()


@attrs.frozen(kw_only=True)
class Progress:
    """A sign of life every few seconds, whatever the metrics' cadence."""

    #: Rows per second, over all ranks, since the one before.
    samples_per_second: float | None = None


@attrs.frozen(kw_only=True)
class CheckpointSaved:
    """A checkpoint was committed."""

    #: Below the run directory.
    path: str
    #: Size of all its files together, in bytes.
    bytes: int
    final: bool
    #: The metrics that were never better, with their values.
    best: Mapping[str, float] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class CheckpointSkipped:
    """A checkpoint did not verify and was passed over when the run resumed."""

    path: str
    reason: str


@attrs.frozen(kw_only=True)
class SampleSaved:
    """The trainer generated a sample."""

    #: Below the run directory.
    path: str


@attrs.frozen(kw_only=True)
class ArtifactUploaded:
    """An uploader has copied something as a whole: all files of a checkpoint or of a generated sample, or one document.

    One event for each, not for each of its files. Copies of a growing log have no events.
    """

    #: Below the run directory: of a checkpoint or a sample, its folder.
    path: str
    #: Where the file is that was copied last: of a checkpoint, its commit record.
    uri: str
    uploader: str


@attrs.frozen(kw_only=True)
class UploadFailed:
    """An uploader could not copy a checkpoint, a sample or a document, now or for good.

    Once for each and each outage, however often it was tried.
    """

    #: As of ``artifact_uploaded``; empty if the uploader itself could not be opened.
    path: str
    uploader: str
    #: With the name of the file concerned.
    message: str
    #: False: not in this attempt.
    will_retry: bool


@attrs.frozen(kw_only=True)
class ReporterFailed:
    """A reporter failed or hangs; the run and the other reporters are not affected."""

    reporter: str
    message: str


@attrs.frozen(kw_only=True)
class Warning:
    """Something that the user should know, and that does not stop the run."""

    code: str
    message: str


@attrs.frozen(kw_only=True)
class TrainerRestored:
    """The trainer's state went back to that of an earlier checkpoint, as a component asked for."""

    #: The step of the checkpoint.
    restored_step: int
    reason: str
    requested_by: str
    #: The metrics of that state: of each the value recorded last up to that step. Null where it is not finite.
    values: Mapping[str, float | None] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class ResumeProbe:
    """Metrics of ``train_step`` at a step that two attempts train: behind the checkpoint of a stop, and again.

    See the job's ``prove_resume``.
    """

    #: Null where the value is not finite.
    values: Mapping[str, float | None]


@attrs.frozen(kw_only=True)
class StopRequested:
    """The run was asked to stop."""

    reason: str
    requested_by: str


@attrs.frozen(kw_only=True)
class RunSucceeded:
    """An end: all steps are done, or a component asked to stop."""

    reason: str | None = None


@attrs.frozen(kw_only=True)
class RunFailed:
    """An end."""

    error: RunError


@attrs.frozen(kw_only=True)
class RunCancelled:
    """An end: a person asked for it. The run can be resumed."""

    reason: str | None = None


@attrs.frozen(kw_only=True)
class RunPreempted:
    """An end: the machine or a limit asked for it. The run can be resumed."""

    reason: str | None = None


Payload = (
    RunSubmitted | RunStarted | RunResumed | EpochStarted | Metrics | BatchSplit | Validation | Test | Progress
    | CheckpointSaved | CheckpointSkipped | SampleSaved | ArtifactUploaded | UploadFailed | ReporterFailed | Warning
    | TrainerRestored | ResumeProbe | StopRequested | RunSucceeded | RunFailed | RunCancelled | RunPreempted
)  # fmt: skip

#: The class of the payload by the name of the event.
PAYLOADS: Final[Mapping[str, type[Payload]]] = MappingProxyType(
    {
        "run_submitted": RunSubmitted,
        "run_started": RunStarted,
        "run_resumed": RunResumed,
        "epoch_started": EpochStarted,
        "metrics": Metrics,
        "batch_split": BatchSplit,
        "validation": Validation,
        "test": Test,
        "progress": Progress,
        "checkpoint_saved": CheckpointSaved,
        "checkpoint_skipped": CheckpointSkipped,
        "sample_saved": SampleSaved,
        "artifact_uploaded": ArtifactUploaded,
        "upload_failed": UploadFailed,
        "reporter_failed": ReporterFailed,
        "warning": Warning,
        "trainer_restored": TrainerRestored,
        "resume_probe": ResumeProbe,
        "stop_requested": StopRequested,
        "run_succeeded": RunSucceeded,
        "run_failed": RunFailed,
        "run_cancelled": RunCancelled,
        "run_preempted": RunPreempted,
    }
)

NAMES: Final[Mapping[type[Payload], str]] = MappingProxyType({cls: name for name, cls in PAYLOADS.items()})

#: The events that end an attempt; each attempt has exactly one, and it is the last.
ENDS: Final = frozenset({"run_succeeded", "run_failed", "run_cancelled", "run_preempted"})


def fields_of(payload: Payload) -> dict[str, Any]:
    """The fields of a payload as plain JSON. What the values hold is not copied."""
    fields = {field.name: getattr(payload, field.name) for field in payload.__attrs_attrs__}
    if isinstance(payload, RunFailed):
        fields["error"] = attrs.asdict(payload.error)
    return fields


@attrs.frozen(kw_only=True)
class Event:
    """One event of a run."""

    #: Counts from 1 over all attempts of the run, without a gap.
    seq: int
    #: Milliseconds since 1970, UTC.
    time_ms: int
    run_id: str
    attempt: int
    #: Where it was first written: rank, attempt, byte offset in that rank's log; None if the supervisor wrote it.
    src: tuple[int, int, int] | None = None
    #: Finished steps when it happened; None if the run had none yet to speak of.
    step: int | None = None
    epoch: int | None = None
    payload: Payload

    @property
    def name(self) -> str:
        """The name of the event, such as ``metrics``."""
        return NAMES[type(self.payload)]

    def as_dict(self) -> dict[str, Any]:
        """The event as one flat JSON object, a line of ``events.jsonl``. What its values hold is not copied."""
        return {
            "schema": SCHEMA,
            "seq": self.seq,
            "time_ms": self.time_ms,
            "run_id": self.run_id,
            "attempt": self.attempt,
            "src": list(self.src) if self.src else None,
            "event": self.name,
            "step": self.step,
            "epoch": self.epoch,
            **fields_of(self.payload),
        }
