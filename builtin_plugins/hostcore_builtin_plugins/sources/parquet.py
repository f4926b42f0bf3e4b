"""The data source ``parquet``: Parquet files, local or anywhere that fsspec reaches. A row group is a shard."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from hostcore_builtin_plugins.sources.file_dataset import (
    FileFormat,
    FileIndex,
    FilePart,
    ShardLocation,
    empty_file,
    not_of_format,
    one_line,
)
from hostcore_builtin_plugins.sources.file_source import ALLOW_NULLS, STORAGE_OPTIONS, FileSource
from hostcore_builtin_plugins.sources.files import DataFile
from hostcore_builtin_plugins.sources.row_budget import RowBudget
from hostcore_builtin_plugins.sources.row_groups import Footer, column_sizes
from hostcore_hookspecs import DataContext, InvalidData, Uri

#: A row group of a remote file is fetched at once up to this size, and in pieces of about this size if it is larger.
_FETCH_BYTES = 8 << 20
#: Local files are read in pieces of this size, for each column.
_READ_BYTES = 1 << 20
_SMALLEST_READ = 1 << 16
#: Footers kept in memory; reading several shards of a file then parses its footer once.
_FOOTERS = 64


class ParquetSource(FileSource):
    """Opens Parquet files as a dataset."""

    paths_key = "parquet_paths"

    @attrs.frozen(kw_only=True)
    class Settings:
        """The files, and the way to read them."""

        parquet_paths: tuple[Uri, ...] | Uri = attrs.field(
            metadata={"help": "Files, folders (searched for `*.parquet`), globs and URIs."}
        )
        storage_options: Mapping[str, Any] = STORAGE_OPTIONS
        allow_nulls: bool = ALLOW_NULLS

    def file_format(self, ctx: DataContext) -> "ParquetFormat":  # noqa: ARG002 - nothing is kept between runs
        """See :class:`FileSource`."""
        return ParquetFormat()


class ParquetFormat(FileFormat):
    """Parquet files. At most one file is open for each shard that is being read."""

    suffixes: ClassVar[tuple[str, ...]] = (".parquet",)
    part_name = "row group"

    def __init__(self) -> None:
        self._footer = lru_cache(maxsize=_FOOTERS)(_read_footer)
        #: The longest strings in the dictionaries of row groups: to find them takes long enough to do it only once.
        self._longest: dict[tuple[str, int], dict[str, int]] = {}
        #: How many row groups are being read.
        self._open_groups = 0

    def read_index(self, file: DataFile) -> FileIndex:
        """See :class:`FileFormat`."""
        footer = self._footer(file)
        groups = range(footer.metadata.num_row_groups)
        return FileIndex(
            schema=footer.schema, parts=[FilePart(num_rows=footer.metadata.row_group(i).num_rows) for i in groups]
        )

    def read_part(self, place: ShardLocation, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """See :class:`FileFormat`.

        ``ParquetFile.iter_batches`` keeps a page per column in memory; the scanner of ``pyarrow.dataset`` would keep
        the whole row group.
        """
        footer, columns = self._footer(place.file), schema.names
        with self._open(place, footer, columns) as source:
            longest = self._longest.setdefault((place.file.name, place.index), {})
            sizes = column_sizes(source, footer, place.index, columns, longest)
            budget = RowBudget(place.part.num_rows, sizes, lambda: self._open_groups)
            with pq.ParquetFile(
                source,
                metadata=footer.metadata,
                pre_buffer=False,  # it would hold the pages of the whole row group
                buffer_size=max(_SMALLEST_READ, min(_READ_BYTES, _FETCH_BYTES // len(columns))),
                page_checksum_verification=True,
            ) as parquet:
                wanted = {"row_groups": [place.index], "columns": columns}
                self._open_groups += 1
                try:
                    for batch in parquet.iter_batches(budget.next_rows, use_threads=False, **wanted):
                        budget.spend(batch)
                        # The reader looks this up before each batch.
                        parquet.reader.set_batch_size(budget.next_rows)
                        yield batch
                finally:
                    self._open_groups -= 1

    def _open(self, place: ShardLocation, footer: Footer, columns: Sequence[str]) -> pa.NativeFile:
        if place.file.place is None:
            return place.file.open()
        ranges = footer.byte_ranges(place.index, columns)
        if sum(end - start for start, end in ranges) <= _FETCH_BYTES:
            return place.file.open_excerpt(ranges)
        return place.file.open(read_ahead=False)


def _read_footer(file: DataFile) -> Footer:
    if file.size == 0:
        raise empty_file(file)
    with file.open(read_ahead=False) as source:
        try:
            return Footer.of(pq.read_metadata(source))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            if file.head(4) != b"PAR1":
                raise not_of_format(file, "a Parquet file") from error
            raise InvalidData(
                f"{file.name} is a truncated or damaged Parquet file: {one_line(str(error))}",
                file=file.name,
                hint="copy or write it again; a Parquet file is readable once its writer has closed it",
            ) from error
