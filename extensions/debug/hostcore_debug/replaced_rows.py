"""A dataset in which others take the place of some rows."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from hostcore_hookspecs.data_source import Shard


class ReplacedRows:
    """A dataset whose shards are as they were, but for some rows that have the values of others.

    Their number and order stay, and so does everything that follows from them.

    :param dataset: The data.
    :param replaced: Numbers of rows, counted through all data: pairs of a row and the row that takes its place.
    """

    def __init__(self, dataset: Any, replaced: Sequence[int]) -> None:
        self._dataset = dataset
        self._shards = list(dataset.shards())
        self._starts = np.array([0, *accumulate(one.num_rows for one in self._shards)])
        self._numbers = {one.id: number for number, one in enumerate(self._shards)}
        self._by = dict(zip(replaced[::2], replaced[1::2], strict=True))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)

    def shards(self) -> Sequence[Shard]:
        """All shards, in file order."""
        return self._shards

    def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
        """Read a shard from a row on."""
        first = int(self._starts[self._numbers[shard.id]]) + offset
        for batch in self._dataset.read_shard(shard, columns, offset):
            rows = batch
            for number in self._by:
                if first <= number < first + batch.num_rows:
                    rows = self._with(rows, number - first, self._row(self._by[number], columns))
            first += batch.num_rows
            yield rows

    def _row(self, number: int, columns: Sequence[str] | None) -> pa.RecordBatch:
        shard = int(np.searchsorted(self._starts, number, side="right")) - 1
        rest = self._dataset.read_shard(self._shards[shard], columns, number - int(self._starts[shard]))
        row: pa.RecordBatch = next(iter(rest)).slice(0, 1)
        return row

    @staticmethod
    def _with(batch: pa.RecordBatch, place: int, row: pa.RecordBatch) -> pa.RecordBatch:
        pieces = [batch.slice(0, place), row, batch.slice(place + 1)]
        table = pa.Table.from_batches([one for one in pieces if one.num_rows]).combine_chunks()
        whole: pa.RecordBatch = table.to_batches()[0]
        return whole
