"""A dataset made of files whose parts (row groups, record batches, stretches of text) are its shards."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import attrs
import pyarrow as pa

from hostcore_builtin_plugins.sources.columns import (
    choose_columns,
    require_partitions,
    require_same_columns,
    with_typed_nulls,
)
from hostcore_builtin_plugins.sources.files import DataFile
from hostcore_builtin_plugins.sources.layouts import plain_batches
from hostcore_hookspecs import DataContext, InvalidData, Shard

#: What columns that are stored as dictionaries or runs may take in a batch, as plain values.
_PLAIN_BYTES = 4 << 20
#: What messages show of a value.
_SHOWN_LETTERS = 40

#: How files of other formats begin.
_MAGIC = {
    b"PAR1": "a Parquet file: set dataset.source to parquet",
    b"ARROW1": "an Arrow IPC file: set dataset.source to arrow",
    b"FEA1": "a file of Feather version 1: write it again as Parquet or Arrow IPC",
    b"\x1f\x8b": "gzip: unpack it first",
    b"(\xb5/\xfd": "Zstandard: unpack it first",
    b"PK\x03\x04": "a zip archive: unpack it first",
}


@attrs.frozen(kw_only=True)
class FilePart:
    """A row group, a record batch, or a stretch of text."""

    num_rows: int
    #: Where it begins, in bytes, if the reader needs to be told.
    position: int | None = None


@attrs.frozen(kw_only=True)
class FileIndex:
    """Schema and parts of a file."""

    schema: pa.Schema
    parts: Sequence[FilePart]

    @property
    def num_rows(self) -> int:
        """Of all parts."""
        return sum(part.num_rows for part in self.parts)


@attrs.frozen(kw_only=True)
class ShardLocation:
    """Place of a shard."""

    file: DataFile
    #: Counts from 0.
    index: int
    part: FilePart
    #: All columns of the file, as its index has them.
    columns: pa.Schema


class FileFormat(ABC):
    """A way to read the index of a file, and a part of it."""

    #: Ends of the names of such files.
    suffixes: ClassVar[tuple[str, ...]]
    #: What messages call a part of a file.
    part_name: str
    #: How many indexes are read at once. That is waiting, mostly.
    scan_threads = 16
    #: What to do about files that differ.
    difference_hint = "write all files with the same columns and types, or name the ones they share in 'columns'"
    #: Part of the fingerprint of the data, where a format has changed its shards since it began; else empty.
    text_version: ClassVar[str] = ""

    @abstractmethod
    def read_index(self, file: DataFile) -> FileIndex:
        """Read the index of a file; called from several threads.

        :raises InvalidData: If it is not a file of this format, or damaged.
        """

    def reconciled(self, found: Mapping[DataFile, FileIndex]) -> Mapping[DataFile, FileIndex]:
        """The same indexes, of all files of this format, with types that fit all of them where there are such.

        A format that writes down what its types are has nothing to do here.
        """
        return found

    @abstractmethod
    def read_part(self, place: ShardLocation, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Read a part of a file from its beginning.

        :param schema: The columns that must be in the batches, in any order, with the types that they will be given.
        """


class FileDataset:
    """A dataset of files.

    :param files: In order.
    :param format_of: The format of each; files of one format have the same object.
    :param dataset: The job's settings of the dataset: its ``columns`` are read here.
    :param ctx: About the run.
    :param allow_nulls: Whether nulls in numeric columns are let through.
    :raises InvalidData: If a file is damaged or lacks a column, if the files differ, or if there are no rows.
    """

    def __init__(
        self,
        files: Sequence[DataFile],
        format_of: Callable[[DataFile], FileFormat],
        *,
        dataset: Mapping[str, Any],
        ctx: DataContext,
        allow_nulls: bool,
    ) -> None:
        self.allow_nulls = allow_nulls
        #: See :class:`FileFormat`.
        self.text_version = max((format_of(file).text_version for file in files), default="")
        self._format_of = format_of
        pointer, columns = job_pointer(ctx), dataset.get("columns") or ()
        self._places: dict[str, ShardLocation] = {}
        shards = []
        first: tuple[DataFile, pa.Schema] | None = None
        # A file without rows is as good as not there; tools give its columns any type.
        found = {file: index for file, index in _indexes(files, format_of).items() if index.num_rows}
        schemas = [index.schema for index in found.values()]
        for (file, index), schema in zip(
            found.items(), with_typed_nulls(schemas) if allow_nulls else schemas, strict=True
        ):
            require_partitions(file, schema, columns, pointer=pointer)
            if first is None:
                first = file, choose_columns(schema, columns, pointer=f"{pointer}/columns", file=file.name)
            hint = format_of(file).difference_hint
            require_same_columns(*first, schema, file, exact=not columns, hint=hint)
            for i, part in enumerate(index.parts):
                if not part.num_rows:
                    continue
                shard = Shard(id=f"{file.name}#{i}", num_rows=part.num_rows, version=file.version)
                self._places[shard.id] = ShardLocation(file=file, index=i, part=part, columns=schema)
                shards.append(shard)
        if first is None:
            named = files[0].name if len(files) == 1 else f"the dataset of {len(files)} files, {files[0].name} first,"
            raise InvalidData(f"{named} has no rows", pointer=pointer, file=files[0].name)
        self.schema = first[1]
        self._shards = tuple(shards)

    def shards(self) -> Sequence[Shard]:
        """All shards, in file order."""
        return self._shards

    def rows_by_file(self) -> Mapping[str, int]:
        """Return the number of rows of each file, by its name; none for a file without rows."""
        rows: Counter[str] = Counter()
        for shard in self._shards:
            rows[self._places[shard.id].file.name] += shard.num_rows
        return rows

    def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
        """Read a shard. See :class:`hostcore_hookspecs.Dataset`.

        :raises InvalidData: If the file changed or is damaged.
        """
        place = self._places[shard.id]
        schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        place.file.require_unchanged()
        position = 0
        for batch in self._guarded(place, schema):
            skipped = min(max(offset - position, 0), batch.num_rows)
            position += batch.num_rows
            if skipped < batch.num_rows:
                yield from plain_batches(batch.slice(skipped), schema, batch_bytes=_PLAIN_BYTES)
        if position != shard.num_rows:
            raise self._unreadable(place, f"{position} rows instead of {shard.num_rows}")

    def _guarded(self, place: ShardLocation, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._format_of(place.file).read_part(place, schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            raise self._unreadable(place, str(error)) from error

    def _unreadable(self, place: ShardLocation, what: str) -> InvalidData:
        part_name = self._format_of(place.file).part_name
        return InvalidData(
            f"{part_name} {place.index} of {place.file.name} cannot be read: {one_line(what)}",
            file=place.file.name,
            hint="most likely the file is damaged: copy or write it again, or take it out of the dataset",
        )


def job_pointer(ctx: DataContext) -> str:
    """Return the JSON pointer to the settings of this split."""
    return "/dataset" if ctx.split == "train" else f"/{ctx.split}"


def _indexes(files: Sequence[DataFile], format_of: Callable[[DataFile], FileFormat]) -> Mapping[DataFile, FileIndex]:
    """The indexes of all files, in order."""
    by_format: dict[FileFormat, dict[DataFile, FileIndex]] = {}
    for file, index in _scan(files, format_of):
        by_format.setdefault(format_of(file), {})[file] = index
    reconciled: dict[DataFile, FileIndex] = {}
    for file_format, found in by_format.items():
        reconciled.update(file_format.reconciled(found))
    return {file: reconciled[file] for file in files}


def _scan(
    files: Sequence[DataFile], format_of: Callable[[DataFile], FileFormat]
) -> Iterator[tuple[DataFile, FileIndex]]:
    def read_index(file: DataFile) -> FileIndex:
        return format_of(file).read_index(file)

    if len(files) == 1:  # a thread pool takes longer to start than one file to read
        yield files[0], read_index(files[0])
        return
    pool = ThreadPoolExecutor(min(format_of(file).scan_threads for file in files), thread_name_prefix="read-index")
    try:
        yield from zip(files, pool.map(read_index, files), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)  # after an error, the rest of many files need not be read


def one_line(text: str) -> str:
    """The message of a library, as part of a sentence."""
    return " ".join("".join(letter for letter in text if letter.isprintable() or letter.isspace()).split())


def shortened(text: str) -> str:
    """A value out of a file, as part of a sentence."""
    line = one_line(text[: 2 * _SHOWN_LETTERS])
    return line if len(line) <= _SHOWN_LETTERS and len(text) <= 2 * _SHOWN_LETTERS else f"{line[:_SHOWN_LETTERS]}…"


def empty_file(file: DataFile) -> InvalidData:
    """The error about a file of zero bytes."""
    return InvalidData(
        f"{file.name} is empty (0 bytes)",
        file=file.name,
        hint="its writing may have been interrupted: write it again, or take it out of the dataset",
    )


def looks_like(head: bytes) -> str | None:
    """Return the format that a file seems to have, by its first bytes, and the remedy."""
    return next((what for magic, what in _MAGIC.items() if head.startswith(magic)), None)


def not_of_format(file: DataFile, format_name: str) -> InvalidData:
    """The error about a file of another format, with what it seems to be."""
    head = file.head(64)
    seems = looks_like(head)
    letters = head.decode("ascii", "replace")
    if not seems and all(letter.isprintable() or letter.isspace() for letter in letters.replace("\ufffd", "\0")):
        seems = "text: for CSV or JSON, set dataset.source to csv or json"
    hint = f"it looks like {seems}" if seems else "check that it is the file you mean"
    return InvalidData(f"{file.name} is not {format_name}", file=file.name, hint=hint)
