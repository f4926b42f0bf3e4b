"""The data of a validation or a test: read once, in file order, the tail included.

Each rank reads a contiguous range of the rows. All ranks get the same number of batches, because the trainer's steps
may contain collectives: a rank that has run out of rows repeats one that does not count. A batch has rows of one part
of a mixture, so that its result is one of that part.
"""

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import attrs
import pyarrow as pa

from hostcore.worker.feed.blocks import cut, file_blocks
from hostcore.worker.feed.gathering import Block
from hostcore.worker.feed.order import Share
from hostcore.worker.feed.readahead import ReadAhead
from hostcore.worker.feed.reading import ReadingStopped, never, range_reader
from hostcore_hookspecs.errors import InvalidData

if TYPE_CHECKING:
    from hostcore.job.sections import DatasetSpec
    from hostcore_hookspecs.data_source import Dataset, Mixture


class EvaluationBatch(NamedTuple):
    """A batch of an evaluation."""

    raw_batch: pa.RecordBatch
    #: Whether its result counts; a batch that is only there because other ranks have one more does not.
    counts: bool
    #: The part of a mixture that its rows are of; empty for other data.
    part: str = ""


@attrs.frozen(kw_only=True)
class EvaluationFeed:
    """A rank's batches of the validation or test data."""

    dataset: "Dataset"
    columns: Sequence[str] | None
    batch_size: int
    shard_rows: Sequence[int]
    #: Windows to read ahead, in a thread; 0: they are read when they are asked for.
    readahead: int
    rank: int
    world_size: int
    #: Rows of each part of a mixture, in their order; empty for other data.
    parts: Mapping[str, int] = attrs.field(factory=dict)

    @property
    def num_rows(self) -> int:
        """Rows over all ranks."""
        return sum(self.shard_rows)

    @property
    def first_row(self) -> int:
        """Number of this rank's first row, counted through all shards."""
        return self._range(self.rank).start

    def _range(self, rank: int) -> range:
        return range(self.num_rows * rank // self.world_size, self.num_rows * (rank + 1) // self.world_size)

    @property
    def num_batches(self) -> int:
        """Batches on each of the ranks."""
        return max(
            sum(-(-len(rows) // self.batch_size) for _, rows in self._stretches(rank))
            for rank in range(self.world_size)
        )

    def _stretches(self, rank: int) -> list[tuple[str, range]]:
        """A rank's rows of each part."""
        own = self._range(rank)
        ends = accumulate(self.parts.values())
        of_parts = [
            (part, range(max(own.start, end - rows), min(own.stop, end)))
            for (part, rows), end in zip(self.parts.items(), ends, strict=True)
        ]
        return [(part, rows) for part, rows in of_parts or [("", own)] if rows]

    def batches(self, *, stopping: Callable[[], bool] = never) -> Iterator[EvaluationBatch]:
        """The rank's batches: ``batch_size`` rows, the last one what is left.

        :param stopping: Whether the run is to stop; asked while a batch is waited for. The batches end early then.
        """
        own = self._stretches(self.rank)
        done, last = 0, None
        for part, rows in own or [("", range(1))]:  # a rank without rows of its own takes one of another's
            for raw_batch in self._read(rows, stopping):
                last = EvaluationBatch(raw_batch, counts=bool(own), part=part)
                yield last
                done += 1
        while last is not None and done < self.num_batches and not stopping():
            yield last._replace(counts=False)
            done += 1

    def _read(self, rows: range, stopping: Callable[[], bool]) -> Iterator[pa.RecordBatch]:
        closing = threading.Event()

        def unwanted() -> bool:
            return closing.is_set() or (not self.readahead and stopping())

        blocks = self._blocks(rows, unwanted)
        if not self.readahead:
            with suppress(ReadingStopped):
                yield from cut((block.batch for block in blocks), self.batch_size, tail=True)
            return
        ahead = ReadAhead(blocks, depth=self.readahead, closing=closing, stopping=stopping)
        try:
            yield from cut((block.batch for block in iter(ahead.take, None)), self.batch_size, tail=True)
        finally:
            ahead.close()

    def _blocks(self, rows: range, unwanted: Callable[[], bool]) -> Generator[Block, None, None]:
        read = range_reader(self.dataset, self.dataset.shards(), self.columns, unwanted)
        missing = len(rows)
        for block in file_blocks(self.shard_rows, read, rows.start, Share(rank=0, world_size=1)):
            batch = block.batch.slice(0, missing)
            missing -= batch.num_rows
            yield attrs.evolve(block, batch=batch)
            if not missing:
                return


def evaluation_feed(
    dataset: "Dataset", spec: "DatasetSpec", *, pointer: str, rank: int = 0, world_size: int = 1
) -> EvaluationFeed:
    """The feed of opened validation or test data.

    :param spec: The job's settings of it.
    :param pointer: Where these are in the job.
    :raises InvalidData: When there are no rows.
    """
    shard_rows = tuple(shard.num_rows for shard in dataset.shards())
    mixture: Mixture | None = getattr(dataset, "mixture", None)
    names, bounds = (mixture.names, pairwise(accumulate(mixture.shards, initial=0))) if mixture else ((), ())
    if not sum(shard_rows):
        what = pointer.removeprefix("/")
        hint = f'check where it points to, or remove "{what}"'
        raise InvalidData(f"the {what} data has no rows", pointer=pointer, hint=hint)
    return EvaluationFeed(
        dataset=dataset,
        columns=tuple(spec.columns) or None,
        batch_size=spec.batch_size,
        shard_rows=shard_rows,
        readahead=spec.readahead,
        rank=rank,
        world_size=world_size,
        parts={name: sum(shard_rows[first:end]) for name, (first, end) in zip(names, bounds, strict=True)},
    )
