"""Data for the feed: a dataset whose shards lie in memory, and Parquet files opened by the real source."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hostcore_builtin_plugins.sources.parquet import ParquetSource
from hostcore_hookspecs import DataContext, Mixture, Shard
from hostcore_hookspecs.data_source import Dataset


@attrs.define(eq=False)
class MemoryDataset:
    """Shards that are record batches; each is read in pieces of ``piece`` rows."""

    batches: Sequence[pa.RecordBatch]
    piece: int = 1 << 20
    #: Rows that a shard promises beyond those it has.
    promised: int = 0
    allow_nulls: bool = False
    mixture: Mixture | None = None
    #: Called before each piece is given, with the number of those before it in all.
    before_piece: Callable[[int], None] = lambda count: None
    reads: list[tuple[str, int]] = attrs.field(factory=list)
    pieces: int = 0

    @property
    def schema(self) -> pa.Schema:
        return self.batches[0].schema

    def shards(self) -> Sequence[Shard]:
        return [
            Shard(id=f"memory#{i}", num_rows=batch.num_rows + self.promised, version="1")
            for i, batch in enumerate(self.batches)
        ]

    def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
        self.reads.append((shard.id, offset))
        batch = self.batches[int(shard.id.rpartition("#")[2])]
        batch = batch if columns is None else batch.select(list(columns))
        for start in range(offset, batch.num_rows, self.piece):
            self.before_piece(self.pieces)
            self.pieces += 1
            yield batch.slice(start, self.piece)
            yield batch.slice(0, 0)


def numbered(shard_rows: Sequence[int]) -> list[pa.RecordBatch]:
    """Record batches of these sizes; column ``n`` counts the rows through all of them."""
    batches, start = [], 0
    for rows in shard_rows:
        numbers = pa.array(range(start, start + rows), pa.int64())
        batches.append(pa.RecordBatch.from_arrays([numbers], names=["n"]))
        start += rows
    return batches


@pytest.fixture
def memory() -> Callable[..., MemoryDataset]:
    """``memory([3, 4], piece=2)``: a dataset of numbered rows; ``memory(batches=[…])``: of one's own."""

    def make(
        shard_rows: Sequence[int] = (), *, batches: Sequence[pa.RecordBatch] = (), **about: object
    ) -> MemoryDataset:
        return MemoryDataset(batches or numbered(shard_rows), **about)

    return make


@pytest.fixture
def parquet(tmp_path: Path) -> Callable[..., Dataset]:
    """``parquet(rows=100, group=16, files=3)``: numbered rows in real files, opened by the real source."""

    def make(*, rows: int, group: int, files: int = 1, columns: Sequence[str] = ()) -> Dataset:
        bounds = [i * rows // files for i in range(files + 1)]
        for i in range(files):
            numbers = range(bounds[i], bounds[i + 1])
            table = pa.table({"n": pa.array(numbers, pa.int64()), "text": [f"row {n}" for n in numbers]})
            pq.write_table(table, tmp_path / f"part-{i}.parquet", row_group_size=group)
        source = ParquetSource(settings=ParquetSource.Settings(parquet_paths=(str(tmp_path),)))
        return source.open_dataset({"columns": list(columns)}, DataContext())

    return make
