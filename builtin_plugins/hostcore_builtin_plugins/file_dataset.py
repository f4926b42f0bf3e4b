"""A dataset made of files whose parts (row groups, record batches) are its shards."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import pyarrow as pa

from hostcore_builtin_plugins.columns import choose_columns, require_same_columns
from hostcore_builtin_plugins.layouts import plain_batches
from hostcore_builtin_plugins.stores import DataFile
from hostcore_hookspecs import DataContext, InvalidData, Shard

#: Reading the index of a file is waiting, mostly.
_SCAN_THREADS = 16
#: What columns that are stored as dictionaries or runs may take in a batch, as plain values.
_PLAIN_BYTES = 4 << 20

#: How files of other formats begin.
_MAGIC = {
    b"PAR1": "a Parquet file: set dataset.source to parquet",
    b"ARROW1": "an Arrow IPC file: set dataset.source to arrow",
    b"FEA1": "a file of Feather version 1: write it again as Parquet or Arrow IPC",
    b"\x1f\x8b": "gzip: unpack it first",
    b"PK\x03\x04": "a zip archive: unpack it first",
}


@attrs.frozen(kw_only=True)
class FilePart:
    """A row group or a record batch."""

    num_rows: int
    #: Where it begins, in bytes, if the reader needs to be told.
    position: int | None = None


@attrs.frozen(kw_only=True)
class FileIndex:
    """What a file says about itself."""

    schema: pa.Schema
    parts: Sequence[FilePart]


@attrs.frozen(kw_only=True)
class Place:
    """Where a shard is."""

    file: DataFile
    #: Counts from 0.
    index: int
    part: FilePart


class FileDataset(ABC):
    """A dataset of files. A format says how the index of a file is read, and how a part of it is.

    :param files: In order.
    :param dataset: The job's settings of the dataset: its ``columns`` are read here.
    :param ctx: About the run.
    :param allow_nulls: Whether nulls in numeric columns are let through.
    :raises InvalidData: If a file is damaged or lacks a column, if the files differ, or if there are no rows.
    """

    #: What messages call a part of a file.
    part_name: str

    def __init__(
        self, files: Sequence[DataFile], *, dataset: Mapping[str, Any], ctx: DataContext, allow_nulls: bool
    ) -> None:
        self.allow_nulls = allow_nulls
        pointer, columns = job_pointer(ctx), dataset.get("columns") or ()
        self._places: dict[str, Place] = {}
        shards = []
        first: tuple[DataFile, pa.Schema] | None = None
        for file, found in _scan(files, self.read_index):
            parts = [(i, part) for i, part in enumerate(found.parts) if part.num_rows]
            if not parts:
                continue  # a file without rows is as good as not there; tools give its columns any type
            if first is None:
                first = file, choose_columns(found.schema, columns, pointer=f"{pointer}/columns", file=file.name)
            require_same_columns(*first, found.schema, file, exact=not columns)
            for i, part in parts:
                shard = Shard(id=f"{file.name}#{i}", num_rows=part.num_rows, version=file.version)
                self._places[shard.id] = Place(file=file, index=i, part=part)
                shards.append(shard)
        if first is None:
            named = files[0].name if len(files) == 1 else f"the dataset of {len(files)} files, {files[0].name} first,"
            raise InvalidData(f"{named} has no rows", pointer=pointer, file=files[0].name)
        self.schema = first[1]
        self._shards = tuple(shards)

    def shards(self) -> Sequence[Shard]:
        """All shards, in file order."""
        return self._shards

    def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
        """Read a shard. See :class:`hostcore_hookspecs.Dataset`.

        :raises InvalidData: If the file changed or is damaged.
        """
        place = self._places[shard.id]
        schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        place.file.require_unchanged()
        position = 0
        for batch in self._guarded(place, schema.names):
            skipped = min(max(offset - position, 0), batch.num_rows)
            position += batch.num_rows
            if skipped < batch.num_rows:
                yield from plain_batches(batch.slice(skipped), schema, batch_bytes=_PLAIN_BYTES)
        if position != shard.num_rows:
            raise self._unreadable(place, f"{position} rows instead of {shard.num_rows}")

    @abstractmethod
    def read_index(self, file: DataFile) -> FileIndex:
        """Read what a file says about itself; called from several threads.

        :raises InvalidData: If it is not a file of this format, or damaged.
        """

    @abstractmethod
    def read_part(self, place: Place, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read a part of a file from its beginning.

        :param columns: Those that must be in the batches, in any order.
        """

    def _guarded(self, place: Place, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        try:
            yield from self.read_part(place, columns)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            raise self._unreadable(place, str(error)) from error

    def _unreadable(self, place: Place, what: str) -> InvalidData:
        return InvalidData(
            f"{self.part_name} {place.index} of {place.file.name} cannot be read: {one_line(what)}",
            file=place.file.name,
            hint="most likely the file is damaged: copy or write it again, or take it out of the dataset",
        )


def job_pointer(ctx: DataContext) -> str:
    """Where the job has the settings of this split, as a JSON pointer."""
    return "/dataset" if ctx.split == "train" else f"/{ctx.split}"


def _scan(
    files: Sequence[DataFile], read_index: Callable[[DataFile], FileIndex]
) -> Iterator[tuple[DataFile, FileIndex]]:
    if len(files) == 1:  # a thread pool takes longer to start than one file to read
        yield files[0], read_index(files[0])
        return
    pool = ThreadPoolExecutor(_SCAN_THREADS, thread_name_prefix="read-index")
    try:
        yield from zip(files, pool.map(read_index, files), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)  # after an error, the rest of many files need not be read


def one_line(text: str) -> str:
    """The message of a library, as part of a sentence."""
    return " ".join("".join(letter for letter in text if letter.isprintable() or letter.isspace()).split())


def empty_file(file: DataFile) -> InvalidData:
    """The error about a file of zero bytes."""
    return InvalidData(
        f"{file.name} is empty (0 bytes)",
        file=file.name,
        hint="its writing may have been interrupted: write it again, or take it out of the dataset",
    )


def not_of_format(file: DataFile, format_name: str) -> InvalidData:
    """The error about a file of another format, with what it seems to be."""
    head = file.head(64)
    seems = next((what for magic, what in _MAGIC.items() if head.startswith(magic)), None)
    letters = head.decode("ascii", "replace")
    if not seems and all(letter.isprintable() or letter.isspace() for letter in letters.replace("\ufffd", "\0")):
        seems = "text, such as CSV or JSON: convert it to Parquet"
    hint = f"it looks like {seems}" if seems else "check that it is the file you mean"
    return InvalidData(f"{file.name} is not {format_name}", file=file.name, hint=hint)
