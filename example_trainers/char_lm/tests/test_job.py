"""The package's own job, short and small, through the real host."""

import math
from pathlib import Path

import pytest
from prepared_job import job_over

import hostcore

JOB = Path(__file__).parents[1] / "job.json"


def test_the_job_trains_validates_generates_samples_and_tests(
    prepared: Path, small: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTCORE_RUNS_DIR", str(tmp_path))
    short = {"run_id": "short", "max_steps": 30, "validate_every": 15, "sample_every": 30}
    job = job_over(prepared, JOB, hyperparams=small, **short)
    result = hostcore.run(job)
    assert result.status == "succeeded", result.error
    assert result.metrics["val/bits_per_byte"] < 6
    assert result.metrics["val/bits_per_byte"] == pytest.approx(result.metrics["val/loss"] / math.log(2))
    assert result.metrics["test/bits_per_byte"] < 6
    samples = sorted((tmp_path / "short/samples").rglob("sample.txt"))
    assert [str(path.relative_to(tmp_path)) for path in samples] == [
        "short/samples/step-000030/0/sample.txt",
        "short/samples/step-000030/1/sample.txt",
    ]
    for path, request in zip(samples, job["samples"], strict=True):
        assert path.read_text().startswith(request["prompt"])
