"""The reference source with one thing broken, once for each check."""

import io
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve
from reference_plugins.breaking import Change, after, broken, given, instead, then
from reference_plugins.data_source import NumberFiles, ReferenceSource

from hostcore_hookspecs import DataContext, InvalidData, Shard

COLUMNS = ("id", "hour", "delay")


def _opened_as(dataset: type) -> Change:
    """Open the same files, as a dataset of another class."""
    return then("open_dataset", lambda result: setattr(result, "__class__", dataset))


def _of_dataset(change: Change) -> Change:
    """Open the same files, as a dataset with a change."""
    return _opened_as(type("Broken", (NumberFiles,), dict(change(NumberFiles))))


def _shards(change: Callable[[Shard], Shard]) -> Change:
    return _of_dataset(after("shards", lambda result: [change(shard) for shard in result]))


def _batches(change: Callable[[pa.RecordBatch], Any]) -> Change:
    return _of_dataset(after("read_shard", lambda result: (change(batch) for batch in result)))


def _rows(change: Callable[[pa.Table], pa.Table]) -> Change:
    """Change the rows that are left of a shard."""

    def changed(result: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from change(pa.Table.from_batches(list(result))).combine_chunks().to_batches()

    return _of_dataset(after("read_shard", changed))


def _paths(change: Callable[[Sequence[str]], Sequence[str]]) -> Change:
    """Open other files."""

    def changed(self: ReferenceSource, call: Callable[[], Any]) -> Any:
        self._settings = evolve(self._settings, paths=tuple(change(self._settings.paths)))
        return call()

    return instead("open_dataset", changed)


def _shuffled(rows: pa.Table) -> pa.Table:
    return rows.take(pa.array(random.SystemRandom().sample(range(rows.num_rows), rows.num_rows), pa.int64()))


def _with_nulls(batch: pa.RecordBatch) -> pa.RecordBatch:
    arrays = [pc.if_else(pc.equal(column, 0), None, column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


broken(
    globals(),
    ReferenceSource,
    # Returns something else.
    NoSchema=after("open_dataset", lambda result: [result]),
    # Takes out of the job's section what it has read.
    ChangesTheJob=then("open_dataset", lambda dataset: dataset.pop("columns")),
    # The types of each batch are found anew: whole numbers come as integers.
    InfersTypes=_batches(
        lambda batch: pa.RecordBatch.from_pydict(batch.to_pydict() | {"hour": pc.cast(batch["hour"], pa.int32())})
    ),
    # Tables in place of batches.
    YieldsTables=_batches(lambda batch: pa.Table.from_batches([batch])),
    # Columns come in the order of the file.
    FileOrder=_batches(lambda batch: batch.select([name for name in COLUMNS if name in batch.schema.names])),
    # A column that is not there is left out without a word.
    IgnoresUnknown=given(
        "open_dataset",
        dataset=lambda dataset: {**dataset, "columns": [one for one in dataset.get("columns") or () if one in COLUMNS]},
    ),
    # Zeros become nulls.
    MakesNulls=_batches(_with_nulls),
    # The version is the time of asking.
    VersionIsNow=_shards(lambda shard: evolve(shard, version=str(time.monotonic_ns()))),
    # All shards of a file have its name.
    OneId=_shards(lambda shard: evolve(shard, id=shard.id.partition("#")[0])),
    # Shards have no versions.
    NoVersions=_shards(lambda shard: evolve(shard, version="")),
    # The last shard counts the end of the file as a row.
    CountsOneTooMany=_of_dataset(
        after("shards", lambda result: [*result[:-1], evolve(result[-1], num_rows=result[-1].num_rows + 1)])
    ),
    # The last file is passed over.
    ForgetsAFile=_paths(lambda paths: paths[:1]),
    # A file that is not there is left out without a word.
    PassesOverMissing=_paths(lambda paths: [path for path in paths if Path(path).exists()]),
    # A file that is not there is told as Python does.
    LetsErrorsThrough=_paths(lambda paths: [path for path in paths if Path(path).stat()]),
    # An offset skips one row less.
    OffByOne=_of_dataset(given("read_shard", offset=lambda offset: max(offset - 1, 0))),
    # Rows come in another order every time.
    Shuffles=_rows(_shuffled),
)


class RaisesKeyError(ReferenceSource):
    """A column that is not there is told as Python does."""

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> Any:
        try:
            return super().open_dataset(dataset, ctx)
        except InvalidData as error:
            raise KeyError(str(error)) from error


class SharesByRank(ReferenceSource):
    """Gives each rank its own shards."""

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> Any:
        opened = super().open_dataset(dataset, ctx)
        own = opened.shards()[ctx.rank :: ctx.world_size]
        opened.shards = lambda: own  # type: ignore[method-assign]
        return opened


class LocalOnly(ReferenceSource):
    """Reads files of this machine alone."""

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> Any:
        for path in self._settings.paths:
            if not Path(path).exists():
                raise InvalidData(f"{path} does not exist", file=path)
        return super().open_dataset(dataset, ctx)


class BoundToItsThread(ReferenceSource):
    """Can be read in the thread only that opened it, as connections of some databases."""

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> Any:
        opened, home, read = super().open_dataset(dataset, ctx), threading.get_ident(), NumberFiles.read_shard

        def read_shard(shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
            if threading.get_ident() != home:
                raise RuntimeError("this connection was made in another thread")
            return read(opened, shard, columns, offset)

        opened.read_shard = read_shard  # type: ignore[method-assign]
        return opened


# --- datasets ---------------------------------------------------------------------------------------------------------


def _in_buffer(column: pa.Array, buffer: bytearray) -> pa.Array:
    memoryview(buffer).cast("q")[: len(column)] = memoryview(_words(column.to_pylist())).cast("q")
    return pa.Array.from_buffers(pa.int64(), len(column), [None, pa.py_buffer(buffer)])


def _words(numbers: Sequence[int]) -> bytes:
    return b"".join(number.to_bytes(8, "little", signed=True) for number in numbers)


class _EndsIncluded(NumberFiles):
    """Every shard but the first begins with the last row of the one before, and has one row less of its own."""

    def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
        known = super().shards()
        place = next(i for i, one in enumerate(known) if one.id == shard.id)
        own = pa.Table.from_batches(list(super().read_shard(shard, columns, 0)))
        if place:
            before = pa.Table.from_batches(list(super().read_shard(known[place - 1], columns, 0)))
            own = pa.concat_tables([before.slice(before.num_rows - 1), own.slice(0, own.num_rows - 1)])
        yield from own.slice(offset).combine_chunks().to_batches()


class _OneHandle(NumberFiles):
    """All readers of a dataset move one position."""

    def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
        self._position = offset
        while self._position < shard.num_rows:
            batch = next(super().read_shard(shard, columns, self._position))
            self._position += batch.num_rows
            yield batch


class _OneHandleForAll(NumberFiles):
    """All readers of the process move one position."""

    position = 0

    def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
        own = type(self)
        own.position = offset
        while own.position < shard.num_rows:
            batch = next(super().read_shard(shard, columns, own.position))
            own.position += batch.num_rows
            yield batch


class _ReusesItsBuffer(NumberFiles):
    """The integers of every batch lie in the same memory."""

    def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
        buffer = bytearray(8 * 64)
        for batch in super().read_shard(shard, columns, offset):
            arrays = [_in_buffer(column, buffer) if column.type == pa.int64() else column for column in batch]
            yield pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


class _KeepsHandles(NumberFiles):
    """Every reader opens the file, and only the end of the shard closes it."""

    _handles: ClassVar[list[Any]] = []

    def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
        handle = io.FileIO(shard.id.partition("#")[0])
        self._handles.append(handle)
        yield from super().read_shard(shard, columns, offset)
        self._handles.remove(handle)
        handle.close()


class _DrawsRows(NumberFiles):
    """Draws rows itself, with replacement."""

    def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
        own = pa.Table.from_batches(list(super().read_shard(shard, columns, 0)))
        draw = random.Random(shard.id)
        drawn = [draw.randrange(own.num_rows) for _ in range(own.num_rows)]
        yield from own.take(pa.array(drawn[offset:], pa.int64())).combine_chunks().to_batches()


broken(
    globals(),
    ReferenceSource,
    EndsIncluded=_opened_as(_EndsIncluded),
    OneHandle=_opened_as(_OneHandle),
    OneHandleForAll=_opened_as(_OneHandleForAll),
    ReusesItsBuffer=_opened_as(_ReusesItsBuffer),
    KeepsHandles=_opened_as(_KeepsHandles),
    # Sees that the job shuffles, and does so itself.
    ShufflesForTheHost=then(
        "open_dataset", lambda result, dataset: dataset.get("shuffle") and setattr(result, "__class__", _DrawsRows)
    ),
)
