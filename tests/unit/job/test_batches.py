"""Batches, ranks and micro-batches make up the global batch."""

from typing import Any

import pytest

from hostcore.errors import Errors
from hostcore.job.load import load_job
from hostcore.job.spec import JobSpec

DATA = {"parquet_paths": "a.parquet", "batch_size": 8}


def job(*, world_size: int | None = None, **keys: Any) -> JobSpec:
    return load_job({"trainer": "x", "dataset": DATA, **keys}, world_size=world_size)


def refused(**keys: Any) -> tuple[str, str]:
    with pytest.raises(Errors) as caught:
        job(**keys)
    (error,) = caught.value.errors
    assert error.code == "job.conflict"
    return error.pointer, f"{error.message} ({error.hint})"


@pytest.mark.parametrize(
    ("keys", "ranks", "micro_batches", "rows"),
    [
        ({}, 1, 1, 8),
        ({"accumulate": 3}, 1, 3, 24),
        ({"devices": ["cpu", "cpu"], "accumulate": 3}, 2, 3, 48),
        ({"global_batch_size": 8}, 1, 1, 8),
        ({"global_batch_size": 32}, 1, 4, 32),
        ({"global_batch_size": 32, "devices": ["cpu", "cpu"]}, 2, 2, 32),
        ({"global_batch_size": 32, "accumulate": 4}, 1, 4, 32),
        ({"global_batch_size": 32, "world_size": 4}, 4, 1, 32),
        ({"global_batch_size": 32, "accumulate": 2, "world_size": 2}, 2, 2, 32),
    ],
)
def test_micro_batches_are_given_or_derived(keys: dict[str, Any], ranks: int, micro_batches: int, rows: int) -> None:
    spec = job(**keys)
    assert (spec.ranks, spec.micro_batches, spec.rows_per_step) == (ranks, micro_batches, rows)


def test_a_global_batch_that_does_not_fit_is_refused_with_those_that_do() -> None:
    pointer, told = refused(global_batch_size=20, devices=["cpu", "cpu"])
    assert pointer == "/global_batch_size"
    assert told == "batches of 8 on 2 ranks cannot make up a global batch of 20 rows (16 or 32 would do)"
    assert refused(global_batch_size=4)[1].endswith("(8 would do)")
    _, told = refused(global_batch_size=32, accumulate=2)
    assert told.startswith('"global_batch_size" is 32, but batches of 8 on 1 rank, 2 a step, are 16 rows')


@pytest.mark.parametrize("split", ["validation", "test"])
def test_shuffling_what_is_only_measured_is_refused(split: str) -> None:
    assert refused(**{split: {**DATA, "shuffle": True}})[0] == f"/{split}/shuffle"
