"""Ordering a window once it has been read: one gather of each column."""

from collections.abc import Iterator
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hostcore.worker.feed.order import Indices
from hostcore.worker.feed.reading import Rows

#: A column of more bytes is gathered in parts, so that it is not in memory three times.
_LARGE_BYTES: Final = 16 << 20
#: What a part of a window takes, in bytes.
_PART_BYTES: Final = 8 << 20


@attrs.frozen(kw_only=True)
class Block:
    """Rows that follow each other in a share of the order."""

    batch: pa.RecordBatch
    #: The number of each row, counted through all shards in file order.
    numbers: Indices
    #: What they take in memory.
    nbytes: int
    #: What is read together takes in memory: for a part of a window, the whole window.
    unit_bytes: int

    def part(self, start: int, stop: int) -> "Block":
        """Some of the rows."""
        return Block(
            batch=self.batch.slice(start, stop - start),
            numbers=self.numbers[start:stop],
            nbytes=self.nbytes * (stop - start) // self.batch.num_rows,
            unit_bytes=self.unit_bytes,
        )


def as_arrow(places: npt.NDArray[Any]) -> pa.Array:
    """Return places of rows for ``take``, without a copy.

    ``pyarrow.array`` would first import pandas where that is installed, which takes a run 0.3 seconds before its first
    step.
    """
    kind = pa.from_numpy_dtype(places.dtype)
    return pa.Array.from_buffers(kind, len(places), [None, pa.py_buffer(np.ascontiguousarray(places))])


def gathered(parts: list[Rows], places: Indices) -> Iterator[Block]:
    """A window in its order: one block, or several one after the other if it has a large column.

    :param parts: What was read of it, lane after lane. Emptied.
    :param places: The places of the rows in these, in the order wanted; there may be fewer.
    """
    counts = np.array([part.batch.num_rows for part in parts])
    firsts = np.array([part.first for part in parts]) - np.cumsum(counts) + counts
    numbers = (np.arange(counts.sum()) + np.repeat(firsts, counts))[places]
    nbytes = max(1, sum(part.nbytes for part in parts) * len(places) // int(counts.sum()))
    columns = _Columns(parts, places)
    in_parts = bool(columns.large)
    rows = max(1, len(places) * _PART_BYTES // nbytes) if in_parts else max(1, len(places))
    for start in range(0, len(places), rows):
        stop = min(start + rows, len(places))
        batch = columns.take(start, stop)
        if in_parts:
            pa.default_memory_pool().release_unused()  # Arrow would keep about as much as it has in use
        yield Block(
            batch=batch,
            numbers=numbers[start:stop],
            nbytes=max(1, nbytes * (stop - start) // len(places)),
            unit_bytes=nbytes,
        )
        del batch


class _Columns:
    """The columns of a window: small ones ordered at once, large ones part by part.

    :param parts: Emptied, so that each column as it was read goes when it has been ordered.
    """

    def __init__(self, parts: list[Rows], places: Indices) -> None:
        self._schema = parts[0].batch.schema
        self._places = places
        self._starts = np.cumsum([0, *(part.batch.num_rows for part in parts)])
        indices, may_be_large = as_arrow(places.astype(np.uint32)), sum(part.nbytes for part in parts) > _LARGE_BYTES
        columns = pa.Table.from_batches([part.batch for part in parts]).columns
        parts.clear()
        self.small: dict[int, pa.Array] = {}
        self.large: dict[int, list[pa.Array]] = {}
        while columns:
            column = columns.pop()
            if may_be_large and column.nbytes > _LARGE_BYTES:
                self.large[len(columns)] = column.chunks
            else:
                self.small[len(columns)] = pc.take(column.combine_chunks(), indices, boundscheck=False)
            del column

    def take(self, start: int, stop: int) -> pa.RecordBatch:
        """Some of the rows, by their position in the order; the large columns are let go of with the last ones."""
        arrays = {place: column.slice(start, stop - start) for place, column in self.small.items()}
        if self.large:
            # Chunk by chunk in rising order, then into the order wanted: a gather across chunks would join them first.
            places = self._places[start:stop]
            rising = np.argsort(places)
            back = np.empty_like(rising)
            back[rising] = np.arange(len(rising))
            bounds = np.searchsorted(places[rising], self._starts).tolist()
            local = [
                as_arrow(places[rising[begin:end]] - first)
                for first, begin, end in zip(self._starts, bounds, bounds[1:], strict=False)
            ]
            for place, chunks in self.large.items():
                pieces = [chunk.take(rows) for chunk, rows in zip(chunks, local, strict=True)]
                arrays[place] = pa.concat_arrays(pieces).take(as_arrow(back))
            if stop == len(self._places):
                self.large.clear()
        return pa.RecordBatch.from_arrays([arrays[place] for place in range(len(arrays))], schema=self._schema)
