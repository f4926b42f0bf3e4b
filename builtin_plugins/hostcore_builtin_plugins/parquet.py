"""The data source ``parquet``: Parquet files, local or anywhere that fsspec reaches. A row group is a shard."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from hostcore_builtin_plugins.data_files import find_files
from hostcore_builtin_plugins.file_dataset import (
    FileDataset,
    FileIndex,
    FilePart,
    Place,
    empty_file,
    job_pointer,
    not_of_format,
    one_line,
)
from hostcore_builtin_plugins.stores import DataFile
from hostcore_hookspecs import DataContext, InvalidData, InvalidSettings

#: Rows decoded at once, if they are not too large.
_BATCH_ROWS = 65_536
#: What rows decoded at once may take, in bytes, as far as the first ones tell.
_BATCH_BYTES = 32 << 20
_PROBE_ROWS = 256
#: Footers kept in memory; reading several shards of a file then parses its footer once.
_FOOTERS = 64


class ParquetSource:
    """Opens Parquet files as a dataset."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """What a job says about the files."""

        parquet_paths: tuple[str, ...] | str = attrs.field(
            metadata={"help": "Files, folders (searched for `*.parquet`), globs and URIs."}
        )
        storage_options: Mapping[str, Any] = attrs.field(
            factory=dict, metadata={"help": "For the file systems of URIs, as fsspec takes them."}
        )
        allow_nulls: bool = attrs.field(default=False, metadata={"help": "Let nulls in numeric columns through."})

    def __init__(self, *, settings: Settings) -> None:
        if not settings.parquet_paths:
            raise InvalidSettings("/parquet_paths", "names no file")
        self._settings = settings

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> "ParquetDataset":
        """Find the files and read their footers."""
        files = find_files(
            self._settings.parquet_paths,
            suffixes=(".parquet",),
            storage_options=self._settings.storage_options,
            pointer=f"{job_pointer(ctx)}/parquet_paths",
        )
        return ParquetDataset(files, dataset=dataset, ctx=ctx, allow_nulls=self._settings.allow_nulls)


class ParquetDataset(FileDataset):
    """Parquet files. At most one file is open for each shard that is being read."""

    part_name = "row group"

    def __init__(self, files: Sequence[DataFile], **about: Any) -> None:
        self._batch_rows: int | None = None
        self._footer = lru_cache(maxsize=_FOOTERS)(_read_footer)
        super().__init__(files, **about)

    def read_index(self, file: DataFile) -> FileIndex:
        """See :class:`FileDataset`."""
        footer = _read_footer(file)
        return FileIndex(
            schema=footer.schema.to_arrow_schema(),
            parts=[FilePart(num_rows=footer.row_group(i).num_rows) for i in range(footer.num_row_groups)],
        )

    def read_part(self, place: Place, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See :class:`FileDataset`.

        ``ParquetFile.iter_batches`` keeps a page per column in memory; the scanner of ``pyarrow.dataset`` would keep
        the whole row group.
        """
        footer = self._footer(place.file)
        remote = place.file.filesystem is not None
        with (
            place.file.open() as source,
            pq.ParquetFile(
                source,
                metadata=footer,
                # A store is asked for all it takes at once, a disk for a page after the other.
                pre_buffer=remote,
                buffer_size=0 if remote else 1 << 20,
                page_checksum_verification=True,
            ) as parquet,
        ):
            wanted = {"row_groups": [place.index], "columns": list(columns)}
            if self._batch_rows is None:
                self._batch_rows = _fitting_rows(next(parquet.iter_batches(_PROBE_ROWS, **wanted)))
            yield from parquet.iter_batches(self._batch_rows, **wanted)


def _fitting_rows(probe: pa.RecordBatch) -> int:
    """How many rows to decode at once. The footer cannot tell: it knows the size before dictionaries are resolved."""
    bytes_per_row = max(1, probe.nbytes / probe.num_rows)
    return max(1, min(_BATCH_ROWS, int(_BATCH_BYTES / bytes_per_row)))


def _read_footer(file: DataFile) -> pq.FileMetaData:
    if file.size == 0:
        raise empty_file(file)
    with file.open() as source:
        try:
            return pq.read_metadata(source)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            if file.head(4) != b"PAR1":
                raise not_of_format(file, "a Parquet file") from error
            raise InvalidData(
                f"{file.name} is a truncated or damaged Parquet file: {one_line(str(error))}",
                file=file.name,
                hint="copy or write it again; a Parquet file is readable once its writer has closed it",
            ) from error
