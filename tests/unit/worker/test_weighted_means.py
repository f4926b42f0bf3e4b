"""Means over batches and ranks."""

import math
import random

import pytest

from hostcore.worker.metrics import InvalidStepResult, WeightedMeans, evaluation_name, mean_over_ranks, read_weight
from hostcore_hookspecs import StepResult


def means_of(*ranks: list[tuple[dict[str, float], float]]) -> tuple[dict[str, float], list[str]]:
    """Of each rank, the metrics and weights of its batches."""
    totals = []
    for batches in ranks:
        means = WeightedMeans()
        for metrics, weight in batches:
            means.add(metrics, weight)
        totals.append(means.totals())
    return mean_over_ranks(totals)


def test_they_are_weighted() -> None:
    assert means_of([({"a": 1.0}, 3), ({"a": 5.0}, 1)]) == ({"a": 2.0}, [])


def test_no_distribution_over_ranks_changes_them() -> None:
    rng = random.Random(3)
    batches = [({"a": rng.uniform(-1e6, 1e6)}, rng.randint(1, 9)) for _ in range(60)]
    (alone, _), (three, _) = means_of(batches), means_of(batches[:7], batches[7:40], batches[40:])
    assert three["a"] == pytest.approx(alone["a"], rel=1e-15)
    exact = math.fsum(metrics["a"] * weight for metrics, weight in batches) / sum(weight for _, weight in batches)
    assert alone["a"] == exact


def test_a_batch_of_weight_0_has_no_say_even_if_it_is_nan() -> None:
    assert means_of([({"a": math.nan}, 0), ({"a": 2.0}, 2)]) == ({"a": 2.0}, [])


def test_a_metric_is_averaged_over_the_batches_that_have_it() -> None:
    assert means_of([({"a": 1.0, "b": 8.0}, 1), ({"a": 3.0}, 1)]) == ({"a": 2.0, "b": 8.0}, [])


def test_what_a_rank_lacks_is_told() -> None:
    assert means_of([({"a": 1.0}, 1)], [({"a": 3.0, "b": 4.0}, 1)]) == ({"a": 2.0, "b": 4.0}, ["b"])


def test_a_rank_that_had_nothing_to_count_lacks_nothing() -> None:
    assert means_of([({"a": 1.0}, 1)], []) == ({"a": 1.0}, [])


def test_without_any_weight_a_mean_is_nan() -> None:
    means, missing = means_of([({"a": 1.0}, 0)])
    assert math.isnan(means["a"])
    assert missing == []


@pytest.mark.parametrize(("values", "mean"), [([math.inf, 1.0], math.inf), ([math.nan, 1.0], math.nan)])
def test_what_is_not_finite_stays_so(values: list[float], mean: float) -> None:
    (means, _) = means_of([({"a": value}, 1) for value in values])
    assert means["a"] == pytest.approx(mean, nan_ok=True)


def test_infinities_of_both_signs_have_no_mean() -> None:
    (means, _) = means_of([({"a": math.inf}, 1), ({"a": -math.inf}, 1)])
    assert math.isnan(means["a"])


@pytest.mark.parametrize("weight", [-1, math.nan, math.inf, "many"])
def test_a_weight_that_is_none_is_refused(weight: object) -> None:
    with pytest.raises(InvalidStepResult, match="the weight of validate_step"):
        read_weight(StepResult(weight=weight), "validate_step", rows=3)


def test_rows_stand_for_a_weight() -> None:
    assert read_weight(StepResult(), "validate_step", rows=3) == 3.0


@pytest.mark.parametrize(
    ("name", "recorded"), [("loss", "val/loss"), ("val/loss", "val/loss"), ("top5/acc", "top5/acc")]
)
def test_names_without_a_slash_gain_the_split(name: str, recorded: str) -> None:
    assert evaluation_name("val")(name) == recorded
