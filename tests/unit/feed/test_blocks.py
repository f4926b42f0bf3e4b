"""Reading rows in order, and cutting them into batches."""

import weakref
from collections.abc import Callable

import pyarrow as pa
import pytest

from hostcore.worker.feed.blocks import cut
from hostcore.worker.feed.order import RowRange, in_file_order
from hostcore.worker.feed.reading import ReadingStopped, range_reader
from hostcore_hookspecs import InvalidData


def block(start: int, rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(range(start, start + rows), pa.int64())], names=["n"])


def address(batch: pa.RecordBatch) -> int:
    """Where the first value of the first column lies in memory."""
    column = batch.column(0)
    return column.buffers()[1].address + column.offset * 8


class TestCut:
    @pytest.mark.parametrize("blocks", [[10], [1] * 10, [3, 7], [4, 4, 2], [0, 5, 0, 0, 5], [9, 1], [2, 1, 6, 1]])
    @pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 10, 11])
    def test_batches_of_one_size_hold_the_rows_in_order(self, blocks: list[int], size: int) -> None:
        starts = [sum(blocks[:i]) for i in range(len(blocks))]
        batches = list(cut((block(start, rows) for start, rows in zip(starts, blocks, strict=True)), size))
        assert [batch.num_rows for batch in batches] == [size] * (10 // size)
        assert [n for batch in batches for n in batch["n"].to_pylist()] == list(range(10 // size * size))

    def test_a_batch_within_a_block_is_the_blocks_own_memory(self) -> None:
        whole = block(0, 12)
        assert [address(batch) - address(whole) for batch in cut([whole], 4)] == [0, 32, 64]

    def test_blocks_are_taken_one_at_a_time(self) -> None:
        taken = []

        def blocks():
            for start in (0, 4, 8):
                taken.append(start)
                yield block(start, 4)

        batches = cut(blocks(), 4)
        next(batches)
        assert taken == [0]

    def test_a_block_is_let_go_of_before_the_next_one_is_asked_for(self) -> None:
        held: list[weakref.ref] = []

        def blocks():
            for start in (0, 4, 8):
                assert not any(reference() for reference in held)
                fresh = block(start, 4)
                held.append(weakref.ref(fresh))
                yield fresh
                del fresh

        assert sum(batch.num_rows for batch in cut(blocks(), 2)) == 12


class TestReading:
    def test_a_shard_is_not_read_beyond_its_range(self, memory: Callable) -> None:
        dataset = memory([1000], piece=1)
        parts = range_reader(dataset, dataset.shards(), None)([RowRange(shard=0, start=0, rows=2)])
        assert sum(rows.batch.num_rows for rows in parts) == 2

    def test_nothing_more_is_read_once_it_is_unwanted(self, memory: Callable) -> None:
        dataset, unwanted = memory([4, 4], piece=1), []
        parts = range_reader(dataset, dataset.shards(), None, lambda: bool(unwanted))(in_file_order([4, 4], 0))
        next(parts)
        unwanted.append(True)
        with pytest.raises(ReadingStopped):
            next(parts)
        assert dataset.reads == [("memory#0", 0)]

    @pytest.mark.parametrize(
        "column",
        [
            pa.array([1.5, 2.5, 3.5], pa.float32()),
            pa.array([True, False, True]),
            pa.array(["a", "bc" * 500, None]),
            pa.array([[1], [2, 3], []], pa.list_(pa.int64())),
            pa.array(["x", "y", "x"]).dictionary_encode(),
            pa.nulls(3),
        ],
        ids=lambda column: str(column.type)[:10],
    )
    def test_rows_come_with_the_memory_they_take(self, memory: Callable, column: pa.Array) -> None:
        batch = pa.RecordBatch.from_arrays([column, pa.array([1, 2, 3])], names=["x", "n"])
        dataset = memory(batches=[batch])
        (rows,) = range_reader(dataset, dataset.shards(), None)(in_file_order([3], 0))
        assert rows.nbytes == pytest.approx(batch.nbytes, abs=1)

    @pytest.mark.parametrize("kind", [pa.int64(), pa.float32(), pa.bool_()], ids=str)
    def test_a_null_in_a_numeric_column_is_an_error_that_names_column_and_shard(
        self, memory: Callable, kind: pa.DataType
    ) -> None:
        values = pa.array([1, None, 0], pa.int64()).cast(kind)
        dataset = memory(batches=[pa.RecordBatch.from_arrays([pa.array(["a", "b", "c"]), values], names=["text", "y"])])
        read = range_reader(dataset, dataset.shards(), None)
        with pytest.raises(InvalidData, match=r"column 'y' has 1 nulls in memory#0") as caught:
            list(read(in_file_order([3], 0)))
        assert caught.value.pointer == "/dataset"
        assert "allow_nulls" in caught.value.hint

    @pytest.mark.parametrize(
        ("column", "name"),
        [
            (pa.array([[1, 2], [3, None]]), "y"),
            (pa.array([{"a": 1, "b": "x"}, {"a": None, "b": None}]), "y.a"),
            (pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)), "y"),
            (pa.array([{"a": [1]}, {"a": [None]}]), "y.a"),
        ],
        ids=["list", "struct", "fixed-size list", "list in a struct"],
    )
    def test_a_null_among_numbers_inside_a_column_is_an_error_too(
        self, memory: Callable, column: pa.Array, name: str
    ) -> None:
        dataset = memory(batches=[pa.RecordBatch.from_arrays([column], names=["y"])])
        with pytest.raises(InvalidData, match=f"column '{name}' has 1 nulls"):
            list(range_reader(dataset, dataset.shards(), None)([RowRange(shard=0, start=0, rows=2)]))

    @pytest.mark.parametrize("column", [pa.array([[1], None]), pa.array(["a", None])], ids=["lists", "texts"])
    def test_other_values_may_be_missing(self, memory: Callable, column: pa.Array) -> None:
        dataset = memory(batches=[pa.RecordBatch.from_arrays([column], names=["y"])])
        (rows,) = range_reader(dataset, dataset.shards(), None)(in_file_order([2], 0))
        assert rows.batch["y"].to_pylist() == column.to_pylist()

    def test_a_source_that_allows_nulls_gets_them_through(self, memory: Callable) -> None:
        dataset = memory(batches=[pa.RecordBatch.from_arrays([pa.array([1, None])], names=["y"])], allow_nulls=True)
        (rows,) = range_reader(dataset, dataset.shards(), None)(in_file_order([2], 0))
        assert rows.batch["y"].to_pylist() == [1, None]

    def test_a_column_that_is_not_read_may_have_nulls(self, memory: Callable) -> None:
        columns = [pa.array([1, 2]), pa.array([1, None])]
        dataset = memory(batches=[pa.RecordBatch.from_arrays(columns, names=["x", "y"])])
        (rows,) = range_reader(dataset, dataset.shards(), ["x"])(in_file_order([2], 0))
        assert rows.batch.schema.names == ["x"]
