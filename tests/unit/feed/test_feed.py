"""The feed of a run: batches in order, from any position, epoch after epoch."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from hostcore.job.sections import DatasetSpec
from hostcore.worker.feed.feed import Cursor, DataChanged, DatasetFeed, MockFeed, check_identity, dataset_feed
from hostcore_builtin_plugins.sources.csv_source import CsvSource
from hostcore_builtin_plugins.sources.parquet import ParquetSource
from hostcore_hookspecs import DataContext, InvalidData

#: The first eight rows of the first two epochs, see ``test_the_first_rows_of_parquet_are_pinned``.
GOLDEN = [[862, 133, 256, 583, 830, 163, 231, 672], [307, 659, 540, 779, 570, 864, 497, 697]]


def spec(**keys: object) -> DatasetSpec:
    return DatasetSpec(source="mock", **{"readahead": 0, **keys})


def feed_of(dataset: object, *, seed: int = 5, **keys: object) -> DatasetFeed:
    return dataset_feed(dataset, spec(**keys), seed=seed, pointer="/dataset")


def rows(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [n for batch in batches for n in batch["n"].to_pylist()]


class TestInOrder:
    def test_batches_are_the_rows_of_the_files(self, parquet: Callable) -> None:
        feed = feed_of(parquet(rows=100, group=16, files=3), batch_size=8)
        batches = list(feed.stream(Cursor()))
        assert [batch.num_rows for batch in batches] == [8] * 12
        assert rows(batches) == list(range(96))

    @pytest.mark.parametrize("position", range(0, 101, 10))
    def test_from_a_position_on_it_is_the_tail_of_the_whole(self, parquet: Callable, position: int) -> None:
        feed = feed_of(parquet(rows=100, group=16, files=3), batch_size=10)
        assert rows(feed.stream(Cursor(rows=position))) == list(range(position, 100))

    def test_columns_come_as_the_job_lists_them(self, parquet: Callable) -> None:
        feed = feed_of(parquet(rows=10, group=4, columns=["text", "n"]), batch_size=5, columns=("text", "n"))
        assert next(iter(feed.stream(Cursor()))).schema.names == ["text", "n"]


class TestShuffled:
    def test_the_first_rows_of_parquet_are_pinned(self, parquet: Callable) -> None:
        feed = feed_of(parquet(rows=960, group=40, files=3), seed=5, batch_size=32, shuffle=True)
        first = [rows([next(iter(feed.stream(Cursor(epoch=epoch))))])[:8] for epoch in (0, 1)]
        assert first == GOLDEN
        drawn = rows(feed.stream(Cursor()))
        assert feed.lanes == 4  # of 24 row groups
        assert sorted(drawn) == list(range(960))
        assert len({row // 40 for row in drawn[:32]}) >= 4

    def test_the_order_does_not_follow_from_the_batch_size_nor_from_the_pieces_that_a_source_reads(
        self, memory: Callable
    ) -> None:
        ways = [(8, 3), (8, 1000), (4, 3), (16, 3)]
        feeds = [feed_of(memory([20] * 8, piece=piece), batch_size=size, shuffle=True) for size, piece in ways]
        first, *others = [rows(feed.stream(Cursor())) for feed in feeds]
        assert all(other == first for other in others)
        again = rows(feeds[0].stream(Cursor(epoch=1)))
        assert again != first
        assert sorted(again) == sorted(first)

    def test_seeking_reads_no_shard_that_lies_before(self, memory: Callable) -> None:
        dataset = memory([100] * 16)
        feed = feed_of(dataset, batch_size=10, shuffle=True, shuffle_window=40)
        dataset.reads.clear()
        list(feed.stream(Cursor(rows=1560)))
        assert len(dataset.reads) == feed.lanes

    def test_a_window_takes_no_more_than_window_bytes(self, memory: Callable) -> None:
        feed = feed_of(memory([1000] * 8), batch_size=10, shuffle=True, window_bytes=800)
        assert feed.window == 100  # rows of 8 bytes

    def test_rows_too_large_for_so_many_lanes_are_an_error_that_names_the_setting(self, memory: Callable) -> None:
        with pytest.raises(InvalidData, match="24 rows of a shuffle window take 192 bytes") as caught:
            feed_of(memory([1000] * 96), batch_size=10, shuffle=True, window_bytes=40)
        assert caught.value.pointer == "/dataset/lanes"
        assert "set dataset.lanes to 5 or less" in caught.value.hint

    def test_a_row_larger_than_a_window_may_be_is_an_error_that_names_the_setting(self, memory: Callable) -> None:
        large = pa.RecordBatch.from_arrays([pa.array(["x" * 5000])], names=["text"])
        with pytest.raises(InvalidData, match=r"one row takes 5,0\d\d bytes, more than a whole .* \(4,096\)") as caught:
            feed_of(memory(batches=[large]), batch_size=1, shuffle=True, window_bytes=4096)
        assert caught.value.pointer == "/dataset/window_bytes"

    def test_a_shard_that_ends_early_is_an_error_where_it_is_read(self, memory: Callable) -> None:
        feed = feed_of(memory([10, 10, 10], promised=2), batch_size=4, shuffle=True)
        with pytest.raises(InvalidData, match="ended 2 rows early"):
            list(feed.stream(Cursor()))
        empty = pa.RecordBatch.from_arrays([pa.array([], pa.int64())], names=["n"])
        with pytest.raises(InvalidData, match="memory#0"):
            feed_of(memory(batches=[empty], promised=10), batch_size=1, shuffle=True)

    @pytest.mark.parametrize("shuffle", [False, True])
    def test_less_than_one_batch_is_an_error_that_says_how_much_there_is(self, memory: Callable, shuffle: bool) -> None:
        with pytest.raises(InvalidData, match="the data has 7 rows, less than one batch of 8") as caught:
            feed_of(memory([4, 3]), batch_size=8, shuffle=shuffle)
        assert caught.value.pointer == "/dataset/batch_size"


class TestTheRowsLeftOut:
    """An epoch ends with the last whole step; ``docs/concepts/data-order.md`` says which rows that leaves out."""

    @staticmethod
    def of(feed: DatasetFeed) -> list[frozenset[int]]:
        """By epoch."""
        every = range(feed.num_rows)
        return [frozenset(every) - frozenset(rows(feed.stream(Cursor(epoch=epoch)))) for epoch in range(6)]

    def test_in_file_order_are_always_the_last_of_the_data(self, memory: Callable) -> None:
        assert self.of(feed_of(memory([60, 53]), batch_size=16)) == [{112}] * 6

    @pytest.mark.parametrize("shards", [[113], [12] * 8 + [17]])
    def test_shuffled_are_other_ones_in_each_epoch(self, memory: Callable, shards: list[int]) -> None:
        left = self.of(feed_of(memory(shards), batch_size=12, shuffle=True))
        assert {len(one) for one in left} == {5}
        assert len(set(left)) == 6

    def test_of_a_single_shard_that_no_window_holds_come_from_its_last_window(self, memory: Callable) -> None:
        left = self.of(feed_of(memory([113]), batch_size=12, shuffle=True, shuffle_window=50))
        assert all(one < frozenset(range(100, 113)) for one in left)
        assert len(set(left)) > 1


class TestIdentity:
    def test_of_the_same_files_opened_again_is_the_same(self, parquet: Callable, tmp_path: Path) -> None:
        stored = feed_of(parquet(rows=40, group=8), batch_size=8).identity()
        source = ParquetSource(settings=ParquetSource.Settings(parquet_paths=str(tmp_path)))
        check_identity(stored, feed_of(source.open_dataset({}, DataContext()), batch_size=8), checkpoint="here")

    @pytest.mark.parametrize(
        ("changed", "named"),
        [
            ({"shard_rows": [20, 21]}, "the number of rows, the files changed"),
            ({"shard_rows": [10, 30]}, "the files changed"),
            ({"seed": 6}, "the seed changed"),
            ({"batch_size": 5}, "the batch size changed"),
            ({"shuffle": True}, "the shuffling changed"),
        ],
        ids=str,
    )
    def test_of_other_data_is_refused_with_what_differs(self, memory: Callable, changed: dict, named: str) -> None:
        def feed(shard_rows: Sequence[int] = (20, 20), seed: int = 5, **keys: object) -> DatasetFeed:
            return feed_of(memory(shard_rows), seed=seed, **{"batch_size": 10, **keys})

        with pytest.raises(DataChanged, match=f"was written with: {named}$") as caught:
            check_identity(feed().identity(), feed(**changed), checkpoint="/runs/a/checkpoints/step-000003")
        assert caught.value.file == "/runs/a/checkpoints/step-000003"
        assert caught.value.pointer == "/dataset"
        assert caught.value.hint
        named_otherwise = pa.RecordBatch.from_arrays([pa.array(range(20))], names=["other"])
        with pytest.raises(DataChanged, match="the columns changed"):
            check_identity(
                feed().identity(), feed_of(memory(batches=[named_otherwise] * 2), batch_size=10), checkpoint=""
            )
        with pytest.raises(DataChanged, match="the mock batches changed"):
            check_identity(MockFeed(mock_batches=[1]).identity(), MockFeed(mock_batches=[1, 2]), checkpoint="")

    def test_of_text_that_an_earlier_version_has_read_is_refused_with_the_remedy(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("n\n1\n2\n")
        source = CsvSource(settings=CsvSource.Settings(paths=str(tmp_path)))
        feed = feed_of(source.open_dataset({}, DataContext()), batch_size=1)
        check_identity(feed.identity(), feed, checkpoint="")
        earlier = {key: value for key, value in feed.identity().items() if key != "text"}
        with pytest.raises(DataChanged, match="reads it in another order than the one that wrote") as caught:
            check_identity(earlier, feed, checkpoint="/runs/a/checkpoints/step-000003")
        assert "start a new run under another run_id" in (caught.value.hint or "")
        with pytest.raises(DataChanged, match=r"was written with: the number of rows, the files changed$"):
            check_identity({**earlier, "rows": 7}, feed, checkpoint="")


def test_mock_batches_come_one_by_one_from_the_cursor_on_and_a_job_without_data_gets_none_for_ever() -> None:
    assert list(MockFeed(mock_batches=[1, 2, 3]).stream(Cursor(rows=1))) == [2, 3]
    batches = iter(MockFeed().stream(Cursor()))
    assert [next(batches) for _ in range(5)] == [None] * 5
    assert MockFeed().steps_per_epoch is None
