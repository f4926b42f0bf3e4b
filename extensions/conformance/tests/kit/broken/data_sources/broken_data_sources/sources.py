"""The reference source with one thing broken, once for each check."""

import io
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from reference_plugins.data_source import NumberFiles, ReferenceSource

from hostcore_hookspecs import DataContext, InvalidData, Shard


class _Broken(ReferenceSource):
    """Opens the same files, as a dataset of another class."""

    DATASET: ClassVar[type[NumberFiles]] = NumberFiles

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> Any:
        opened = super().open_dataset(dataset, ctx)
        opened.__class__ = self.DATASET
        return opened


class NoSchema(ReferenceSource):
    """Returns something else."""

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> Any:
        return [super().open_dataset(dataset, ctx)]


class ChangesTheJob(ReferenceSource):
    """Takes out of the job's section what it has read."""

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> Any:
        opened = super().open_dataset(dataset, ctx)
        del dataset["columns"]  # type: ignore[attr-defined]
        return opened


class InfersTypes(_Broken):
    """The types of each batch are found anew: whole numbers come as integers."""

    class DATASET(NumberFiles):
        def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
            for batch in super().read_shard(shard, columns, offset):
                yield pa.RecordBatch.from_pydict(batch.to_pydict() | {"hour": pc.cast(batch["hour"], pa.int32())})


class YieldsTables(_Broken):
    """Tables in place of batches."""

    class DATASET(NumberFiles):
        def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[Any]:
            for batch in super().read_shard(shard, columns, offset):
                yield pa.Table.from_batches([batch])


class FileOrder(_Broken):
    """Columns come in the order of the file."""

    class DATASET(NumberFiles):
        def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
            wanted = columns or self.schema.names
            for batch in super().read_shard(shard, columns, offset):
                yield batch.select([name for name in ("id", "hour", "delay") if name in wanted])


class RaisesKeyError(ReferenceSource):
    """A column that is not there is told as Python does."""

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> Any:
        try:
            return super().open_dataset(dataset, ctx)
        except InvalidData as error:
            raise KeyError(str(error)) from error


class IgnoresUnknown(ReferenceSource):
    """A column that is not there is left out without a word."""

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> Any:
        known = [name for name in dataset.get("columns") or () if name in ("id", "hour", "delay")]
        return super().open_dataset({**dataset, "columns": known}, ctx)


class MakesNulls(_Broken):
    """Zeros become nulls."""

    class DATASET(NumberFiles):
        def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
            for batch in super().read_shard(shard, columns, offset):
                arrays = [pc.if_else(pc.equal(column, 0), None, column) for column in batch.columns]
                yield pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


class SharesByRank(ReferenceSource):
    """Gives each rank its own shards."""

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> Any:
        opened = super().open_dataset(dataset, ctx)
        own = opened.shards()[ctx.rank :: ctx.world_size]
        opened.shards = lambda: own  # type: ignore[method-assign]
        return opened


class VersionIsNow(_Broken):
    """The version is the time of asking."""

    class DATASET(NumberFiles):
        def shards(self) -> Sequence[Shard]:
            return [attrs.evolve(shard, version=str(time.monotonic_ns())) for shard in super().shards()]


class OneId(_Broken):
    """All shards of a file have its name."""

    class DATASET(NumberFiles):
        def shards(self) -> Sequence[Shard]:
            return [attrs.evolve(shard, id=shard.id.partition("#")[0]) for shard in super().shards()]


class CountsOneTooMany(_Broken):
    """The last shard counts the end of the file as a row."""

    class DATASET(NumberFiles):
        def shards(self) -> Sequence[Shard]:
            *others, last = super().shards()
            return [*others, attrs.evolve(last, num_rows=last.num_rows + 1)]


class EndsIncluded(_Broken):
    """Every shard but the first begins with the last row of the one before, and has one row less of its own."""

    class DATASET(NumberFiles):
        def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
            known = super().shards()
            place = next(i for i, one in enumerate(known) if one.id == shard.id)
            own = pa.Table.from_batches(list(super().read_shard(shard, columns, 0)))
            if place:
                before = pa.Table.from_batches(list(super().read_shard(known[place - 1], columns, 0)))
                own = pa.concat_tables([before.slice(before.num_rows - 1), own.slice(0, own.num_rows - 1)])
            yield from own.slice(offset).combine_chunks().to_batches()


class ForgetsAFile(ReferenceSource):
    """The last file is passed over."""

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> Any:
        self._settings = attrs.evolve(self._settings, paths=self._settings.paths[:1])
        return super().open_dataset(dataset, ctx)


class OffByOne(_Broken):
    """An offset skips one row less."""

    class DATASET(NumberFiles):
        def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
            return super().read_shard(shard, columns, max(offset - 1, 0))


class Shuffles(_Broken):
    """Rows come in another order every time."""

    class DATASET(NumberFiles):
        def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
            own = pa.Table.from_batches(list(super().read_shard(shard, columns, offset)))
            order = random.SystemRandom().sample(range(own.num_rows), own.num_rows)
            yield from own.take(pa.array(order, pa.int64())).combine_chunks().to_batches()


class OneHandle(_Broken):
    """All readers of a dataset move one position."""

    class DATASET(NumberFiles):
        def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
            self._position = offset
            while self._position < shard.num_rows:
                batch = next(super().read_shard(shard, columns, self._position))
                self._position += batch.num_rows
                yield batch


class OneHandleForAll(_Broken):
    """All readers of the process move one position."""

    class DATASET(NumberFiles):
        position = 0

        def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
            own = type(self)
            own.position = offset
            while own.position < shard.num_rows:
                batch = next(super().read_shard(shard, columns, own.position))
                own.position += batch.num_rows
                yield batch


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


class ReusesItsBuffer(_Broken):
    """The integers of every batch lie in the same memory."""

    class DATASET(NumberFiles):
        def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
            buffer = bytearray(8 * 64)
            for batch in super().read_shard(shard, columns, offset):
                arrays = [_in_buffer(column, buffer) if column.type == pa.int64() else column for column in batch]
                yield pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _in_buffer(column: pa.Array, buffer: bytearray) -> pa.Array:
    memoryview(buffer).cast("q")[: len(column)] = memoryview(_words(column.to_pylist())).cast("q")
    return pa.Array.from_buffers(pa.int64(), len(column), [None, pa.py_buffer(buffer)])


def _words(numbers: Sequence[int]) -> bytes:
    return b"".join(number.to_bytes(8, "little", signed=True) for number in numbers)


class KeepsHandles(_Broken):
    """Every reader opens the file, and only the end of the shard closes it."""

    class DATASET(NumberFiles):
        _handles: ClassVar[list[Any]] = []

        def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
            handle = io.FileIO(shard.id.partition("#")[0])
            self._handles.append(handle)
            yield from super().read_shard(shard, columns, offset)
            self._handles.remove(handle)
            handle.close()


class LetsErrorsThrough(ReferenceSource):
    """A file that is not there is told as Python does."""

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> Any:
        for path in self._settings.paths:
            Path(path).stat()
        return super().open_dataset(dataset, ctx)


class PassesOverMissing(ReferenceSource):
    """A file that is not there is left out without a word."""

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> Any:
        there = tuple(path for path in self._settings.paths if Path(path).exists())
        self._settings = attrs.evolve(self._settings, paths=there)
        return super().open_dataset(dataset, ctx)


class LocalOnly(ReferenceSource):
    """Reads files of this machine alone."""

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> Any:
        for path in self._settings.paths:
            if not Path(path).exists():
                raise InvalidData(f"{path} does not exist", file=path)
        return super().open_dataset(dataset, ctx)


class NoVersions(_Broken):
    """Shards have no versions."""

    class DATASET(NumberFiles):
        def shards(self) -> Sequence[Shard]:
            return [attrs.evolve(shard, version="") for shard in super().shards()]


class ShufflesForTheHost(_Broken):
    """Sees that the job shuffles, and draws rows itself, with replacement."""

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> Any:
        opened = super().open_dataset(dataset, ctx)
        if dataset.get("shuffle"):
            opened.__class__ = _DrawsRows
        return opened


class _DrawsRows(NumberFiles):
    def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
        own = pa.Table.from_batches(list(super().read_shard(shard, columns, 0)))
        draw = random.Random(shard.id)
        drawn = [draw.randrange(own.num_rows) for _ in range(own.num_rows)]
        yield from own.take(pa.array(drawn[offset:], pa.int64())).combine_chunks().to_batches()
