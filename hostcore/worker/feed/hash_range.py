"""Some of the rows of a dataset, chosen by their hashes: training data with a part held out, and the part.

The hash of a row follows from its shard's id and its number in the shard alone, so that rows stay where they are when
shards are added. It is SplitMix64 [1]_ of the number, seeded with the first eight bytes (little-endian) of the SHA-256
of the id; as a fraction of 2^64 it lies from 0 to 1.

.. [1] Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators. OOPSLA 2014.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np

from hostcore.plugins.load import Component
from hostcore.worker.feed.gathering import as_arrow
from hostcore.worker.feed.order import Indices
from hostcore_hookspecs.data_source import Shard
from hostcore_hookspecs.errors import InvalidData

if TYPE_CHECKING:
    import pyarrow as pa

    from hostcore.job.spec import JobSpec

_GAMMA: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX: Final = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)


class HashRange:
    """A dataset that has those rows of another one whose hashes lie in a range.

    :param dataset: The other.
    :param start: From 0 to 1; rows with a hash of it are in the range, and those with ``end`` are not.
    :raises InvalidData: No row is in the range.
    """

    def __init__(self, dataset: Any, start: float, end: float) -> None:
        self._dataset = dataset
        self._range = start, end
        self._whole: dict[str, Shard] = {one.id: one for one in dataset.shards()}
        self._shards = [attrs.evolve(one, num_rows=len(self.rows_of(one.id))) for one in self._whole.values()]
        if not any(one.num_rows for one in self._shards):
            rows = sum(one.num_rows for one in self._whole.values())
            hint = "choose a larger fraction, or add data"
            raise InvalidData(f"none of {rows:,} rows has a hash from {start:g} to {end:g}", hint=hint)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)

    def shards(self) -> Sequence[Shard]:
        """All shards, in file order; one may have no such rows."""
        return self._shards

    def whole_rows(self, shard_id: str) -> int:
        """Return how many rows a shard has in the other dataset."""
        return self._whole[shard_id].num_rows

    def rows_of(self, shard_id: str) -> Indices:
        """Return the numbers of such rows in the whole shard: int64, ascending."""
        start, end = self._range
        place = hashes(shard_id, self._whole[shard_id].num_rows) / 2.0**64
        return np.flatnonzero((place >= start) & (place < end))

    def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> "Iterator[pa.RecordBatch]":
        """Read the rows of a shard from one of them on."""
        rows = self.rows_of(shard.id)[offset:]
        if not len(rows):
            return
        first, last = int(rows[0]), int(rows[-1])
        for batch in self._dataset.read_shard(self._whole[shard.id], columns, first):
            here = rows[np.searchsorted(rows, first) : np.searchsorted(rows, first + batch.num_rows)] - first
            if len(here):
                yield batch.take(as_arrow(here))
            first += batch.num_rows
            if first > last:
                return


def hashes(shard_id: str, rows: int) -> "np.ndarray[Any, np.dtype[np.uint64]]":
    """Return the hashes of a shard's rows: uint64 of shape (rows,)."""
    seed = np.uint64(int.from_bytes(hashlib.sha256(shard_id.encode()).digest()[:8], "little"))
    with np.errstate(over="ignore"):
        found = seed + np.arange(1, rows + 1, dtype=np.uint64) * _GAMMA
        for shift, factor in _MIX:
            found = (found ^ (found >> shift)) * factor
        return found ^ (found >> np.uint64(31))


def with_hash_range(source: Component, spec: "JobSpec") -> Component:
    """Return a data source that opens the rows which the job has of its data; others as they are."""
    split, _, part = source.use.rpartition("#")[2].partition("/")
    data = getattr(spec, "dataset" if split == "train" else split, None)
    if data is None or data.hash_range is None or part:
        return source
    opens = {one.hook: one for one in source.implementations if not one.wrapper}["open_dataset"]
    start, end = data.hash_range

    def open_dataset(*arguments: Any, **keywords: Any) -> HashRange:
        return HashRange(opens.function(*arguments, **keywords), start, end)

    changed = attrs.evolve(opens, function=open_dataset, plain=False)
    return attrs.evolve(
        source, implementations=tuple(changed if one is opens else one for one in source.implementations)
    )
