"""The package's own job, short, through the real host."""

from pathlib import Path

import pytest
from prepared_job import job_over

import hostcore

JOB = Path(__file__).parents[1] / "job.json"


def test_the_job_trains_validates_and_tests(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTCORE_RUNS_DIR", str(tmp_path))
    events = []
    result = hostcore.run(job_over(prepared, JOB, run_id="short", epochs=3), on_event=events.append)
    assert result.status == "succeeded", result.error
    assert {"train/loss", "accuracy", "train/lr"} <= result.metrics.keys()
    assert result.metrics["val/accuracy"] > 0.5
    assert result.metrics["test/accuracy"] > 0.5
    assert result.best["metric"] == "val/loss"
    assert [event.step for event in events if event.name == "validation"] == [16, 32, 48]
