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
    with_brought,
    with_sections,
)
from hostcore.job.load import load_job
from hostcore.job.rules import check_data
from hostcore.job.sections import DatasetSpec
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


@pytest.mark.parametrize("keys", [{}, {"epochs": 2}, {"validate_every": "epoch"}, {"global_batch_size": 16}])
def test_what_needs_data_is_met_by_what_the_trainer_brings(keys: dict[str, Any]) -> None:
    spec = with_sections(job(**keys), {"dataset": DATA, "validation": DATA})
    check_data(spec)
    assert spec.dataset is not None
    assert spec.batch_size == 8


def test_a_global_batch_is_checked_with_the_batches_that_the_trainer_brings() -> None:
    spec = with_sections(job(global_batch_size=20), {"dataset": DATA})
    with pytest.raises(Errors, match="batches of 8 on 1 rank cannot make up a global batch of 20 rows"):
        check_data(spec)
    with pytest.raises(Errors, match="batches of 8 on 1 rank cannot make up a global batch of 20 rows"):
        with_brought(job(global_batch_size=20), [{"dataset": DATA}])


def test_a_section_of_the_job_wins_as_a_whole() -> None:
    brought = {"dataset": {**DATA, "shuffle": True}, "validation": DATA, "test": DATA}
    assert needed(job(dataset=DATA, test=DATA), brought) == {"validation": DATA}
    assert needed(job(mock_batches=[1]), brought) == {"validation": DATA, "test": DATA}
    assert needed(job(), None) == {}


@pytest.mark.parametrize(
    "sections", [[1], "dataset", {"datset": DATA}, {"dataset": DATA, "mock_batches": [1]}, {3: {}}]
)
def test_what_is_no_mapping_of_sections_is_refused(sections: Any) -> None:
    with pytest.raises(HostcoreError, match="data_sections returned") as caught:
        needed(job(), sections)
    assert caught.value.code == "trainer.data_sections"


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
        ({"source": "x", "batch_size": 0}, "/batch_size"),
        ({"source": "x", "shape": (1, {2})}, "/shape/1"),
        ({"source": {"$secret": "env:X"}}, "/source"),
    ],
)
def test_what_is_wrong_inside_a_section_names_the_trainer_and_the_place(section: Any, place: str) -> None:
    with pytest.raises(Errors) as caught:
        with_sections(job(), {"dataset": section})
    attribute_to_trainer(caught.value, {"dataset": section}, trainer="the trainer x", provenance="x")
    for error in caught.value.errors:
        at = f", at {place}" if place else ""
        assert error.message.startswith(f'in the "dataset" that the trainer x brings{at}: ')
        assert (error.pointer, error.plugin) == ("/trainer", "x")


def test_brought_sections_follow_the_rules_between_keys() -> None:
    with pytest.raises(Errors) as caught:
        with_sections(job(), {"validation": {**DATA, "shuffle": True}})
    assert told(caught.value) == [("job.conflict", "/validation/shuffle")]


def test_errors_about_the_jobs_own_keys_stay_as_they_are() -> None:
    error = HostcoreError("no", pointer="/dataset/x")
    attribute_to_trainer(error, {"validation": {}}, trainer="the trainer x", provenance="x")
    assert (error.message, error.pointer, error.plugin) == ("no", "/dataset/x", None)


def test_all_ranks_have_the_same_data() -> None:
    assert with_brought(job(run_id="a"), [{}, {}]) == job(run_id="a")
    with pytest.raises(Errors, match="one thing on rank 0, and another on rank 2") as caught:
        with_brought(job(), [{"dataset": DATA}, {"dataset": DATA}, {"dataset": {**DATA, "batch_size": 4}}])
    assert told(caught.value) == [("trainer.data_sections", "/trainer")]


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


def test_a_section_is_what_a_job_would_have() -> None:
    spec = with_sections(job(), {"dataset": DATA})
    assert spec.dataset == DatasetSpec(
        source=spec.dataset.source, settings={"parquet_paths": "/jobs/a.parquet"}, batch_size=8
    )  # type: ignore[union-attr]
