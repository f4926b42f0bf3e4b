"""Text files as a format of datasets: each is converted once, and is a Parquet file of this machine from then on.

Text has neither places of rows nor types of columns. So a file is read from the beginning to the end, checked
as a whole, and written as Parquet; that is what runs read.
"""

import shutil
import tempfile
import weakref
from abc import abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from hostcore_builtin_plugins.sources.columns import closest_column
from hostcore_builtin_plugins.sources.file_dataset import FileIndex, ShardLocation, one_line
from hostcore_builtin_plugins.sources.files import DataFile, LocalFileTree
from hostcore_builtin_plugins.sources.parquet import ParquetFormat
from hostcore_builtin_plugins.sources.row_budget import MOST_ROWS
from hostcore_builtin_plugins.sources.text_cache import converted
from hostcore_builtin_plugins.sources.text_types import TypesDiffer, escaped, retyped, storable
from hostcore_hookspecs import InvalidData

#: A row group, and so a shard, takes about so much in memory.
_GROUP_BYTES = 4 << 20
#: A column of a row group takes about so much at least: each has a place in the footer.
_COLUMN_BYTES = 2 << 10
#: Key of the metadata with the columns: Parquet has fewer types than Arrow.
_SCHEMA = b"hostcore.schema"


class TextFormat(ParquetFormat):
    """A format of text.

    :param types: Of the columns whose types the job declares.
    :param cache_dir: The folder for downloads; empty: what is converted is gone with this object.
    :param pointer: Where the job has the settings of the format.
    """

    #: Name of a file of the format in messages.
    format_name: str
    #: A block of each is in memory, and it is parsed by one core.
    scan_threads = 4
    text_version = "hostcore.text/2"
    difference_hint = (
        "write all files with the same columns, name the ones they share in 'columns', or tell the type in 'types'"
    )
    #: Whether a column that 'types' names need not be in every file.
    fills_in = False

    def __init__(self, types: Mapping[str, pa.DataType], *, cache_dir: str, pointer: str) -> None:
        super().__init__()
        self.types = types
        self.pointer = pointer
        self._folder = Path(cache_dir, "text") if cache_dir else Path(tempfile.mkdtemp(prefix="hostcore-text-"))
        if not cache_dir:
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._parquet: dict[DataFile, DataFile] = {}

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """Return the settings that the rows depend on, as plain JSON."""

    @abstractmethod
    def infer(self, file: DataFile) -> pa.Schema:
        """Check all of a text, and return its columns with types that fit all values; none: it has no rows.

        :raises InvalidData: About the first line that is wrong.
        """

    @abstractmethod
    def tables(self, file: DataFile, schema: pa.Schema) -> Iterator[pa.Table]:
        """All rows, a block of text at a time.

        :param schema: All columns with their types.
        """

    @abstractmethod
    def joined(self, one: pa.Field, other: pa.Field) -> pa.Field:
        """The type that fits a column of two files.

        :raises TypesDiffer: If there is none.
        """

    def read_index(self, file: DataFile) -> FileIndex:
        """See :class:`FileFormat`."""
        path = converted(self._folder, file, self.settings, partial(self._convert, file))
        parquet = self._parquet[file] = LocalFileTree().file(str(path))
        try:
            schema = pa.ipc.read_schema(pa.py_buffer(b64decode(self._footer(parquet).metadata.metadata[_SCHEMA])))
        except (pa.ArrowInvalid, OSError, KeyError, ValueError) as error:
            raise _damaged(parquet, file, error) from error
        return attrs.evolve(super().read_index(parquet), schema=schema)

    def read_part(self, place: ShardLocation, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """See :class:`FileFormat`."""
        parquet = self._parquet[place.file]
        stored = self._footer(parquet).schema
        columns = [stored.field(name) for name in schema.names if name in stored.names] or [stored.field(0)]
        try:
            for batch in super().read_part(attrs.evolve(place, file=parquet), pa.schema(columns)):
                yield _with_types(batch, schema)
        except (pa.ArrowInvalid, OSError, InvalidData) as error:
            raise _damaged(parquet, place.file, error) from error

    def reconciled(self, found: Mapping[DataFile, FileIndex]) -> Mapping[DataFile, FileIndex]:
        """See :class:`FileFormat`. A file to whose types the others' do not fit keeps its own."""
        common: dict[str, pa.Field] = {}
        schemas: dict[DataFile, dict[str, pa.Field]] = {}
        for file, index in found.items():
            schemas[file] = {field.name: field for field in index.schema} if index.parts else {}
            for name, field in schemas[file].items():
                with suppress(TypesDiffer):
                    common[name] = self.joined(common[name], field) if name in common else field
        self._require_declared(list(common))
        for fields in schemas.values():
            for name, field in fields.items():
                with suppress(TypesDiffer):
                    if self.joined(common[name], field).type == common[name].type:
                        fields[name] = common[name]
            if fields and self.fills_in:
                fields.update({name: common[name] for name in self.types if name not in fields})
        return {file: attrs.evolve(found[file], schema=pa.schema(fields.values())) for file, fields in schemas.items()}

    def _require_declared(self, names: Sequence[str]) -> None:
        """Refuse types of columns that no file has."""
        for name in self.types:
            if names and name not in names:
                raise InvalidData(
                    f"no file has the column {name!r}, of which 'types' tells the type",
                    pointer=f"{self.pointer}/types/{escaped(name)}",
                    hint=closest_column(name, names),
                )

    def _convert(self, file: DataFile, target: Path, metadata: dict[bytes, bytes]) -> None:
        """Write a text as a Parquet file."""
        try:
            schema = self.infer(file)
            kept = {_SCHEMA: b64encode(schema.serialize())}
            stored = pa.schema([(field.name, storable(field.type)) for field in schema], metadata | kept)
            with pq.ParquetWriter(target, stored, write_page_checksum=True) as writer:
                least_bytes = _COLUMN_BYTES * len(stored)
                for table in _joined(self.tables(file, schema), least_bytes) if schema.names else ():
                    groups = max(1, -(-table.num_rows // MOST_ROWS), table.nbytes // max(_GROUP_BYTES, least_bytes))
                    writer.write_table(table.cast(stored), row_group_size=-(-table.num_rows // groups))
        except InvalidData:
            file.require_unchanged()  # that it was written meanwhile is the better answer
            raise
        file.require_unchanged()


def _damaged(parquet: DataFile, file: DataFile, error: Exception) -> InvalidData:
    return InvalidData(
        f"{parquet.name}, which {file.name} was converted to, cannot be read: {one_line(str(error))}",
        file=parquet.name,
        hint="remove it: the next run converts the text again",
    )


def _joined(tables: Iterator[pa.Table], least_bytes: int) -> Iterator[pa.Table]:
    """Join tables until they take so many bytes."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(one.nbytes for one in waiting) >= least_bytes:
            yield pa.concat_tables(waiting)
            waiting.clear()
    if waiting:
        yield pa.concat_tables(waiting)


def _with_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a schema with its types; what is missing is null."""
    names = batch.schema.names
    columns = [
        retyped(batch.column(field.name), field.type) if field.name in names else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
