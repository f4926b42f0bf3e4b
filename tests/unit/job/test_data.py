"""The sections of data that a job has, those that its trainer brings, and what must hold between them and the rest."""

from pathlib import Path
from typing import Any

import pytest

from hostcore.errors import Errors
from hostcore.job.data import (
    NothingToEvaluate,
    attribute_to_trainer,
    chosen_split,
    needed,
    settled_split,
    with_sections,
)
from hostcore.job.load import load_job
from hostcore.job.rules import check_data
from hostcore.job.spec import JobSpec
from hostcore_hookspecs import HostcoreError

DATA = {"parquet_paths": "a.parquet", "batch_size": 8}


def job(**keys: Any) -> JobSpec:
    return load_job({"trainer": "x", **keys}, job_dir=Path("/jobs"))


def told(errors: Errors) -> list[tuple[str | None, str | None]]:
    return [(error.code, error.pointer) for error in errors.errors]


def test_the_trainer_is_asked_before_a_job_without_data_is_wrong() -> None:
    for keys in ({}, {"max_steps": 3, "epochs": 2}, {"max_steps": 3, "validate_every": "epoch"}):
        assert not job(**keys).has_data


@pytest.mark.parametrize(
    ("keys", "pointers"),
    [
        ({}, ["/max_steps"]),
        ({"epochs": 2}, ["/max_steps", "/epochs"]),
        ({"max_steps": 3, "epochs": 2}, ["/epochs"]),
        ({"dataset": DATA, "validate_every": 5}, ["/validate_every"]),
        ({"max_steps": 3, "validate_every": "epoch", "validation": DATA}, ["/validate_every"]),
        ({"max_steps": 3, "validate_every": "epoch"}, ["/validate_every", "/validate_every"]),
        ({"max_steps": 3, "global_batch_size": 3, "accumulate": 2}, ["/global_batch_size"]),
    ],
)
def test_what_needs_data_is_refused_if_the_trainer_brings_none(keys: dict[str, Any], pointers: list[str]) -> None:
    spec = job(**keys)
    with pytest.raises(Errors) as caught:
        check_data(spec)
    assert told(caught.value) == [("job.conflict", pointer) for pointer in pointers]


def test_a_section_of_the_job_wins_as_a_whole() -> None:
    brought = {"dataset": {**DATA, "shuffle": True}, "validation": DATA, "test": DATA}
    assert needed(job(dataset=DATA, test=DATA), brought) == {"validation": DATA}
    assert needed(job(mock_batches=[1]), brought) == {"validation": DATA, "test": DATA}
    assert needed(job(), None) == {}


def test_relative_paths_start_at_the_folder_of_the_job() -> None:
    spec = with_sections(job(), {"test": DATA})
    assert spec.test is not None
    assert spec.test.settings == {"parquet_paths": "/jobs/a.parquet"}
    again = with_sections(job(), {"test": spec.test.to_json()})
    assert again.test == spec.test


@pytest.mark.parametrize(
    ("section", "place"),
    [
        ([], ""),
        ({}, "/source"),
        ({"source": "x", "shape": (1, {2})}, "/shape/1"),
        ({"source": {"$secret": "env:X"}}, "/source"),
        ({**DATA, "batch_size": "8"}, "/batch_size"),
    ],
)
def test_what_is_wrong_inside_a_section_names_the_trainer_and_the_place(section: Any, place: str) -> None:
    with pytest.raises(Errors) as caught:
        with_sections(job(), {"dataset": section})
    attribute_to_trainer(caught.value, {"dataset": section}, trainer="the trainer x", provenance="x")
    own = HostcoreError("no", pointer="/validation/x")
    attribute_to_trainer(own, {"dataset": section}, trainer="the trainer x", provenance="x")
    assert (own.message, own.pointer, own.plugin) == ("no", "/validation/x", None)
    for error in caught.value.errors:
        at = f", at {place}" if place else ""
        assert error.message.startswith(f'in the "dataset" that the trainer x brings{at}: ')
        assert (error.pointer, error.plugin) == ("/trainer", "x")


@pytest.mark.parametrize(
    ("given", "asked", "settled", "chosen"),
    [
        (["test", "validation"], None, "test", "test"),
        (["validation"], None, None, "validation"),
        (["test", "validation"], "validation", "validation", "validation"),
        (["validation"], "test", None, None),
        ([], None, None, None),
    ],
)
def test_the_test_is_evaluated_or_else_the_validation(
    given: list[str], asked: str | None, settled: str | None, chosen: str | None
) -> None:
    spec = job(max_steps=1, **dict.fromkeys(given, DATA))
    assert settled_split(spec, asked) == settled
    if chosen is not None:
        assert chosen_split(spec, asked) == chosen
    else:
        with pytest.raises(NothingToEvaluate, match="the job has n"):
            chosen_split(spec, asked)
