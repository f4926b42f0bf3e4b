"""A run that never was: its events as the host hands them over, numbered, in its log, and decoded from it."""

import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import attrs

from hostcore_conformance.subject import Subject
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import RunError
from hostcore_hookspecs.events import Event, Payload
from hostcore_hookspecs.job import Job
from hostcore_hookspecs.reporter import ReporterContext

_CHECKPOINT: Final = "checkpoints/step-000020"
_TRACEBACK: Final = 'Traceback (most recent call last):\n  File "trainer.py", line 30, in train_step\nValueError: no'

#: Every kind of event with all its fields.
FULL: Final[Mapping[str, Payload]] = MappingProxyType(
    {
        "run_submitted": events.RunSubmitted(
            trainer="conformance", max_steps=40, epochs=2, total_steps=40, num_rows=640, batch_size=32,
            devices=("cuda:0", "cuda:1"),
        ),
        "run_resumed": events.RunResumed(path=_CHECKPOINT, owed=("validation", "samples/1")),
        "run_started": events.RunStarted(
            device="cuda:0", world_size=2, validate_every=20, sample_every=20, samples=2, test=True
        ),
        "epoch_started": events.EpochStarted(),
        "progress": events.Progress(samples_per_second=1234.5),
        "metrics": events.Metrics(
            metrics={"train/loss": 0.25, "train/lr": 1e-3, "train/grad_norm": None}, nonfinite=("train/grad_norm",),
            samples_per_second=1234.5, step_seconds=0.026, data_wait_seconds=0.001,
        ),
        "validation": events.Validation(
            metrics={"val/loss": 0.5, "val/perplexity": None}, weight=128.0, nonfinite=("val/perplexity",)
        ),
        "resume_probe": events.ResumeProbe(values={"train/loss": 0.5, "train/ratio": None}),
        "batch_split": events.BatchSplit(
            rows=32, micro_batch_rows=8, error="OutOfMemoryError: tried to allocate 2 GiB", rank=1, memory="1 GiB free"
        ),
        "test": events.Test(metrics={"test/loss": 0.75, "test/auc": None}, weight=64.0, nonfinite=("test/auc",)),
        "checkpoint_saved": events.CheckpointSaved(path=_CHECKPOINT, bytes=123_456, final=True, best={"val/loss": 0.5}),
        "checkpoint_skipped": events.CheckpointSkipped(path=_CHECKPOINT, reason="model.safetensors has 10 bytes"),
        "sample_saved": events.SampleSaved(path="samples/step-000020/0"),
        "artifact_uploaded": events.ArtifactUploaded(
            path=_CHECKPOINT, uri=f"s3://bucket/run/{_CHECKPOINT}.json", uploader="fsspec"
        ),
        "upload_failed": events.UploadFailed(
            path=_CHECKPOINT, uploader="fsspec", message="model.safetensors: 503", will_retry=True
        ),
        "reporter_failed": events.ReporterFailed(reporter="mlflow (x 1.0)", message="ConnectionError: refused"),
        "warning": events.Warning(code="feed.slow", message="the data waits for the disk"),
        "trainer_restored": events.TrainerRestored(
            restored_step=10, reason="val/loss was best there: 0.5", requested_by="early-stopping (x 1.0)",
            values={"val/loss": 0.5, "val/perplexity": None},
        ),
        "stop_requested": events.StopRequested(reason="early stopping", requested_by="callback:0:early-stopping"),
        "run_failed": events.RunFailed(
            error=RunError(
                type="ValueError", message="no", traceback=_TRACEBACK, plugin="digits (x 1.0)", rank=1, hint="look"
            )
        ),
        "run_preempted": events.RunPreempted(reason="SIGTERM"),
        "run_cancelled": events.RunCancelled(reason="hostcore cancel"),
        "run_succeeded": events.RunSucceeded(reason="early stopping"),
    }
)  # fmt: skip

#: The same with as little as there may be.
BARE: Final[Mapping[str, Payload]] = MappingProxyType(
    {
        **FULL,
        "run_submitted": events.RunSubmitted(trainer="conformance", max_steps=0),
        "run_started": events.RunStarted(device="cpu"),
        "progress": events.Progress(),
        "metrics": events.Metrics(metrics={}),
        "validation": events.Validation(metrics={}, weight=0.0),
        "test": events.Test(metrics={}, weight=0.0),
        "checkpoint_saved": events.CheckpointSaved(path=_CHECKPOINT, bytes=0, final=False),
        "upload_failed": events.UploadFailed(path="", uploader="fsspec", message="", will_retry=False),
        "reporter_failed": events.ReporterFailed(reporter="mlflow", message=""),
        "warning": events.Warning(code="feed.slow", message=""),
        "run_failed": events.RunFailed(error=RunError(type="WorkerDied", message="")),
        "run_preempted": events.RunPreempted(),
        "run_cancelled": events.RunCancelled(),
        "run_succeeded": events.RunSucceeded(),
    }
)


class EventFixtures:
    """The events of a run, a second apart, the last of them just now.

    :param subject: For a folder.
    """

    def __init__(self, subject: Subject) -> None:
        # Real sinks outlive a session.
        self.run_id = f"conformance-{uuid.uuid4().hex[:12]}"
        self.attempt = 1
        self.events: list[Event] = []
        self._begin_ms = time.time_ns() // 1_000_000 - 3_600_000
        self._run_dir = subject.folder() / self.run_id
        self._last_seq = 0
        (self._run_dir / "logs").mkdir(parents=True)

    @property
    def log(self) -> Path:
        """``events.jsonl``."""
        return self._run_dir / "logs" / "events.jsonl"

    @property
    def ctx(self) -> ReporterContext:
        """Context of the reporter in this attempt."""
        job = Job(
            run_id=self.run_id,
            trainer="conformance",
            hyperparams={"lr": 1e-3, "sizes": [64, 8], "name": "größe", "dropout": None},
            dataset={"use": "parquet", "path": "train.parquet"},
            max_steps=40,
            epochs=2,
            labels={"team": "kit"},
        )
        return ReporterContext(
            run_id=self.run_id, attempt=self.attempt, job=job, run_dir=str(self._run_dir), last_seq=self._last_seq
        )

    def add(self, payload: Payload, *, step: int | None = 20, epoch: int | None = 1) -> Event:
        """One more event, which is in the log then."""
        from hostcore.events.codec import decode_event, encode_event

        seq = len(self.events) + 1
        made = Event(
            seq=seq,
            time_ms=self._begin_ms + 1000 * seq,
            run_id=self.run_id,
            attempt=self.attempt,
            src=(0, self.attempt, 100 * seq) if isinstance(payload, events.Metrics) else None,
            step=step,
            epoch=epoch,
            payload=payload,
        )
        line = encode_event(made)
        with self.log.open("ab") as log:
            log.write(line)
        event = decode_event(line)
        self.events.append(event)
        return event

    def begin(self) -> list[Event]:
        """Add and return the events of an attempt's begin."""
        return [
            self.add(FULL["run_submitted"], step=None, epoch=None),
            *([self.add(FULL["run_resumed"])] if self.attempt > 1 else []),
            self.add(FULL["run_started"], step=20 * (self.attempt - 1), epoch=0),
        ]

    def train(self, steps: int = 4) -> list[Event]:
        """Metrics of some steps."""
        first = len(self.events)
        return [
            self.add(events.Metrics(metrics={"train/loss": 1.0 / (first + number)}), step=first + number)
            for number in range(1, steps + 1)
        ]

    def end(self, name: str = "run_succeeded") -> list[Event]:
        """Add and return the event of an attempt's end."""
        return [self.add(FULL[name])]

    def whole(self, steps: int = 4) -> list[Event]:
        """A short attempt from its beginning to its end."""
        return [*self.begin(), *self.train(steps), *self.end()]

    def next_attempt(self) -> None:
        """Begin the next attempt, to which the following events belong."""
        self.attempt += 1
        self._last_seq = len(self.events)


def later(event: Event, name: str, payload: object) -> Event:
    """An event as a later contract may have it.

    :param event: Whose envelope it gets.
    :param name: Of the event; NAMES of this contract does not have it.
    :param payload: An instance of an attrs class.
    """
    fields = {field.name: getattr(event, field.name) for field in attrs.fields(Event)}
    return _Later(**{**fields, "payload": payload}, later_name=name)


@attrs.frozen(kw_only=True)
class _Later(Event):
    later_name: str = ""

    @property
    def name(self) -> str:
        return self.later_name
