"""Reading ahead: the same batches, errors as they were raised, and a thread that ends."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from waiting import wait_until

from hostcore.job.sections import DatasetSpec
from hostcore.plugins.attribution import attribute, plugin_place, plugin_traceback
from hostcore.plugins.load import Component
from hostcore.worker.feed import readahead
from hostcore.worker.feed.feed import Cursor, DatasetFeed, dataset_feed
from hostcore_hookspecs import KINDS, Capabilities, DataContext, PluginRef, Shard

DEADLINE_SECONDS = 120.0


def feed_of(dataset: object, **keys: object) -> DatasetFeed:
    return dataset_feed(dataset, DatasetSpec(source="mock", **keys), seed=5, pointer="/dataset")


def reading_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "feed read-ahead"]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """``patience(0.05)``: how long to wait for a thread to end; a busy machine may take longer than a second."""

    def wait(seconds: float) -> None:
        monkeypatch.setattr(readahead, "_CLOSE_SECONDS", seconds)

    wait(DEADLINE_SECONDS)
    return wait


class TestTheBatches:
    @pytest.mark.parametrize("shuffle", [False, True])
    def test_are_the_same_however_far_is_read_ahead(self, memory: Callable, shuffle: bool) -> None:
        def rows(ahead: int) -> list[list[int]]:
            feed = feed_of(
                memory([30] * 12, piece=7), batch_size=8, shuffle=shuffle, shuffle_window=50, readahead=ahead
            )
            with closing(feed.stream(Cursor(epoch=1, rows=24))) as stream:
                return [batch["n"].to_pylist() for batch in stream]

        assert all(rows(ahead) == rows(0) for ahead in range(1, 5))

    def test_in_order_are_the_memory_that_the_source_read(self, memory: Callable) -> None:
        dataset = memory([8])
        with closing(feed_of(dataset, batch_size=4).stream(Cursor())) as stream:
            first, second = stream
        begin = dataset.batches[0].column(0).buffers()[1].address
        assert [batch.column(0).buffers()[1].address for batch in (first, second)] == [begin, begin]
        assert second.column(0).offset == 4

    def test_that_a_slow_source_has_read_are_not_held_back(self, memory: Callable) -> None:
        go_on = threading.Event()
        dataset = memory([4, 4], before_piece=lambda count: count and go_on.wait(DEADLINE_SECONDS))
        with closing(feed_of(dataset, batch_size=4).stream(Cursor())) as stream:
            batches = iter(stream)
            assert next(batches)["n"].to_pylist() == [0, 1, 2, 3]  # far less than a chunk, and no more comes
            go_on.set()
            assert next(batches)["n"].to_pylist() == [4, 5, 6, 7]


class TestErrors:
    class Source:
        """A data source of a plugin, whose second shard cannot be read."""

        def open_dataset(self, ctx: DataContext) -> "TestErrors.Source":
            return self

        schema = pa.schema([("n", pa.int64())])

        def shards(self) -> list[Shard]:
            return [Shard(id=f"#{i}", num_rows=8) for i in range(3)]

        def read_shard(self, shard: Shard, columns: object, offset: int) -> Iterator[pa.RecordBatch]:
            if shard.id == "#1":
                raise self.make_error()
            yield pa.RecordBatch.from_arrays([pa.array(range(8))], names=["n"])

        def make_error(self) -> Exception:
            return ZeroDivisionError("the disk of the plugin is full of zeros")

    @pytest.mark.parametrize("ahead", [0, 1, 3])
    def test_of_the_source_come_after_the_batches_before_them_and_show_its_own_lines(self, ahead: int) -> None:
        source = self.Source()
        component = Component(
            ref=PluginRef(kind="data_source", name="zeros", value="zeros:Source", dist="zeros", version="1"),
            kind=KINDS["data_source"],
            instance=source,
            settings=None,
            capabilities=Capabilities(),
            use="data_source:zeros#train",
            implementations=(),
        )
        drawn = []
        with (
            closing(feed_of(source, batch_size=4, readahead=ahead).stream(Cursor())) as stream,
            pytest.raises(ZeroDivisionError, match="the disk of the plugin") as caught,
        ):
            drawn.extend(batch["n"].to_pylist() for batch in stream)
        assert drawn == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert attribute(caught.value, [component]) is component
        assert f"{Path(__file__).name}:" in (plugin_place(caught.value, component) or "")
        lines = plugin_traceback(caught.value, component)
        assert re.search(r"in read_shard\n +raise self.make_error\(\)\n", lines)
        source.make_error = lambda: SystemExit(7)  # what is no exception arrives as well
        feed = feed_of(source, batch_size=4, readahead=ahead)
        with closing(feed.stream(Cursor())) as stream, pytest.raises(SystemExit, match="7"):
            list(stream)


class TestStopping:
    @pytest.mark.parametrize("shuffle", [False, True])
    def test_ends_a_wait_for_a_source_that_does_not_answer(
        self, memory: Callable, shuffle: bool, patience: Callable[[float], None]
    ) -> None:
        patience(0.05)
        stop, release = threading.Event(), threading.Event()

        def block(count: int) -> None:
            if count == 3:
                stop.set()
                release.wait(DEADLINE_SECONDS)

        dataset = memory([8, 8], piece=4)
        feed = feed_of(dataset, batch_size=4, shuffle=shuffle, shuffle_window=4, readahead=3)
        dataset.pieces, dataset.before_piece = 0, block
        stream = feed.stream(Cursor(), stopping=stop.is_set)
        try:
            assert len(list(stream)) == 3
            assert stream.digest(12)
        finally:
            release.set()
        wait_until(lambda: not reading_threads(), "the thread to end")

    def test_ends_reading_without_a_thread_between_two_pieces(self, memory: Callable) -> None:
        stop = threading.Event()
        dataset = memory([100], piece=10)
        feed = feed_of(dataset, batch_size=10, shuffle=True, shuffle_window=100, readahead=0)
        dataset.pieces, dataset.before_piece = 0, lambda count: stop.set() if count == 2 else None
        assert list(feed.stream(Cursor(), stopping=stop.is_set)) == []
        assert dataset.pieces == 3


class TestClosing:
    @pytest.mark.parametrize("taken", [0, 1, 5])
    @pytest.mark.parametrize("ahead", [1, 2, 4])
    def test_leaves_no_thread(self, memory: Callable, ahead: int, taken: int) -> None:
        feed = feed_of(memory([30] * 12), batch_size=8, shuffle=True, shuffle_window=24, readahead=ahead)
        stream = feed.stream(Cursor())
        batches = iter(stream)
        for _ in range(taken):
            next(batches)
        if taken == 1:
            del batches, stream  # dropped, and not closed
        else:
            stream.close()
            stream.close()
        assert not reading_threads()

    @pytest.mark.parametrize("shuffle", [False, True])
    def test_happens_at_the_end_of_the_batches(self, memory: Callable, shuffle: bool) -> None:
        dataset = memory([30] * 12 + [4], piece=1)  # the last 4 rows are not given out
        stream = feed_of(dataset, batch_size=8, shuffle=shuffle, shuffle_window=2, readahead=1).stream(Cursor())
        assert sum(1 for _ in stream) == 45
        assert not reading_threads()

    def test_ends_a_read_between_two_pieces(self, memory: Callable) -> None:
        begun, go_on = threading.Event(), threading.Event()

        def wait(count: int) -> None:
            begun.set()
            go_on.wait(DEADLINE_SECONDS)

        dataset = memory([100], piece=10)
        feed = feed_of(dataset, batch_size=10, shuffle=True, shuffle_window=100)
        dataset.pieces, dataset.before_piece = 0, wait
        stream = feed.stream(Cursor())
        assert begun.wait(DEADLINE_SECONDS)
        closer = threading.Thread(target=stream.close)
        closer.start()
        wait_until(stream._closing.is_set, "the stream to be closed")
        go_on.set()
        closer.join()
        wait_until(lambda: not reading_threads(), "the thread to end")
        assert dataset.pieces == 1

    def test_does_not_wait_for_ever_for_a_source_that_hangs(
        self, memory: Callable, patience: Callable[[float], None]
    ) -> None:
        patience(0.05)
        begun, release = threading.Event(), threading.Event()

        def hang(count: int) -> None:
            begun.set()
            release.wait(DEADLINE_SECONDS)

        stream = feed_of(memory([8], before_piece=hang), batch_size=4).stream(Cursor())
        assert begun.wait(DEADLINE_SECONDS)
        stream.close()
        (hanging,) = reading_threads()
        assert hanging.daemon
        release.set()
        wait_until(lambda: not reading_threads(), "the thread to end")


class TestMemory:
    @pytest.mark.parametrize(("shuffle", "ahead"), [(False, 1), (True, 3)])
    def test_a_stream_takes_a_few_windows_however_much_data_there_is(self, shuffle: bool, ahead: int) -> None:
        pool, before = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
        shard_bytes, shards = 1 << 20, 60
        read: list[Shard] = []

        def made_when_read(shard: Shard, columns: object, offset: int) -> Iterator[pa.RecordBatch]:
            read.append(shard)
            values = pa.array(np.zeros(shard_bytes // 8 - offset), pa.float64())
            yield pa.RecordBatch.from_arrays([pa.compute.add(values, 1.0)], names=["x"])

        class Large:
            schema = pa.schema([("x", pa.float64())])
            read_shard = staticmethod(made_when_read)

            def shards(self) -> list[Shard]:
                return [Shard(id=f"#{i}", num_rows=shard_bytes // 8) for i in range(shards)]

        keys = {"window_bytes": 4 << 20, "lanes": 1 if shuffle else None, "readahead": ahead}
        feed = feed_of(Large(), batch_size=1024, shuffle=shuffle, **keys)
        pa.set_memory_pool(pool)
        try:
            with closing(feed.stream(Cursor())) as stream:
                batches = iter(stream)
                next(batches)
                settled = -1
                while settled != len(read):
                    settled = len(read)
                    time.sleep(0.2)
                assert sum(1 for _ in batches) == shards * shard_bytes // 8 // 1024 - 1
        finally:
            pa.set_memory_pool(before)
        # A window in use, those ready, one as it is read and as it is ordered; in order, what lies ready.
        most_bytes = ((3 + ahead) * (4 << 20) if shuffle else 32 << 20) + 4 * shard_bytes
        assert pool.max_memory() < most_bytes
        assert settled * shard_bytes < most_bytes
