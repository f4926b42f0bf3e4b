"""Means over batches and ranks."""

import math
import random

import pytest

from hostcore.worker.metrics import InvalidStepResult, WeightedMeans, mean_over_ranks, read_weight
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


@pytest.mark.parametrize(
    ("ranks", "means", "lacking"),
    [
        pytest.param([[({"a": 1.0}, 3), ({"a": 5.0}, 1)]], {"a": 2.0}, [], id="weighted"),
        pytest.param([[({"a": math.nan}, 0), ({"a": 2.0}, 2)]], {"a": 2.0}, [], id="a NaN of weight 0 has no say"),
        pytest.param([[({"a": 1.0, "b": 8.0}, 1), ({"a": 3.0}, 1)]], {"a": 2.0, "b": 8.0}, [], id="of the rest"),
        pytest.param([[({"a": 1.0}, 1)], [({"a": 3.0, "b": 4.0}, 1)]], {"a": 2.0, "b": 4.0}, ["b"], id="one lacks it"),
        pytest.param([[({"a": 1.0}, 1)], []], {"a": 1.0}, [], id="a rank has nothing to count"),
        pytest.param([[({"a": math.inf}, 1), ({"a": 1.0}, 1)]], {"a": math.inf}, [], id="an infinity stays"),
        pytest.param([[({"a": 1.0}, 0)]], {"a": math.nan}, [], id="no weight at all"),
        pytest.param([[({"a": math.nan}, 1), ({"a": 1.0}, 1)]], {"a": math.nan}, [], id="NaN stays"),
        pytest.param([[({"a": math.inf}, 1), ({"a": -math.inf}, 1)]], {"a": math.nan}, [], id="both infinities"),
    ],
)
def test_means_are_those_of_the_batches_by_their_weights(ranks: list, means: dict, lacking: list[str]) -> None:
    found, told = means_of(*ranks)
    assert found == pytest.approx(means, nan_ok=True)
    assert told == lacking


def test_no_distribution_over_ranks_changes_them() -> None:
    rng = random.Random(3)
    batches = [({"a": rng.uniform(-1e6, 1e6)}, rng.randint(1, 9)) for _ in range(60)]
    (alone, _), (three, _) = means_of(batches), means_of(batches[:7], batches[7:40], batches[40:])
    assert three["a"] == pytest.approx(alone["a"], rel=1e-15)
    exact = math.fsum(metrics["a"] * weight for metrics, weight in batches) / sum(weight for _, weight in batches)
    assert alone["a"] == exact


@pytest.mark.parametrize("weight", [-1, math.nan, math.inf, "many"])
def test_a_weight_that_is_none_is_refused(weight: object) -> None:
    with pytest.raises(InvalidStepResult, match="the weight of validate_step"):
        read_weight(StepResult(weight=weight), "validate_step", rows=3)
