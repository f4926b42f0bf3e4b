"""Blocks: stretches of rows in their final order, as large as they come from the shards or as a window."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from hostcore.worker.feed.order import RowRange, ShuffledOrder
from hostcore_hookspecs.errors import InvalidData

if TYPE_CHECKING:
    from hostcore_hookspecs.data_source import Dataset, Shard

ReadRanges = Callable[[Iterable[RowRange]], Iterator[pa.RecordBatch]]


def range_reader(dataset: "Dataset", shards: "Sequence[Shard]", columns: Sequence[str] | None) -> ReadRanges:
    """A function that reads runs of rows from a dataset, one after the other, and checks what comes.

    It raises :class:`InvalidData` for a null in a numeric column and for a shard with fewer rows than it promised.
    """
    allow_nulls = getattr(dataset, "allow_nulls", False)

    def read(ranges: Iterable[RowRange]) -> Iterator[pa.RecordBatch]:
        for part in ranges:
            shard, left = shards[part.shard], part.rows
            for batch in dataset.read_shard(shard, columns, part.start):
                if not allow_nulls:
                    _refuse_nulls(batch, shard)
                yield batch.slice(0, left) if batch.num_rows > left else batch
                left -= min(left, batch.num_rows)
                if not left:
                    break
            if left:
                raise InvalidData(
                    f"shard {shard.id} ended {left:,} rows early: it has fewer than the {shard.num_rows:,} it promised",
                    hint="the data changed while it was read, or the data source counts wrongly",
                )

    return read


def _refuse_nulls(batch: pa.RecordBatch, shard: "Shard") -> None:
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if column.null_count and _is_numeric(field.type):
            raise InvalidData(
                f"column {field.name!r} has {column.null_count:,} nulls in {shard.id}, and a number cannot be missing",
                pointer="/dataset",
                hint="fill or drop them when the data is made, leave the column out of dataset.columns, "
                "or set dataset.allow_nulls if the data source has it and the trainer copes",
            )


def _is_numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def shuffled_blocks(order: ShuffledOrder, read: ReadRanges, position: int) -> Iterator[pa.RecordBatch]:
    """The windows of an epoch, each in its final order, from a position on."""
    first, offset = order.window_of(position)
    if first < order.num_windows:
        lanes = [_Lane(read(order.lane(lane, first * order.lane_window))) for lane in range(order.lanes)]
        for window in range(first, order.num_windows):
            rows = order.window_rows(window)
            drawn = pa.concat_batches([part for lane in lanes for part in lane.draw(rows)])
            yield drawn.take(pa.array(order.gather(window)[offset:]))
            offset = 0
    yield from _skip(read(order.left_over()), offset)


def _skip(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if rows < batch.num_rows:
            yield batch.slice(rows)
        rows = max(0, rows - batch.num_rows)


class _Lane:
    """Draws exact numbers of rows from a stream of batches."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._left: pa.RecordBatch | None = None

    def draw(self, rows: int) -> list[pa.RecordBatch]:
        """The next rows, in as many pieces as they came."""
        drawn = []
        while rows:
            batch = self._left if self._left is not None else next(self._batches)
            drawn.append(batch.slice(0, rows))
            self._left = batch.slice(rows) if batch.num_rows > rows else None
            rows -= min(rows, batch.num_rows)
        return drawn


def cut(blocks: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """Batches of exactly ``size`` rows: slices of a block without a copy, where it does not end inside one.

    Rows that do not fill a last batch are left out.
    """
    begun: list[pa.RecordBatch] = []
    missing = size
    for block in blocks:
        start, end = 0, block.num_rows
        if begun:
            if end < missing:
                begun.append(block)
                missing -= end
                continue
            yield pa.concat_batches([*begun, block.slice(0, missing)])
            start, missing, begun = missing, size, []
        while start + size <= end:
            yield block.slice(start, size)
            start += size
        if start < end:
            begun, missing = [block.slice(start)], size - (end - start)
