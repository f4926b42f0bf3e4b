"""What belongs to a later version is refused, never ignored; defaults written out are not."""

from typing import Any

import pytest

from hostcore.errors import Errors
from hostcore.job.load import load_job

JOB: dict[str, Any] = {"trainer": "x", "dataset": {"parquet_paths": "a.parquet"}}

REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("/environment", {"environment": {"requirements": ["numpy"]}}),
]


@pytest.mark.parametrize(("pointer", "change"), REFUSED, ids=[str(change) for _, change in REFUSED])
def test_a_key_of_a_later_version_is_refused(pointer: str, change: dict[str, Any]) -> None:
    with pytest.raises(Errors) as caught:
        load_job({**JOB, **change})
    (error,) = caught.value.errors
    assert (error.code, error.pointer) == ("job.not_yet", pointer)
    assert "not there yet" in error.message


@pytest.mark.parametrize(
    "change",
    [
        {"validation": None, "test": None, "validate_every": 0, "accumulate": 1},
        {"uploaders": [], "resolvers": [], "policies": [], "inputs": {}},
        {"launcher": "local", "environment": None},
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


def test_a_wrong_type_under_a_later_key_is_told_once_as_a_wrong_type() -> None:
    with pytest.raises(Errors) as caught:
        load_job({**JOB, "validation": {"parquet_paths": "v", "batch_size": "8"}, "accumulate": "2"})
    assert [(error.pointer, error.code) for error in caught.value.errors] == [
        ("/validation/batch_size", "value.type"),
        ("/accumulate", "value.type"),
    ]
