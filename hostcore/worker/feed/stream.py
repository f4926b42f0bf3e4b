"""A stream: the batches of one epoch for one rank, from a cursor on."""

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice, repeat
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from hostcore.worker.feed.blocks import cut
from hostcore.worker.feed.digest import StepDigests, Tally, row_digest
from hostcore.worker.feed.gathering import Block
from hostcore.worker.feed.order import Share
from hostcore.worker.feed.readahead import ReadAhead
from hostcore.worker.feed.reading import ReadingStopped
from hostcore_hookspecs.context import RowSlice

#: Opens blocks from a position on; they end with ``ReadingStopped`` when they are not wanted any more.
OpenBlocks = Callable[[Callable[[], bool]], Iterator[Block]]


@attrs.frozen(kw_only=True)
class _Counted:
    """A block, and the stream's digest at the end of each step that ends in it."""

    batch: pa.RecordBatch
    digests: list[int]
    nbytes: int
    unit_bytes: int


class DatasetStream:
    """See :class:`hostcore.worker.feed.feed.Stream`.

    :param epoch: Of the rows.
    :param start: The position of the first one, over all ranks.
    :param rows_per_step: Over all ranks.
    :param micro_batches: Batches that a rank's rows of a step come in.
    :param steps: How many; there may be rows for another batch on some of the ranks.
    :param readahead: Windows to read ahead in a thread; 0: they are read when they are asked for.
    """

    def __init__(
        self,
        open_blocks: OpenBlocks,
        *,
        epoch: int,
        start: int,
        share: Share,
        rows_per_step: int,
        micro_batches: int,
        steps: int,
        readahead: int,
        stopping: Callable[[], bool],
    ) -> None:
        step_rows = rows_per_step // share.world_size
        self._batch_rows = step_rows // micro_batches
        self._batches = steps * micro_batches
        self._digests = StepDigests(start, rows_per_step)
        #: Where the batch that was given out last lies.
        self.row_slice = RowSlice()
        self._closing = threading.Event()
        self._ahead: ReadAhead[_Counted] | None = None

        def unwanted() -> bool:
            return self._closing.is_set() or (not readahead and stopping())

        tally = Tally(epoch, start, share, step_rows)
        self._blocks = _counted(open_blocks(unwanted), tally)
        if readahead:
            self._ahead = ReadAhead(self._blocks, depth=readahead, closing=self._closing, stopping=stopping)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Batches of exactly the rows that this rank takes at once. To be asked for once; closes at its end."""
        blocks = self._taken() if self._ahead is None else self._taken_ahead(self._ahead)
        try:
            yield from islice(cut(blocks, self._batch_rows, row_slice=self.row_slice), self._batches)
        finally:
            self.close()

    def _taken(self) -> Iterator[pa.RecordBatch]:
        try:
            for block in self._blocks:
                yield self._given_out(block)
                del block
        except ReadingStopped:
            return

    def _taken_ahead(self, ahead: ReadAhead[_Counted]) -> Iterator[pa.RecordBatch]:
        while (block := ahead.take()) is not None:
            yield self._given_out(block)
            del block

    def _given_out(self, block: _Counted) -> pa.RecordBatch:
        self._digests.add(block.digests)
        return block.batch

    def digest(self, rows: int) -> int:
        """See :class:`hostcore.worker.feed.feed.Stream`."""
        return self._digests.up_to(rows)

    def close(self) -> None:
        """See :class:`hostcore.worker.feed.feed.Stream`."""
        if not self._closing.is_set():
            self._closing.set()
            self.row_slice.begin(None)
            if self._ahead is None:
                self._blocks.close()
            else:
                self._ahead.close()


def _counted(blocks: Iterable[Block], tally: Tally) -> Generator[_Counted, None, None]:
    for block in blocks:
        yield _Counted(
            batch=block.batch,
            digests=tally.count(block.numbers),
            nbytes=block.nbytes,
            unit_bytes=block.unit_bytes,
        )
        del block  # before the next one is read


@attrs.frozen(kw_only=True)
class MockStream:
    """The job's own ``mock_batches``, or None without end. See :class:`hostcore.worker.feed.feed.Stream`."""

    mock_batches: Sequence[Any]
    epoch: int
    start: int
    #: Where whole steps end.
    stop: int
    share: Share

    @property
    def row_slice(self) -> None:
        """None: a batch is as it is."""

    def __iter__(self) -> Iterator[Any]:
        """The rank's batches."""
        first = self.start + self.share.skip(self.start)
        own = self.mock_batches[first : self.stop : self.share.world_size]
        return iter(own) if self.mock_batches else repeat(None)

    def digest(self, rows: int) -> int:
        """A batch is a row, and its place its number; 0 without batches."""
        if not self.mock_batches:
            return 0
        positions = np.arange(self.start + self.share.skip(self.start), rows, self.share.world_size)
        return row_digest(self.epoch, positions, positions)

    def close(self) -> None:
        """Nothing is read."""
