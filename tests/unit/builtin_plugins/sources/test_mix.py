"""The source ``mix``: what it makes of the parts that the host has opened, and what it refuses."""

from typing import Any

import pyarrow as pa
import pytest
from opened_data import opened

from hostcore_builtin_plugins.sources.mix import MixedDataset, MixSource, StageWeights
from hostcore_builtin_plugins.sources.mock import MockSource
from hostcore_hookspecs import DataContext, DatasetPart, HostcoreError, MixtureStage


def part(name: str, weight: float = 1.0, **settings: Any) -> DatasetPart:
    return DatasetPart(name=name, weight=weight, dataset=opened(MockSource, **{"num_rows": 20, **settings}))


def mixed(*parts: DatasetPart, split: str = "train", **settings: Any) -> MixedDataset:
    source = MixSource(settings=MixSource.Settings(**settings))
    return source.open_dataset({}, DataContext(parts=parts, split=split))


def stage(until: int, *weights: float) -> StageWeights:
    return StageWeights(until=until, weights=weights)


def test_the_shards_of_the_parts_follow_each_other_under_names_of_their_own() -> None:
    parts = part("a", 3, num_shards=2), part("b", seed=1, num_shards=3)
    found = mixed(*parts, stages=(stage(5, 0, 1),), exhausted="drop")
    assert [shard.id for shard in found.shards()] == ["mock#0", "mock#1", "b: mock#0", "b: mock#1", "mock#2"]
    assert (found.mixture.names, found.mixture.shards, found.mixture.weights) == (("a", "b"), (2, 3), (3, 1))
    assert (found.mixture.stages, found.mixture.exhausted) == ((MixtureStage(until=5, weights=(0, 1)),), "drop")
    own = [shard for one in parts for shard in one.dataset.shards()]
    of = [one for one in parts for _ in one.dataset.shards()]
    for shard, original, where in zip(found.shards(), own, of, strict=True):
        rows = pa.Table.from_batches(found.read_shard(shard, ["y"], 2))
        assert rows == pa.Table.from_batches(where.dataset.read_shard(original, ["y"], 2))


def test_columns_come_in_the_order_of_the_first_part() -> None:
    found = mixed(part("a"), part("b", seed=1, types={"y": "float32", "x": "float32"}))
    assert found.schema.names == ["x", "y"]
    (batch,) = found.read_shard(found.shards()[-1], None, 0)
    assert batch.schema == found.schema
    assert batch["x"] == next(iter(part("b", seed=1).dataset.read_shard(part("b").dataset.shards()[-1], ["x"], 0)))["x"]


TWO = part("a"), part("b")
BOTH = (stage(3, 1, 1), stage(3, 1, 1))


@pytest.mark.parametrize(
    ("parts", "settings", "pointer", "message"),
    [
        ((), {}, "/of", "has no data of its own"),
        ((part("a"), part("b", 1e-9)), {}, "/of/1/weight", "is less than a row of 65,536 for 'b'"),
        (TWO, {"stages": (stage(3, 1, 1e-9),)}, "/stages/0/weights/1", "is less than a row of 65,536 for 'b'"),
        (TWO, {"stages": (stage(3, 0, 0),)}, "/stages/0/weights", "draws from one part at least"),
        (TWO, {"stages": (stage(3, 1),)}, "/stages/0/weights", "has 1 weights for 2 parts"),
        (TWO, {"stages": BOTH}, "/stages/1/until", "ends at step 3, and the one before it at 3"),
        (TWO, {"stages": (stage(3, 1, 1),), "exhausted": "stop"}, "/exhausted", "do not go together"),
        (TWO, {"exhausted": "drop", "split": "validation"}, "/exhausted", "is read once"),
        ((part("a"), part("b", 2)), {"split": "test"}, "/of", "the test data is read once"),
        ((part("a"), part("b", types={"x": "float32"})), {}, "/dataset/of/1", "'y' is in 'a' and not in 'b'"),
        ((part("a", types={"x": "float32"}), part("b")), {}, "/dataset/of/1", "'y' is in 'b' and not in 'a'"),
        (
            (part("a"), part("b", types={"x": "float32", "y": "int64"})),
            {},
            "/dataset/of/1",
            "'y' is float in 'a' and int64 in 'b'",
        ),
    ],
)
def test_a_mistake_is_one_error_with_a_way_out(parts: Any, settings: Any, pointer: str, message: str) -> None:
    with pytest.raises(HostcoreError, match=message) as error:
        mixed(*parts, **settings)
    assert (error.value.pointer, bool(error.value.hint)) == (pointer, True)
