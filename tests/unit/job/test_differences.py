"""What is told when a run_id belongs to another job."""

from typing import Any

import pytest

from hostcore.job.differences import ABSENT, JobDifference, job_differences, listed
from hostcore.job.forms import structure
from hostcore.job.spec import JobSpec

DATA = {"parquet_paths": ["/a.parquet", "/b.parquet"]}
BASE: dict[str, Any] = {
    "trainer": "x",
    "run_id": "r",
    "dataset": DATA,
    "hyperparams": {"learning_rate": 0.1, "model": {"width": 8}},
    "callbacks": ["ema", {"use": "stop", "patience": 3}],
}


def spec_of(**changes: Any) -> JobSpec:
    job = {**BASE, **changes}
    return structure(JobSpec, {key: value for key, value in job.items() if value is not None})


CASES: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"run_id": "other", "max_steps": 9, "metric_every": 1, "device": "cpu", "owner": "me"}, []),
    ({"checkpoint_every": 5, "keep_checkpoints": 9, "reporters": [], "deterministic": True}, []),
    ({"dataset": {**DATA, "readahead": 8, "workers": 3}}, []),
    ({"dataset": {**DATA, "batch_size": 16}, "devices": ["cpu", "cpu"]}, []),
    ({"dataset": {**DATA, "shuffle": True}}, ["/dataset/shuffle: false -> true"]),
    ({"precision": "bf16"}, ['/precision: "fp32" -> "bf16"']),
    ({"dataset": {**DATA, "source": "parquet", "batch_size": 16}, "accumulate": 2}, []),
    ({"trainer": "y"}, ['/trainer: "x" -> "y"']),
    ({"seed": 3}, ["/seed: 0 -> 3"]),
    ({"hyperparams": {"learning_rate": 0.2, "model": {"width": 8}}}, ["/hyperparams/learning_rate: 0.1 -> 0.2"]),
    (
        {"hyperparams": {"learning_rate": 0.1, "model": {"depth": None}}},
        ["/hyperparams/model/width: 8 -> not given", "/hyperparams/model/depth: not given -> null"],
    ),
    ({"dataset": {**DATA, "batch_size": 64}}, ["/dataset/batch_size: 32 -> 64"]),
    ({"accumulate": 2}, ["/accumulate: 1 -> 2"]),
    ({"devices": ["cpu", "cpu"]}, ["/devices: a list of 1 -> a list of 2"]),
    ({"global_batch_size": 64}, ["/global_batch_size: 32 -> 64"]),
    ({"dataset": {**DATA, "lanes": 4}}, ["/dataset/lanes: not given -> 4"]),
    ({"dataset": {"parquet_paths": ["/a.parquet"]}}, ['/dataset/parquet_paths/1: "/b.parquet" -> not given']),
    (
        {"dataset": None, "mock_batches": [1]},
        ["/dataset: an object -> not given", "/mock_batches: not given -> a list of 1"],
    ),
    ({"callbacks": ["ema", {"use": "stop", "patience": 4}]}, ["/callbacks/1/patience: 3 -> 4"]),
    ({"callbacks": [{"use": "ema", "decay": 0.9}, BASE["callbacks"][1]]}, ["/callbacks/0/decay: not given -> 0.9"]),
    ({"callbacks": ["ema"]}, ['/callbacks/1: "stop" -> not given']),
    ({"hyperparams": {**BASE["hyperparams"], "a/b": 1}}, ["/hyperparams/a~1b: not given -> 1"]),
]


@pytest.mark.parametrize(("change", "told"), CASES, ids=[str(told) for _, told in CASES])
def test_two_jobs_differ_value_by_value(change: dict[str, Any], told: list[str]) -> None:
    before, after = spec_of(), spec_of(**change)
    assert [str(difference) for difference in job_differences(before, after)] == told


def test_a_difference_has_both_values() -> None:
    (difference,) = job_differences(spec_of(), spec_of(hyperparams={"learning_rate": 0.1}))
    assert difference == JobDifference(pointer="/hyperparams/model", before={"width": 8}, after=ABSENT)


def test_in_a_line_at_most_five_are_shown() -> None:
    def told(count: int) -> str:
        return listed(job_differences(spec_of(hyperparams={}), spec_of(hyperparams=dict.fromkeys("abcdefg"[:count]))))

    assert told(0) == ""
    assert told(2) == "/hyperparams/a: not given -> null, /hyperparams/b: not given -> null"
    assert told(5).count("->") == 5
    assert told(7).count("->") == 5
    assert told(7).endswith("/hyperparams/e: not given -> null and 2 more")
