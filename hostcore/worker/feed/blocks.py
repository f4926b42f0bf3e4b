"""Blocks: stretches of a share's rows in their final order, as large as they come from the shards or as a window."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Generic, TypeVar

import numpy as np
import pyarrow as pa

from hostcore.worker.feed.gathering import Block, as_arrow, gathered
from hostcore.worker.feed.order import Share, ShuffledOrder, in_file_order
from hostcore.worker.feed.reading import ReadRanges, Rows
from hostcore.worker.feed.window import WindowLimit
from hostcore_hookspecs.context import RowSlice

#: What is read together in file order, in bytes.
_CHUNK_BYTES: Final = 16 << 20
#: What a column takes without its rows, in bytes; with tiny row groups, this is most of it.
_COLUMN_BYTES: Final = 1 << 10

RowsT = TypeVar("RowsT", Rows, Block)


def shuffled_blocks(
    order: ShuffledOrder, read: ReadRanges, position: int, share: Share, limit: WindowLimit
) -> Iterator[Block]:
    """A share of the windows of an epoch, each in its final order, from a position on."""
    window, offset = order.window_of(position)
    if window < order.num_windows:
        first = window * order.lane_window
        lanes = [Lane(read(order.lane(lane, first))) for lane in share.lanes(order.lanes)]
        while window < order.num_windows:
            yield from gathered(_draw(lanes, order, window, limit), order.gather(window, share, offset))
            window, offset = window + 1, 0
        del lanes
    yield from _every(read(order.left_over(offset)), order.lane_rows * order.lanes + offset, share)


def file_blocks(shard_rows: Sequence[int], read: ReadRanges, position: int, share: Share) -> Iterator[Block]:
    """A share of the rows in file order, from a position on; a single rank's are the memory that the source read."""
    return _every(read(in_file_order(shard_rows, position)), position, share)


def _every(parts: Iterable[Rows], position: int, share: Share) -> Iterator[Block]:
    """A share of rows that lie at consecutive positions."""
    stride = share.world_size
    skip = share.skip(position)
    for part in parts:
        rows = part.batch.num_rows
        if skip < rows:
            taken = np.arange(skip, rows, stride)
            batch = part.batch if stride == 1 else part.batch.take(as_arrow(taken))
            nbytes = part.nbytes * len(taken) // rows + _COLUMN_BYTES * (batch.num_columns + 1)
            yield Block(batch=batch, numbers=taken + part.first, nbytes=nbytes, unit_bytes=_CHUNK_BYTES)
        skip = (skip - rows) % stride


class Lane(Generic[RowsT]):
    """Draws exact numbers of rows from what a reader gives."""

    def __init__(self, parts: Iterator[RowsT]) -> None:
        self._parts: Iterator[RowsT] = parts
        self._left: RowsT | None = None

    def draw(self, rows: int) -> Iterator[RowsT]:
        """The next rows, in as many pieces as they come."""
        while rows:
            part, self._left = self._left or next(self._parts), None
            size = part.batch.num_rows
            if size > rows:
                part, self._left = part.part(0, rows), part.part(rows, size)
            rows -= min(rows, size)
            yield part


def _draw(lanes: "Sequence[Lane[Rows]]", order: ShuffledOrder, window: int, limit: WindowLimit) -> list[Rows]:
    """The rows of a window, lane after lane."""
    parts, size, drawn = [], 0, 0
    for lane in lanes:
        for part in lane.draw(order.window_rows(window)):
            parts.append(part)
            size, drawn = size + part.nbytes, drawn + part.batch.num_rows
            limit.check(size, drawn, order.lanes)
    return parts


def cut(
    blocks: Iterable[pa.RecordBatch], size: int, *, tail: bool = False, row_slice: RowSlice | None = None
) -> Iterator[pa.RecordBatch]:
    """Batches of exactly ``size`` rows: slices of a block without a copy, where it does not end inside one.

    A block is let go of before the next one is asked for, but for the memory of its last rows.

    :param tail: Whether rows that do not fill a last batch are given out as well; else they are left out.
    :param row_slice: Is kept at the place of the batch that was given out last, if it is a slice of a block.
    """
    row_slice = row_slice or RowSlice()
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
        row_slice.begin(block)
        while start + size <= end:
            row_slice.batch = batch = block.slice(start, size)
            row_slice.start = start
            yield batch
            start += size
        row_slice.begin(None)
        batch = None
        if start < end:
            begun, missing = [block.slice(start)], size - (end - start)
        del block
    if tail and begun:
        yield pa.concat_batches(begun)
