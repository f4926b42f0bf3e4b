"""The reporter ``jsonl`` with the format ``trn``."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from hostcore_builtin_plugins.jsonl import JsonlReporter
from hostcore_hookspecs import Event, Job, ReporterContext
from hostcore_hookspecs.events import (
    PAYLOADS,
    CheckpointSaved,
    EpochStarted,
    Metrics,
    RunCancelled,
    RunError,
    RunFailed,
    RunPreempted,
    RunStarted,
    RunSubmitted,
    RunSucceeded,
    Warning,
)

MakeEvent = Callable[..., Event]


def told(path: Path, events: Iterable[Event], *, last_seq: int = 0, **settings: Any) -> list[dict[str, Any]]:
    reporter = JsonlReporter(settings=JsonlReporter.Settings(path=path, format="trn", **settings))
    job = Job(run_id="flights-1", weights="/data/w.pt")
    reporter.open(ReporterContext(run_id="flights-1", attempt=1, job=job, run_dir="/runs/flights-1", last_seq=last_seq))
    for event in events:
        reporter.report_event(event)
    reporter.close()
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_first_event_is_job_submitted_with_the_job_file_and_the_devices(tmp_path: Path, event: MakeEvent) -> None:
    submitted = RunSubmitted(trainer="mine", max_steps=5, devices=["cuda:0", "cuda:1"])
    (line,) = told(tmp_path / "log", [event(submitted)], config_path=Path("/jobs/job.json"), profile="prod")
    assert line == {
        "event": "job_submitted",
        "timestamp": "2023-11-14T22:13:20.000Z",
        "job_id": "flights-1",
        "config_path": "/jobs/job.json",
        "devices": ["cuda:0", "cuda:1"],
        "weights": "/data/w.pt",
        "profile": "prod",
        "log_path": "/runs/flights-1/logs/events.jsonl",
        "submitted_at": "2023-11-14T22:13:20.000Z",
        "attempt": 1,
        "seq": 1,
        "epoch": 0,
    }


def test_a_job_without_a_file_names_the_one_in_its_run_directory(tmp_path: Path, event: MakeEvent) -> None:
    (line,) = told(tmp_path / "log", [event(RunSubmitted(trainer="mine", max_steps=5))])
    assert line["config_path"] == "/runs/flights-1/config/run.json"
    assert line["profile"] is None


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (RunStarted(device="cpu"), {"event": "session_start", "device": "cpu"}),
        (Metrics(metrics={"train/loss": 0.5, "train/lr": 0.1}), {"event": "step", "step": 7, "loss": 0.5}),
        (Metrics(metrics={"train/loss": float("nan")}), {"event": "step", "loss": None}),
        (
            CheckpointSaved(path="checkpoints/step-000007", bytes=1, final=False),
            {"event": "checkpoint", "meta": "/runs/flights-1/checkpoints/step-000007.json", "bytes": 1},
        ),
        (RunSucceeded(reason="enough"), {"event": "job_completed", "reason": "enough"}),
        (
            RunFailed(error=RunError(type="ValueError", message="no data")),
            {"event": "job_failed", "error": "ValueError: no data"},
        ),
        (RunCancelled(reason="stop"), {"event": "job_cancelled", "reason": "stop"}),
        (RunPreempted(), {"event": "job_preempted"}),
        (EpochStarted(), {"event": "epoch_started"}),
        (Warning(code="x", message="y"), {"event": "warning", "code": "x", "message": "y"}),
    ],
    ids=lambda value: type(value).__name__ if type(value) in PAYLOADS.values() else "",
)
def test_every_event_is_told(tmp_path: Path, event: MakeEvent, payload: Any, expected: dict[str, Any]) -> None:
    (line,) = told(tmp_path / "log", [event(payload, step=7)])
    assert line["job_id"] == "flights-1"
    assert line.items() >= expected.items()


def test_metrics_without_a_loss_have_none(tmp_path: Path, event: MakeEvent) -> None:
    (line,) = told(tmp_path / "log", [event(Metrics(metrics={"score": 1.0}), step=7)])
    assert "loss" not in line
    assert line["metrics"] == {"score": 1.0}


def test_a_resumed_run_goes_on_where_its_file_ends(tmp_path: Path, event: MakeEvent) -> None:
    events = [event(EpochStarted()) for _ in range(5)]
    told(tmp_path / "log", events[:3])
    assert [line["seq"] for line in told(tmp_path / "log", events, last_seq=3)] == [1, 2, 3, 4, 5]
