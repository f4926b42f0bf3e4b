"""Keys are taken, and defaults that are written out."""

from typing import Any

import pytest

from hostcore.job.load import load_job

JOB: dict[str, Any] = {"trainer": "x", "dataset": {"parquet_paths": "a.parquet"}}


@pytest.mark.parametrize(
    "change",
    [
        {"validation": None, "test": None, "validate_every": 0, "accumulate": 1},
        {"uploaders": [], "resolvers": [], "policies": [], "inputs": {}},
        {"launcher": "local", "environment": None},
        {"environment": {"requirements": ["numpy"], "python": "3.12"}},
        {"environment": {"lock": "pylock.toml"}},
        {"environment": {"interpreter": "venv/bin/python"}},
        {"policies": ["quota"], "launcher": "slurm", "resources": {"num_nodes": 2}},
        {"launcher": {"use": "hostcore-builtin-plugins/local"}},
        {"max_restarts": 3, "stall_seconds": 60, "grace_seconds": 5.0, "max_runtime_seconds": 3600},
        {"require_checkpoints": True},
        {
            "dataset": {
                **JOB["dataset"],
                "workers": 4,
                "readahead": 8,
                "shuffle": True,
                "lanes": 4,
                "window_bytes": 1024,
            }
        },
        {"sample_every": 10},
        {"callbacks": ["lr-monitor"], "weights": "w", "deterministic": True, "keep_checkpoints": 1},
        {"resume_from_checkpoint": True},
        {"reporters": []},
        {"reporters": ["terminal", {"use": "webhook", "required": True, "url": "https://a"}]},
        {"uploaders": ["fsspec", {"use": "http", "required": True}], "checkpoint_base_uri": "s3://bucket/runs"},
        {"spool_bytes": 0, "spool_seconds": 3600},
        {"inputs": {"base_model_ref": "org/model"}, "resolvers": ["hf"]},
        {"profiles": {"big": {"seed": 1}}},
        {"owner": "me", "release_ref": "a/b", "labels": {"a": "b"}, "annotations": {"a": "b"}},
    ],
    ids=str,
)
def test_what_works_now_and_written_out_defaults_are_taken(change: dict[str, Any]) -> None:
    load_job({**JOB, **change})


def test_mock_batches_work_now() -> None:
    assert load_job({"trainer": "x", "mock_batches": [1, None, {"a": [2]}]}).mock_batches == (1, None, {"a": [2]})
