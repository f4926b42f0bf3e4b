"""The package's own job, short, through the real host."""

import json
from pathlib import Path

import pytest

import hostcore

JOB = Path(__file__).parents[1] / "job.json"


def test_the_job_trains_validates_and_tests(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTCORE_RUNS_DIR", str(tmp_path))
    job = json.loads(JOB.read_text()) | {"run_id": "short", "epochs": 3, "device": "cpu"}
    for part, file in (("dataset", "train"), ("validation", "validation"), ("test", "test")):
        job[part]["parquet_paths"] = [str(prepared / f"{file}.parquet")]
    events = []
    result = hostcore.run(job, on_event=events.append)
    assert result.status == "succeeded", result.error
    assert result.metrics["val/accuracy"] > 0.5
    assert result.metrics["test/accuracy"] > 0.5
    assert result.best["metric"] == "val/loss"
    assert [event.step for event in events if event.name == "validation"] == [16, 32, 48]
