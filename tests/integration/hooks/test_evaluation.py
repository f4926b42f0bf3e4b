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
    in_check, validated = ([("validate", [False] * 7, False)] * count for count in (2, 8))
    step = [("train", as_configured, True), *validated]
    assert exact.seen == [*in_check, *step, *step]


@pytest.mark.parametrize(
    ("values", "weights", "loss", "first"),
    [
        ([1, 3, 30], None, (2 * 2 + 30) / 3, (1 * 2 + 30) / 3),
        ([float("nan"), 3], [1, 1], None, None),
        ([1, 3, 5, 7, 30], [1, 1, 1, 1, 1], (2 * 2 + 6 * 2 + 30) / 5, (1 * 2 + 5 * 2 + 30) / 5),
        ([1, 3, 5, 7, 30], [0.5, 0.5, 0, 3, 0.25], (2 * 1 + 6 * 3 + 30 * 0.25) / 4.25, (1 + 5 * 3 + 30 * 0.25) / 4.25),
        ([1, 3, float("nan"), 7, 30], [1, 1, 0, 0, 2], (2 * 2 + 30 * 2) / 4, (1 * 2 + 30 * 2) / 4),
        ([1e16, 1e16, 1, 1, -1e16, -1e16], [1, 1, 1, 1, 1, 1], 2 / 6, 2 / 6),
    ],
    ids=[
        "rows where no weight is given",
        "not finite",
        "a short last batch counts less",
        "given weights",
        "what weighs nothing does not count",
        "nothing is rounded away",
    ],
)
def test_means_are_weighted_and_exact(
    play: Play,
    exact: ModuleType,
    weighed: Any,
    values: list[float],
    weights: Any,
    loss: float | None,
    first: float | None,
) -> None:
    weighed(values, weights or [9] * len(values))
    data = {"dataset": WEIGHED, "validation": WEIGHED, "test": WEIGHED, "validate_every": 1}
    played = play(trainer="exact:Weighing", callbacks=[], max_steps=1, hyperparams={"plain": weights is None}, **data)
    (validation,), (test,) = played.of("validation"), played.of("test")
    assert validation.payload.metrics == {"val/loss": loss, "deep/first": first}
    assert sorted(validation.payload.nonfinite) == ([] if loss else ["deep/first", "val/loss"])
    assert test.payload.metrics == {"test/loss": loss, "deep/first": first}
    assert validation.payload.weight == test.payload.weight == (sum(weights) if weights else len(values))


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


RANGED = {"dataset": WEIGHED, "validation": WEIGHED, "test": WEIGHED, "validate_every": 1, "trainer": "exact:Ranging"}


class TestMetricsOfAWholeEvaluation:
    """What a trainer's ``evaluation_metrics`` returns."""

    def test_are_recorded_beside_the_means_wherever_these_are(
        self, play: Play, exact: ModuleType, weighed: Any
    ) -> None:
        weighed([1, 3, 30], [1, 1, 1])
        played = play(**RANGED, callbacks=["exact:Remember"], max_steps=2)
        val = {"val/loss": 34 / 3, "deep/first": 32 / 3, "val/range": 29.0, "deep/rows": 3.0, "val/gradients": 0.0}
        assert [one.payload.metrics for one in played.of("validation")] == [val, val]
        ends = [one[1:3] for one in exact.seen if one[0] == "end"]
        assert ends == [(val, {"train/loss": 0.0, **val})] * 2
        history = [one[3] for one in exact.seen if one[0] == "end"][-1]
        assert history["val/range"] == [(1, 29.0), (2, 29.0)]
        (test,) = played.of("test")
        assert {"test/range": 29.0, "deep/rows": 3.0}.items() <= test.payload.metrics.items()
        result = orjson.loads((played.path / "result.json").read_bytes())
        assert result["metrics"]["val/range"] == result["metrics"]["test/range"] == 29.0

    def test_choose_the_best_checkpoint_and_end_a_run_early(self, play: Play, exact: ModuleType, weighed: Any) -> None:
        weighed([1, 3, 30], [1, 1, 1])
        watched = {"monitor": "val/range", "mode": "max"}
        callbacks = [{"use": "best-checkpoint", **watched}, {"use": "early-stopping", "patience": 2, **watched}]
        played = play(**RANGED, callbacks=callbacks, hyperparams={"instead": "worse"}, max_steps=9)
        result = orjson.loads((played.path / "result.json").read_bytes())
        assert (result["status"], result["step"]) == ("succeeded", 3)
        assert (result["best"]["metric"], result["best"]["value"], result["best"]["step"]) == ("val/range", 9.0, 1)

    @pytest.mark.parametrize(
        ("wishes", "metrics", "nonfinite"),
        [
            ({"alone": True}, {"val/range": 2.0, "deep/rows": 2.0, "val/gradients": 0.0}, []),
            ({"instead": "none"}, {"val/loss": 2.0, "deep/first": 1.0}, []),
            (
                {"instead": "nan"},
                {"val/loss": 2.0, "deep/first": 1.0, "val/range": None, "deep/high": 3.0},
                ["val/range"],
            ),
        ],
        ids=["all that there is", "none", "not finite"],
    )
    def test_may_be_all_or_none_and_need_not_be_finite(
        self, play: Play, exact: ModuleType, weighed: Any, wishes: dict[str, Any], metrics: Any, nonfinite: list[str]
    ) -> None:
        weighed([1, 3], [1, 1])
        played = play(**RANGED, callbacks=[], hyperparams=wishes, max_steps=1)
        (found,) = [one.payload for one in played.of("validation")]
        assert (found.metrics, list(found.nonfinite), found.weight) == (metrics, nonfinite, 2)

    @pytest.mark.parametrize(
        ("instead", "message"),
        [
            ("taken", "validate_step and evaluation_metrics both report 'val/loss', 'deep/first' at step 0"),
            ("text", "evaluation_metrics, after validate_step, at step 0, returned str"),
            (
                "list",
                "the metric 'range' of evaluation_metrics, after validate_step, at step 0, is not a number: expected a"
                " number, got [1.0, 3.0] of class list",
            ),
        ],
    )
    def test_that_are_no_metrics_of_their_own_fail_the_run(
        self, play: Play, exact: ModuleType, weighed: Any, instead: str, message: str
    ) -> None:
        weighed([1, 3], [1, 1])
        played = play(**RANGED, callbacks=[], hyperparams={"instead": instead}, max_steps=1)
        error = played.result.error
        assert (played.result.status, error.type, error.message) == ("failed", "InvalidStepResult", message)
        assert error.hint
        assert not error.traceback
        assert played.of("validation") == []

    def test_that_cannot_be_computed_fail_the_run_as_a_step_does(
        self, play: Play, exact: ModuleType, weighed: Any
    ) -> None:
        weighed([1, 3], [1, 1])
        played = play(**RANGED, callbacks=[], hyperparams={"instead": "raise"}, max_steps=1)
        error = played.result.error
        assert (error.type, error.message, error.plugin) == ("ValueError", "the range is odd", "exact:Ranging")
        assert "in evaluation_metrics" in error.traceback
