"""What a shuffle window takes in memory: as the first shard says, and not much more."""

import random
from collections.abc import Callable
from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest

from hostcore.job.sections import DatasetSpec
from hostcore.worker.feed import gathering
from hostcore.worker.feed.feed import Cursor, DatasetFeed, dataset_feed
from hostcore.worker.feed.gathering import gathered
from hostcore.worker.feed.reading import Rows
from hostcore_hookspecs import InvalidData


def texts(size: int, rows: int = 100) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(["x" * size] * rows), pa.array(range(rows))], names=["text", "n"])


def feed_of(dataset: object, **keys: object) -> DatasetFeed:
    spec = DatasetSpec(source="mock", batch_size=10, shuffle=True, **keys)
    return dataset_feed(dataset, spec, seed=5, pointer="/validation")


class TestHiddenLargeRows:
    @pytest.mark.parametrize("ahead", [0, 2])
    def test_are_refused_before_more_is_read(self, memory: Callable, ahead: int) -> None:
        dataset = memory(batches=[texts(10), *[texts(10_000)] * 40], piece=1)
        feed = feed_of(dataset, lanes=1, window_bytes=20_000, readahead=ahead)
        assert feed.window > 500
        dataset.pieces = 0
        with closing(feed.stream(Cursor())) as stream, pytest.raises(InvalidData) as caught:
            list(stream)
        assert "rows of a shuffle window take" in caught.value.message
        assert "more than 4 times what all of it was to take (20,000)" in caught.value.message
        assert caught.value.pointer == "/validation/shuffle_window"
        assert "set dataset.shuffle_window to" in caught.value.hint
        assert "raise dataset.window_bytes" in caught.value.hint
        assert dataset.pieces <= 100 + 80_000 // 10_000

    def test_come_through_when_the_hint_has_been_followed(self, memory: Callable) -> None:
        dataset = memory(batches=[texts(10), *[texts(10_000)] * 40], piece=1)
        feed = feed_of(dataset, lanes=1, window_bytes=20_000, shuffle_window=2)
        with closing(feed.stream(Cursor())) as stream:
            assert sum(batch.num_rows for batch in stream) == 4_100

        few_times_larger = feed_of(memory(batches=[texts(100), *[texts(300)] * 20]), lanes=2, window_bytes=20_000)
        with closing(few_times_larger.stream(Cursor())) as stream:
            assert sum(batch.num_rows for batch in stream) == 2_100


class TestGathering:
    @pytest.mark.parametrize(
        "column",
        [
            pa.array([True, None, False, True]),
            pa.array(["a", None, "ccc", ""]),
            pa.array([[1], None, [2, 3], []]),
            pa.array([[1, 2], [3, 4], [5, 6], None], pa.list_(pa.int8(), 2)),
            pa.array([{"a": 1, "b": "x"}, None, {"a": 2, "b": None}, {"a": 3, "b": "y"}]),
            pa.array(["x", "y", "x", None]).dictionary_encode(),
            pa.nulls(4),
            pa.array([1, None, 3, 4], pa.timestamp("us", tz="UTC")),
            pa.array([1, None, 3, 4]).cast(pa.decimal128(30, 2)),
            pa.array([[("k", 1)], [], None, [("l", 2)]], pa.map_(pa.string(), pa.int64())),
        ],
        ids=lambda column: str(column.type)[:12],
    )
    def test_of_any_column_gives_its_values_in_the_order_asked_for(self, column: pa.Array) -> None:
        parts = [
            Rows(first=10, batch=pa.RecordBatch.from_arrays([column], names=["x"]), nbytes=40),
            Rows(first=70, batch=pa.RecordBatch.from_arrays([column.slice(2)], names=["x"]), nbytes=20),
        ]
        places = pa.array([5, 0, 3, 1]).to_numpy()
        values = [*column.to_pylist(), *column.slice(2).to_pylist()]
        (block,) = gathered(parts, places)
        assert block.batch["x"].to_pylist() == [values[place] for place in places]
        assert block.batch.schema.field("x").type == column.type
        assert block.numbers.tolist() == [71, 10, 13, 11]
        assert block.nbytes == 40
        assert parts == []

    @pytest.mark.parametrize("seed", range(4))
    def test_of_large_columns_comes_in_parts(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gathering, "_LARGE_BYTES", 10_000)
        monkeypatch.setattr(gathering, "_PART_BYTES", 5_000)
        rng = random.Random(seed)
        counts = [rng.randint(1, 50) for _ in range(rng.randint(1, 12))] + [60]
        texts, numbers, parts = [], [], []
        for count in counts:
            text = [str(rng.random()) * 20 for _ in range(count)]
            columns = [pa.array(text), pa.array(range(count)), pa.array(text).cast(pa.binary())]
            batch = pa.RecordBatch.from_arrays(columns, names=["text", "n", "bytes"])
            parts.append(Rows(first=1000 * len(parts), batch=batch, nbytes=batch.nbytes))
            numbers += range(parts[-1].first, parts[-1].first + count)
            texts += text
        places = rng.sample(range(len(texts)), rng.choice([len(texts), len(texts) // 2]))
        blocks = list(gathered(parts, np.array(places)))
        assert len(blocks) > 1, f"seed {seed}"
        assert max(block.nbytes for block in blocks) <= 5_000
        assert {block.unit_bytes for block in blocks} == {blocks[0].unit_bytes}
        drawn = pa.Table.from_batches([block.batch for block in blocks]).to_pydict()
        assert drawn["text"] == [texts[place] for place in places], f"seed {seed}"
        assert drawn["bytes"] == [texts[place].encode() for place in places]
        assert drawn["n"] == [numbers[place] % 1000 for place in places]
        assert [n for block in blocks for n in block.numbers.tolist()] == [numbers[place] for place in places]
