"""The feed of a run: batches in order, from any position, epoch after epoch."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from hostcore.worker.feed.blocks import file_blocks, shuffled_blocks
from hostcore.worker.feed.digest import OrderLayout, advice
from hostcore.worker.feed.gathering import Block
from hostcore.worker.feed.mixture import MixtureLayout, mixture_blocks
from hostcore.worker.feed.order import EVERYTHING, LAYOUT, Share, ShuffledOrder, default_lanes
from hostcore.worker.feed.reading import ReadRanges, never, range_reader
from hostcore.worker.feed.stream import DatasetStream, MockStream
from hostcore.worker.feed.window import WindowLimit, measure_row, window_memory
from hostcore_hookspecs.context import RowSlice
from hostcore_hookspecs.errors import HostcoreError, InvalidData

if TYPE_CHECKING:
    from hostcore.job.sections import DatasetSpec
    from hostcore_hookspecs.data_source import Dataset, Mixture

#: Of a mixture, what is put in order together, over all ranks.
_PIECE_ROWS: Final = 8_192
_PIECE_BYTES: Final = 8 << 20


class DataChanged(HostcoreError):
    """A checkpoint belongs to other data, or to another order of it."""

    code = "data.changed"


@attrs.frozen(kw_only=True)
class Cursor:
    """A place in the data: how far the run has come. Part of every checkpoint."""

    epoch: int = 0
    #: Rows of the epoch consumed, over all ranks.
    rows: int = 0


class Stream(Protocol):
    """A rank's batches from a cursor to the end of its epoch; to be iterated once."""

    def __iter__(self) -> Iterator[Any]:
        """The batches. They end early when the run is to stop while the stream waits for data."""

    @property
    def row_slice(self) -> RowSlice | None:
        """Place of the batch that was given out last; None: a batch is as it is."""

    def digest(self, rows: int) -> int:
        """The digest of this rank's rows from where the stream began up to a position, as they were really read.

        Those of all ranks add up, modulo 2^64, to that of the whole; see ``hostcore.worker.feed.digest``.

        :param rows: Rows of the epoch consumed, over all ranks; whole steps, from the last 16,384 given out.
        """

    def close(self) -> None:
        """End reading ahead. The digest can still be asked for."""


class Feed(Protocol):
    """Source of a run's batches."""

    @property
    def steps_per_epoch(self) -> int | None:
        """None: an epoch never ends."""

    @property
    def rows_per_step(self) -> int:
        """Rows of a step over all ranks."""

    @property
    def num_rows(self) -> int:
        """Rows of an epoch; 0 without data."""

    @property
    def shard_rows(self) -> Sequence[int]:
        """Rows of each shard, in file order; empty without data."""

    @property
    def memory_bytes(self) -> int:
        """About how much memory it takes; 0 if that is not known."""

    def stream(self, cursor: Cursor, *, stopping: Callable[[], bool] = never) -> Stream:
        """The batches of the cursor's epoch, from the cursor on.

        :param stopping: Whether the run is to stop; asked while the stream waits for data.
        """

    def identity(self) -> Mapping[str, Any]:
        """Return the identity that a checkpoint must have: the data's fingerprint and the order's parameters (JSON)."""

    def warnings(self) -> Sequence[str]:
        """Return warnings about the data's shape, each with the remedy."""


@attrs.frozen(kw_only=True)
class DatasetFeed:
    """Batches of a dataset's rows, in file order or shuffled."""

    dataset: "Dataset"
    columns: Sequence[str] | None
    rows_per_step: int
    seed: int
    shuffle: bool
    #: Batches that a rank's rows of a step come in.
    micro_batches: int = 1
    #: L and W of the shuffled order; 0 when it is not shuffled.
    lanes: int = 0
    window: int = 0
    #: Of the windows that are read, ordered, ready and in use.
    memory_bytes: int = 0
    shard_rows: Sequence[int]
    rank: int = 0
    world_size: int = 1
    #: Windows to read ahead, in a thread; 0: they are read when they are asked for.
    readahead: int = 0
    #: What a window may take.
    limit: WindowLimit
    #: The order of a dataset with parts; its windows are theirs, and it has no lanes of its own.
    mixture: MixtureLayout | None = None
    #: Of a mixture, the rows over all ranks that are put in order together.
    piece_rows: int = 0

    @property
    def num_rows(self) -> int:
        """N: the rows of the data; of a mixture, of an epoch."""
        return self.mixture.num_rows if self.mixture else sum(self.shard_rows)

    @property
    def steps_per_epoch(self) -> int:
        """The tail that does not fill a step is left out."""
        return self.num_rows // self.rows_per_step

    @property
    def layout(self) -> OrderLayout | MixtureLayout:
        """Parameters that determine the order of the rows."""
        return self.mixture or OrderLayout(
            shard_rows=self.shard_rows,
            seed=self.seed,
            rows_per_step=self.rows_per_step,
            lanes=self.lanes,
            window=self.window,
        )

    def stream(self, cursor: Cursor, *, stopping: Callable[[], bool] = never) -> DatasetStream:
        """Record batches of the rows at p ≡ rank (mod world_size), of one micro-batch each."""
        share = Share(rank=self.rank, world_size=self.world_size)
        return DatasetStream(
            lambda unwanted: self._blocks(cursor, share, unwanted),
            epoch=cursor.epoch,
            start=cursor.rows,
            share=share,
            rows_per_step=self.rows_per_step,
            micro_batches=self.micro_batches,
            steps=(self.num_rows - cursor.rows) // self.rows_per_step,
            readahead=self.readahead,
            stopping=stopping,
        )

    def _blocks(self, cursor: Cursor, share: Share, unwanted: Callable[[], bool]) -> Iterator[Block]:
        read = range_reader(self.dataset, self.dataset.shards(), self.columns, unwanted)
        if isinstance(self.layout, OrderLayout):
            return _layout_blocks(self.layout, cursor, read, share, self.limit)
        layout, shards, first, row = self.layout, self.dataset.shards(), 0, 0
        opens: list[Callable[[Cursor], Iterator[Block]]] = []
        for part in layout.parts:
            own = shards[first : first + len(part.shard_rows)]
            read = range_reader(self.dataset, own, self.columns, unwanted, first_row=row)
            opens.append(partial(_layout_blocks, part, read=read, share=EVERYTHING, limit=self.limit))
            first, row = first + len(own), row + sum(part.shard_rows)
        return mixture_blocks(
            layout,
            cursor.epoch,
            cursor.rows,
            share,
            open_part=lambda part, number, start: opens[part](Cursor(epoch=number, rows=start)),
            piece_rows=self.piece_rows,
        )

    def identity(self) -> Mapping[str, Any]:
        """Shards with rows and versions, the schema, rows per step, and the parameters of the order.

        Of text, also the version of its shards: runs of before this entry have others.
        """
        text_version = getattr(self.dataset, "text_version", "")
        shards = hashlib.sha256()
        for shard in self.dataset.shards():
            shards.update(f"{shard.id}\0{shard.num_rows}\0{shard.version}\n".encode())
        return {
            "rows": self.num_rows,
            "batch_size": self.rows_per_step,
            "columns": [f"{field.name}: {field.type}" for field in self.dataset.schema],
            "shards": shards.hexdigest(),
            "seed": self.seed,
            "order": LAYOUT if self.shuffle else "file",
            "lanes": self.lanes,
            "window": self.window,
            **({"text": text_version} if text_version else {}),
            **(self.mixture.identity() if self.mixture else {}),
        }

    def warnings(self) -> Sequence[str]:
        """Data that several ranks decode more often than they should, or that mixes poorly."""
        if isinstance(self.layout, OrderLayout):
            return tuple(advice(self.layout, self.world_size))
        names = self.layout.mixture.names
        found = [
            f"{name}: {one}" for name, part in zip(names, self.layout.parts, strict=True) for one in advice(part, 1)
        ]
        if self.world_size > 1:
            found.append(f"each of {self.world_size} ranks decodes all rows of the mixture, and keeps its share")
        return tuple(found)


def _layout_blocks(
    layout: OrderLayout, cursor: Cursor, read: ReadRanges, share: Share, limit: WindowLimit
) -> Iterator[Block]:
    """Return a share of the rows of an epoch from a cursor on, in file order or shuffled."""
    if not layout.lanes:
        return file_blocks(layout.shard_rows, read, cursor.rows, share)
    order = ShuffledOrder(
        shard_rows=layout.shard_rows, seed=layout.seed, epoch=cursor.epoch, lanes=layout.lanes, window=layout.window
    )
    return shuffled_blocks(order, read, cursor.rows, share, limit)


@attrs.frozen(kw_only=True)
class MockFeed:
    """The job's own ``mock_batches``, over and over; or None for each step of a job without data."""

    #: Empty: every batch is None and the epoch never ends.
    mock_batches: Sequence[Any] = ()
    rank: int = 0
    world_size: int = 1
    micro_batches: int = 1

    memory_bytes = 0

    @property
    def rows_per_step(self) -> int:
        """A batch counts as one row."""
        return self.world_size * self.micro_batches

    @property
    def num_rows(self) -> int:
        """One row per batch: the host does not look into them."""
        return len(self.mock_batches)

    @property
    def steps_per_epoch(self) -> int | None:
        """Batches that do not fill a step are left out."""
        return self.num_rows // self.rows_per_step or None

    @property
    def shard_rows(self) -> Sequence[int]:
        """All batches are one shard."""
        return (len(self.mock_batches),) if self.mock_batches else ()

    def stream(self, cursor: Cursor, *, stopping: Callable[[], bool] = never) -> MockStream:  # noqa: ARG002
        """The batches from the cursor on; they never have to be waited for."""
        return MockStream(
            mock_batches=self.mock_batches,
            epoch=cursor.epoch,
            start=cursor.rows,
            stop=self.num_rows // self.rows_per_step * self.rows_per_step,
            share=Share(rank=self.rank, world_size=self.world_size),
        )

    def identity(self) -> Mapping[str, Any]:
        """The number of batches, and how many a step takes."""
        return {"mock_batches": len(self.mock_batches), "batch_size": self.rows_per_step}

    def warnings(self) -> Sequence[str]:
        """None."""
        return ()


def mock_feed(batches: Sequence[Any] | None, *, rank: int, world_size: int, micro_batches: int) -> MockFeed:
    """The feed of a job's ``mock_batches``, or of a job without data.

    :raises InvalidData: When there is less than one step of them.
    """
    feed = MockFeed(mock_batches=batches or (), rank=rank, world_size=world_size, micro_batches=micro_batches)
    if batches and feed.steps_per_epoch is None:
        raise InvalidData(
            f"a step takes {feed.rows_per_step} mock batches, one for each rank and micro-batch; "
            f"there are {len(batches)}",
            pointer="/mock_batches",
            hint="give more of them",
        )
    return feed


def dataset_feed(
    dataset: "Dataset",
    spec: "DatasetSpec",
    *,
    seed: int,
    pointer: str,
    rank: int = 0,
    world_size: int = 1,
    micro_batches: int = 1,
) -> DatasetFeed:
    """The feed of an opened dataset.

    :param spec: The job's settings of it.
    :param pointer: Where these are in the job.
    :param micro_batches: Batches per step on each rank.
    :raises InvalidData: When there is less than one step of data, or one row is larger than a window may be.
    """
    shards = dataset.shards()
    shard_rows = tuple(shard.num_rows for shard in shards)
    rows_per_step = spec.batch_size * world_size * micro_batches

    def require_step(rows: int, what: str) -> None:
        if rows < rows_per_step:
            each = f" on each of {world_size} ranks" if world_size > 1 else ""
            batches = f"{micro_batches} batches" if micro_batches > 1 else "one batch"
            raise InvalidData(
                f"{what} has {rows:,} rows, less than {batches} of {spec.batch_size:,}{each}",
                pointer=f"{pointer}/batch_size",
                hint="lower batch_size, or add data",
            )

    require_step(sum(shard_rows), "the data")
    columns = tuple(spec.columns) or None
    of: Mixture | None = getattr(dataset, "mixture", None)
    counts = of.shards if of else (len(shards),)
    limit = WindowLimit(window_bytes=spec.window_bytes // len(counts), pointer=pointer)
    sized = []
    for first, end in pairwise(accumulate(counts, initial=0)) if of or spec.shuffle else ():
        row_bytes = measure_row(dataset, shards[first:end], columns)
        sized.append(_sized(shard_rows[first:end], row_bytes, spec, limit, spec.shuffle_window // len(counts)))
    mixture = None
    if of:
        lanes, windows = [one.lanes for one in sized], [one.window for one in sized]
        mixture = MixtureLayout.of(of, shard_rows, seed=seed, rows_per_step=rows_per_step, lanes=lanes, window=windows)
        require_step(mixture.num_rows, "an epoch of the mixture")
    alone = sized[0] if sized and not of else _Sized(lanes=0, window=0, row_bytes=0)
    window_bytes = sum(one.window * one.row_bytes for one in sized)
    if alone.lanes:
        window_bytes = window_bytes * len(Share(rank=rank, world_size=world_size).lanes(alone.lanes)) // alone.lanes
    return DatasetFeed(
        dataset=dataset,
        columns=columns,
        rows_per_step=rows_per_step,
        micro_batches=micro_batches,
        seed=seed,
        shuffle=spec.shuffle,
        lanes=alone.lanes,
        window=alone.window,
        memory_bytes=window_memory(window_bytes, spec.readahead) if spec.shuffle else 0,
        shard_rows=shard_rows,
        rank=rank,
        world_size=world_size,
        readahead=spec.readahead,
        limit=limit,
        mixture=mixture,
        piece_rows=min(_PIECE_ROWS, 1 + _PIECE_BYTES // max(one.row_bytes for one in sized)) if of else 0,
    )


@attrs.frozen(kw_only=True)
class _Sized:
    """L and W of an order, for rows of a size; 0 in file order."""

    lanes: int
    window: int
    row_bytes: int


def _sized(
    shard_rows: Sequence[int], row_bytes: int, spec: "DatasetSpec", limit: WindowLimit, most_rows: int
) -> _Sized:
    if not spec.shuffle:
        return _Sized(lanes=0, window=0, row_bytes=row_bytes)
    lanes = min(spec.lanes or default_lanes(len(shard_rows)), sum(shard_rows))
    limit.check_row(row_bytes, lanes)
    window = min(max(lanes, min(most_rows, limit.window_bytes // row_bytes)), sum(shard_rows))
    return _Sized(lanes=lanes, window=window, row_bytes=row_bytes)


def check_identity(stored: Mapping[str, Any], feed: Feed, *, checkpoint: str) -> None:
    """Refuse to go on with other data than a checkpoint was written with.

    :raises DataChanged: Naming what differs.
    """
    now = feed.identity()
    if stored == now:
        return
    names = {
        "rows": "the number of rows",
        "batch_size": "the batch size",
        "columns": "the columns",
        "shards": "the files",
        "text": "the files",
        "seed": "the seed",
        "order": "the shuffling",
        "lanes": "the shuffling",
        "window": "the shuffling",
        "mock_batches": "the mock batches",
        "mixture": "the mixture",
    }
    changed = [key for key in {**stored, **now} if stored.get(key) != now.get(key)]
    if "text" in changed and not {"rows", "columns"} & set(changed):
        raise DataChanged(
            "the data is CSV or JSON, and this version of hostcore reads it in another order than the one that wrote "
            "the checkpoint",
            pointer="/dataset",
            file=checkpoint,
            hint="start a new run under another run_id, or go on with the version of hostcore that began this one",
        )
    what = ", ".join(dict.fromkeys(names.get(key, key) for key in changed))
    raise DataChanged(
        f"the data is not the data that the checkpoint was written with: {what} changed",
        pointer="/dataset",
        file=checkpoint,
        hint="start a new run under another run_id, or give the run its data back",
    )
