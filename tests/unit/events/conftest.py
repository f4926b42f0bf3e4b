"""One example of every payload."""

import pytest

from hostcore_hookspecs import events
from hostcore_hookspecs.events import RunError

EXAMPLES = [
    events.RunSubmitted(
        trainer="mine", max_steps=10, epochs=2, total_steps=8, num_rows=256, batch_size=32, devices=["cpu"]
    ),
    events.RunSubmitted(trainer="mine", max_steps=10),
    events.RunStarted(device="cuda:1", world_size=2),
    events.RunResumed(path="checkpoints/step-000200"),
    events.EpochStarted(),
    events.Metrics(
        metrics={"train/loss": 0.1 + 0.2, "train/lr": 1e-300, "grad": None},
        nonfinite=["grad"],
        samples_per_second=1234.5,
        step_seconds=0.01,
        data_wait_seconds=0.0,
    ),
    events.Metrics(metrics={}),
    events.Validation(metrics={"val/loss": None, "val/accuracy": 0.5}, weight=100.0),
    events.Test(metrics={"test/loss": 2.0}, weight=3.0),
    events.Progress(samples_per_second=None),
    events.CheckpointSaved(path="checkpoints/step-000200", bytes=2**40, final=True),
    events.CheckpointSkipped(path="checkpoints/step-000100", reason="state.json is missing"),
    events.SampleSaved(path="samples/step-000200"),
    events.ArtifactUploaded(path="a", uri="s3://b/a", uploader="fsspec"),
    events.BatchSplit(rows=32, micro_batch_rows=8, error="no room", rank=1, memory="none is free"),
    events.UploadFailed(path="a", uploader="fsspec", message="no", will_retry=True),
    events.ReporterFailed(reporter="mlflow", message="ValueError: no"),
    events.Warning(code="x", message="naïve \u2028 line \n break"),
    events.TrainerRestored(restored_step=2, reason="best", requested_by="x", values={"val/loss": None}),
    events.StopRequested(reason="enough", requested_by="user"),
    events.RunSucceeded(),
    events.RunFailed(
        error=RunError(type="ValueError", message="no", traceback="Traceback…", plugin="p", rank=0, hint="h")
    ),
    events.RunCancelled(reason="interrupted by the user"),
    events.RunPreempted(reason=None),
]


@pytest.fixture(params=EXAMPLES, ids=lambda payload: type(payload).__name__)
def payload(request: pytest.FixtureRequest) -> events.Payload:
    """Each payload in turn."""
    return request.param


@pytest.fixture
def examples() -> list[events.Payload]:
    """All of them."""
    return list(EXAMPLES)
