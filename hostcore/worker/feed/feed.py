"""The feed of a run: batches in order, from any position, epoch after epoch."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from hostcore.worker.feed.blocks import cut, range_reader, shuffled_blocks
from hostcore.worker.feed.order import LAYOUT, ShuffledOrder, default_lanes, in_file_order
from hostcore_hookspecs.errors import HostcoreError, InvalidData

if TYPE_CHECKING:
    from hostcore.job.spec import DatasetSpec
    from hostcore_hookspecs.data_source import Dataset


class DataChanged(HostcoreError):
    """A checkpoint belongs to other data, or to another order of it."""

    code = "data.changed"


@attrs.frozen(kw_only=True)
class Cursor:
    """A place in the data: how far the run has come. Part of every checkpoint."""

    epoch: int = 0
    #: Rows of the epoch consumed, over all ranks.
    rows: int = 0


class Feed(Protocol):
    """Where a run's batches come from."""

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
    def memory_bytes(self) -> int:
        """About how much memory it takes; 0 if that is not known."""

    def batches(self, cursor: Cursor) -> Iterator[Any]:
        """The batches of the cursor's epoch, from the cursor on."""

    def identity(self) -> Mapping[str, Any]:
        """What a checkpoint must agree with: the data's fingerprint and the order's parameters. Plain JSON."""


@attrs.frozen(kw_only=True)
class DatasetFeed:
    """Batches of a dataset's rows, in file order or shuffled."""

    dataset: "Dataset"
    columns: Sequence[str] | None
    rows_per_step: int
    seed: int
    shuffle: bool
    #: L and W of the shuffled order; 0 when it is not shuffled.
    lanes: int = 0
    window: int = 0
    #: Of a window as it is read and as it is ordered.
    memory_bytes: int = 0
    shard_rows: Sequence[int]

    @property
    def num_rows(self) -> int:
        """N: the rows of the data."""
        return sum(self.shard_rows)

    @property
    def steps_per_epoch(self) -> int:
        """The tail that does not fill a step is left out."""
        return self.num_rows // self.rows_per_step

    def batches(self, cursor: Cursor) -> "Iterator[Any]":
        """Record batches of exactly ``rows_per_step`` rows."""
        read = range_reader(self.dataset, self.dataset.shards(), self.columns)
        if self.shuffle:
            order = ShuffledOrder(
                shard_rows=self.shard_rows,
                seed=self.seed,
                epoch=cursor.epoch,
                lanes=self.lanes,
                window=self.window,
            )
            return cut(shuffled_blocks(order, read, cursor.rows), self.rows_per_step)
        return cut(read(in_file_order(self.shard_rows, cursor.rows)), self.rows_per_step)

    def identity(self) -> Mapping[str, Any]:
        """Shards with rows and versions, the schema, rows per step, and the parameters of the order."""
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
        }


@attrs.frozen(kw_only=True)
class MockFeed:
    """The job's own ``mock_batches``, over and over; or None for each step of a job without data."""

    #: Empty: every batch is None and the epoch never ends.
    mock_batches: Sequence[Any] = ()

    rows_per_step = 1
    memory_bytes = 0

    @property
    def num_rows(self) -> int:
        """One row per batch: the host does not look into them."""
        return len(self.mock_batches)

    @property
    def steps_per_epoch(self) -> int | None:
        """One step per batch."""
        return len(self.mock_batches) or None

    def batches(self, cursor: Cursor) -> Iterator[Any]:
        """The batches from the cursor on."""
        if self.mock_batches:
            yield from self.mock_batches[cursor.rows :]
            return
        while True:
            yield None

    def identity(self) -> Mapping[str, Any]:
        """The number of batches."""
        return {"mock_batches": len(self.mock_batches)}


def dataset_feed(dataset: "Dataset", spec: "DatasetSpec", *, seed: int, pointer: str) -> DatasetFeed:
    """The feed of an opened dataset.

    :param spec: The job's settings of it.
    :param pointer: Where these are in the job.
    :raises InvalidData: When there is less than one batch of data, or one row is larger than a window may be.
    """
    shards = dataset.shards()
    shard_rows = tuple(shard.num_rows for shard in shards)
    if sum(shard_rows) < spec.batch_size:
        raise InvalidData(
            f"the data has {sum(shard_rows):,} rows, less than one batch of {spec.batch_size:,}",
            pointer=f"{pointer}/batch_size",
            hint="lower batch_size, or add data",
        )
    columns = tuple(spec.columns) or None
    lanes = window = memory_bytes = 0
    if spec.shuffle:
        lanes = min(spec.lanes or default_lanes(len(shards)), sum(shard_rows))
        row_bytes = _row_bytes(dataset, columns, spec, pointer)
        window = min(max(lanes, min(spec.shuffle_window, spec.window_bytes // row_bytes)), sum(shard_rows))
        memory_bytes = 2 * window * row_bytes
    return DatasetFeed(
        dataset=dataset,
        columns=columns,
        rows_per_step=spec.batch_size,
        seed=seed,
        shuffle=spec.shuffle,
        lanes=lanes,
        window=window,
        memory_bytes=memory_bytes,
        shard_rows=shard_rows,
    )


def _row_bytes(dataset: "Dataset", columns: Sequence[str] | None, spec: "DatasetSpec", pointer: str) -> int:
    """The bytes of a decoded row, by those of the first shard.

    Measured, because the metadata of a Parquet file can say 195 KB for rows that decode to 400 MB.
    """
    shards = dataset.shards()
    first = in_file_order([shard.num_rows for shard in shards], 0)[:1]
    sample = next(batch for batch in range_reader(dataset, shards, columns)(first) if batch.num_rows)
    row_bytes = max(1, int(sample.nbytes) // int(sample.num_rows))
    if row_bytes > spec.window_bytes:
        raise InvalidData(
            f"one row takes {row_bytes:,} bytes, more than a whole shuffle window may ({spec.window_bytes:,})",
            pointer=f"{pointer}/window_bytes",
            hint="raise dataset.window_bytes, or turn dataset.shuffle off",
        )
    return row_bytes


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
        "order": "the shuffling",
    }
    changed = [key for key in {**stored, **now} if stored.get(key) != now.get(key)]
    what = ", ".join(dict.fromkeys(names.get(key, key) for key in changed))
    raise DataChanged(
        f"the data is not the data that the checkpoint was written with: {what} changed",
        pointer="/dataset",
        file=checkpoint,
        hint="start a new run under another run_id, or give the run its data back",
    )
