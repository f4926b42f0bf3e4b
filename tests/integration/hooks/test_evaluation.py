"""Validation and test: exact means, and a training that does not notice them."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hostcore_hookspecs import HostcoreError

Play = Callable[..., Any]

BATCHES = {"parquet_paths": "numbers.parquet", "batch_size": 4}
WEIGHED = {"parquet_paths": "weighed.parquet", "batch_size": 2}


@pytest.fixture
def weighed(tmp_path: Path) -> Callable[[list[float], list[float]], None]:
    """``weighed(values, weights)``: write the data of ``exact:Weighing``."""

    def write(values: list[float], weights: list[float]) -> None:
        columns = {"y": pa.array(values, pa.float64()), "weight": pa.array(weights, pa.float64())}
        pq.write_table(pa.table(columns), tmp_path / WEIGHED["parquet_paths"])

    return write


def losses(played: Any) -> list[tuple[float | None, float | None]]:
    return [(one.payload.metrics["train/loss"], one.payload.metrics["noise"]) for one in played.of("metrics")]


def test_a_training_does_not_notice_its_validations(play: Play, exact: ModuleType) -> None:
    job = {"trainer": "exact:Noisy", "callbacks": [], "dataset": BATCHES, "epochs": 2}
    alone = play(**job, run_id="alone")
    validated = play(**job, run_id="validated", validation={**BATCHES, "batch_size": 5}, validate_every=1)
    assert len(losses(alone)) == 16
    assert losses(validated) == losses(alone)
    # Nor does a validation depend on how many there were before it: its generators are seeded anew for each step.
    rarely = play(**job, run_id="rarely", validation={**BATCHES, "batch_size": 5}, validate_every=8)
    found = {one.step: dict(one.payload.metrics) for one in validated.of("validation")}
    assert {one.step: dict(one.payload.metrics) for one in rarely.of("validation")} == {8: found[8], 16: found[16]}
    assert found[8]["val/noise"] != found[7]["val/noise"]


def test_models_in_the_state_are_in_evaluation_mode_and_then_as_they_were(play: Play, exact: ModuleType) -> None:
    play(trainer="exact:Noisy", callbacks=[], dataset=BATCHES, max_steps=2, validation=BATCHES, validate_every=1)
    as_configured = [True, True, True, False, True, True, True]  # one layer was in evaluation mode already
    expected = [("train", as_configured, True), *[("validate", [False] * 7, False)] * 8]
    assert exact.seen == expected * 2


@pytest.mark.parametrize(
    ("values", "weights", "loss", "first"),
    [
        ([1, 3, 5, 7, 30], [1, 1, 1, 1, 1], (2 * 2 + 6 * 2 + 30) / 5, (1 * 2 + 5 * 2 + 30) / 5),
        ([1, 3, 5, 7, 30], [0.5, 0.5, 0, 3, 0.25], (2 * 1 + 6 * 3 + 30 * 0.25) / 4.25, (1 + 5 * 3 + 30 * 0.25) / 4.25),
        ([1, 3, float("nan"), 7, 30], [1, 1, 0, 0, 2], (2 * 2 + 30 * 2) / 4, (1 * 2 + 30 * 2) / 4),
        ([1e16, 1e16, 1, 1, -1e16, -1e16], [1, 1, 1, 1, 1, 1], 2 / 6, 2 / 6),
    ],
    ids=[
        "a short last batch counts less",
        "given weights",
        "what weighs nothing does not count",
        "nothing is rounded away",
    ],
)
def test_means_are_weighted_and_exact(
    play: Play, exact: ModuleType, weighed: Any, values: list[float], weights: list[float], loss: float, first: float
) -> None:
    weighed(values, weights)
    data = {"dataset": WEIGHED, "validation": WEIGHED, "test": WEIGHED, "validate_every": 1}
    played = play(trainer="exact:Weighing", callbacks=[], max_steps=1, **data)
    (validation,), (test,) = played.of("validation"), played.of("test")
    assert validation.payload.metrics == {"val/loss": loss, "deep/first": first}
    assert test.payload.metrics == {"test/loss": loss, "deep/first": first}
    assert validation.payload.weight == test.payload.weight == sum(weights)


def test_rows_are_the_weight_of_a_result_without_one(play: Play, exact: ModuleType, weighed: Any) -> None:
    weighed([1, 3, 30], [9, 9, 1])
    data = {"dataset": WEIGHED, "validation": WEIGHED, "validate_every": 1}
    played = play(trainer="exact:Weighing", callbacks=[], max_steps=1, hyperparams={"plain": True}, **data)
    (validation,) = played.of("validation")
    assert (validation.payload.metrics["val/loss"], validation.payload.weight) == ((2 * 2 + 30) / 3, 3)


def test_metrics_of_validation_and_test_are_in_the_result_the_history_and_the_state(
    play: Play, exact: ModuleType, weighed: Any
) -> None:
    weighed([1, 3, 30], [1, 1, 1])
    data = {"dataset": WEIGHED, "validation": WEIGHED, "test": WEIGHED, "validate_every": 1}
    played = play(trainer="exact:Weighing", callbacks=["exact:Remember"], max_steps=2, **data)
    val = {"val/loss": 34 / 3, "deep/first": 32 / 3}
    both = {"train/loss": 0.0, **val}
    history = {name: [(1, value), (2, value)] for name, value in both.items()}
    assert exact.seen == [
        ("begin", {"train/loss": 0.0}),
        ("end", val, both, {name: points[:1] for name, points in history.items()}),
        ("begin", both),
        ("end", val, both, history),
    ]
    result = orjson.loads((played.path / "result.json").read_bytes())
    assert result["metrics"] == {**both, "test/loss": 34 / 3}


@pytest.mark.parametrize("split", ["validation", "test"])
def test_data_without_rows_is_refused(play: Play, exact: ModuleType, weighed: Any, split: str) -> None:
    weighed([], [])
    with pytest.raises(HostcoreError, match="has no rows") as caught:
        play(trainer="exact:Weighing", callbacks=[], dataset=BATCHES, **{split: WEIGHED})
    (error,) = caught.value.errors
    assert error.pointer == f"/{split}"


def test_a_metric_that_is_not_finite_is_named(play: Play, exact: ModuleType, weighed: Any) -> None:
    weighed([float("nan"), 3], [1, 1])
    data = {"dataset": WEIGHED, "validation": WEIGHED, "validate_every": 1}
    played = play(trainer="exact:Weighing", callbacks=[], max_steps=1, **data)
    (validation,) = played.of("validation")
    assert validation.payload.metrics == {"val/loss": None, "deep/first": None}
    assert sorted(validation.payload.nonfinite) == ["deep/first", "val/loss"]
