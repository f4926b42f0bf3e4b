"""Rows that are read: no null among numbers."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from hostcore.worker.feed.blocks import cut
from hostcore.worker.feed.order import in_file_order
from hostcore.worker.feed.reading import range_reader
from hostcore_hookspecs import InvalidData
from hostcore_hookspecs.context import RowSlice


def read(dataset: Any, columns: Sequence[str] | None = None) -> pa.RecordBatch:
    """All rows of the only shard."""
    (rows,) = range_reader(dataset, dataset.shards(), columns)(in_file_order([dataset.batches[0].num_rows], 0))
    return rows.batch


def column(values: pa.Array, **others: Any) -> pa.RecordBatch:
    return pa.record_batch({"y": values, **others})


@pytest.mark.parametrize(
    ("values", "name"),
    [
        *((pa.array([1, None, 0], pa.int64()).cast(kind), "y") for kind in (pa.int64(), pa.float32(), pa.bool_())),
        (pa.array([[1, 2], [3, None]]), "y"),
        (pa.array([{"a": 1, "b": "x"}, {"a": None, "b": None}]), "y.a"),
        (pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)), "y"),
        (pa.array([{"a": [1]}, {"a": [None]}]), "y.a"),
    ],
    ids=lambda one: str(getattr(one, "type", one)),
)
def test_a_null_among_numbers_is_an_error_that_names_column_and_shard(
    memory: Callable, values: pa.Array, name: str
) -> None:
    with pytest.raises(InvalidData, match=rf"column '{name}' has 1 nulls in memory#0") as caught:
        read(memory(batches=[column(values)]))
    assert caught.value.pointer == "/dataset"
    assert "allow_nulls" in caught.value.hint


def test_other_values_may_be_missing_and_numbers_where_the_source_allows_it_or_they_are_not_read(
    memory: Callable,
) -> None:
    for values in (pa.array([[1], None]), pa.array(["a", None])):
        assert read(memory(batches=[column(values)]))["y"].to_pylist() == values.to_pylist()
    numbers = column(pa.array([1, None]), x=[1, 2])
    assert read(memory(batches=[numbers], allow_nulls=True)).equals(numbers)
    assert read(memory(batches=[numbers]), ["x"]).schema.names == ["x"]


def test_rows_come_with_the_memory_they_take(memory: Callable) -> None:
    for values in (pa.array(["a", "bc" * 500, None]), pa.array([[1], [2, 3], []]), pa.nulls(3)):
        batch = column(values, n=[1, 2, 3])
        dataset = memory(batches=[batch])
        (rows,) = range_reader(dataset, dataset.shards(), None)(in_file_order([3], 0))
        assert rows.nbytes == pytest.approx(batch.nbytes, abs=1)


def test_of_a_batch_that_is_cut_from_a_block_it_is_known_where_it_lies() -> None:
    blocks = [pa.record_batch({"x": range(first, end)}) for first, end in [(0, 7), (7, 9), (9, 20)]]
    place, known = RowSlice(), []
    for batch in cut(blocks, 3, row_slice=place):
        if place.batch is batch:
            assert place.rows is not None
            assert place.rows.slice(place.start, 3).equals(batch)
        known.append(place.batch is batch)
    assert known == [True, True, False, True, True, True], "the third has rows of all three blocks"
    assert (place.batch, place.rows, place.made) == (None, None, {}), "nothing is held"
