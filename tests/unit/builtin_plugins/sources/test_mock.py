from typing import Any

import pyarrow as pa
import pytest
from opened_data import opened, refused, table

from hostcore_builtin_plugins.sources.mock import MockDataset, MockSource
from hostcore_hookspecs import InvalidSettings

TYPES: dict[str, Any] = {"f": "float32", "i": "int64", "s": "string"}


def open_mock(*columns: str, **settings: Any) -> MockDataset:
    return opened(MockSource, columns=columns, **settings)


def test_without_settings_there_are_1024_rows_of_two_columns() -> None:
    dataset = open_mock()
    assert dataset.schema == pa.schema({"x": pa.float32(), "y": pa.float32()})
    assert [shard.num_rows for shard in dataset.shards()] == [128] * 8


def test_a_value_depends_on_seed_column_and_row_alone() -> None:
    one, many = open_mock(num_rows=100, num_shards=1, types=TYPES), open_mock(num_rows=100, num_shards=7, types=TYPES)
    assert table(one).equals(table(many))
    assert table(open_mock("s", "f", num_rows=100, types=TYPES)).equals(table(one).select(["s", "f"]))
    shard = many.shards()[3]
    (rest,) = many.read_shard(shard, None, 5)
    (whole,) = many.read_shard(shard, None, 0)
    assert rest.equals(whole.slice(5))


def test_values_depend_on_the_seed_and_do_not_change_between_versions() -> None:
    first = table(open_mock(num_rows=3, num_shards=1, types=TYPES)).to_pydict()
    assert first["i"] == [444, 11, 735]
    assert first["s"][0].startswith("s-")
    assert all(0 <= value < 1 for value in first["f"])
    assert not table(open_mock(seed=1)).equals(table(open_mock(seed=2)))


def test_more_shards_than_rows_leave_none_empty() -> None:
    assert [shard.num_rows for shard in open_mock(num_rows=3, num_shards=8).shards()] == [1, 1, 1]


def test_large_shards_come_in_several_batches() -> None:
    dataset = open_mock(num_rows=150_000, num_shards=1)
    batches = list(dataset.read_shard(dataset.shards()[0], ["y"], 10))
    assert sum(batch.num_rows for batch in batches) == 149_990
    assert len(batches) == 3


def test_a_missing_column_and_no_columns_at_all_are_refused() -> None:
    assert refused(lambda: open_mock("z"), "the data has no column 'z'").pointer == "/dataset/columns/0"
    with pytest.raises(InvalidSettings, match="names no column"):
        open_mock(types={})
