"""``POST /train`` ends in a trained model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def test_a_request_ends_in_a_trained_model(
    make_server: Callable[..., Any], until: Callable[..., Any], tmp_path: Path
) -> None:
    data, mirror = tmp_path / "data", tmp_path / "mirror"
    data.mkdir()
    pq.write_table(pa.table({"x": list(range(64))}), data / "x.parquet")
    server = make_server(http=f'data_roots = ["{data}"]\ncheckpoint_roots = ["{mirror}"]\nenv = ["EXPERIMENT_*"]')
    answer = server.request(
        "POST",
        "/train",
        json={
            "framework": "tiny",
            "model_id": "square-root",
            "run_id": "meta_demo_001",
            "checkpoint_base_uri": f"{mirror}/",
            "dataset_uri": f"{data}/",
            "extra_args": {"max_steps": 4, "save_steps": 2, "batch_size": 8, "seconds": 0.0},
            "env": {"EXPERIMENT_NAME": "demo"},
        },
    )
    assert answer.status == 201, answer.body
    assert answer.headers["location"] == "/train/tiny-meta-demo-001"

    def ended() -> Any:
        job = server.request("GET", "/train/tiny-meta-demo-001").json
        return job if job["status"] in ("succeeded", "failed") else None

    job = until(ended, "the job to end")
    assert job["status"] == "succeeded", server.log
    assert (job["framework"], job["run_id"]) == ("tiny", "meta_demo_001")
    run = mirror / "meta_demo_001" / "framework=tiny"
    assert sorted(one.name for one in run.glob("checkpoints/*.json")) == ["step-000002.json", "step-000004.json"]
    assert (run / "config" / "run.json").exists()
