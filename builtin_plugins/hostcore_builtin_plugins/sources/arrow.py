"""The data source ``arrow``: Arrow IPC files and streams, local or anywhere that fsspec reaches.

A record batch is a shard. Local files are mapped into memory: what is not compressed is not copied.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa

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
from hostcore_hookspecs import DataContext, InvalidData, Uri

#: How the two formats begin. Streams of before Arrow 0.15 begin with a length, and are not read.
_FILE_MAGIC = b"ARROW1"
_STREAM_MARK = b"\xff\xff\xff\xff"


class ArrowSource(FileSource):
    """Opens Arrow IPC files and streams as a dataset."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """The files, and the way to read them."""

        paths: tuple[Uri, ...] | Uri = attrs.field(
            metadata={
                "help": "Files, folders (searched for `*.arrow`, `*.arrows`, `*.feather`, `*.ipc`), globs and URIs."
            }
        )
        storage_options: Mapping[str, Any] = STORAGE_OPTIONS
        allow_nulls: bool = ALLOW_NULLS

    def file_format(self, ctx: DataContext) -> "ArrowFormat":  # noqa: ARG002 - nothing is kept between runs
        """See :class:`FileSource`."""
        return ArrowFormat()


class ArrowFormat(FileFormat):
    """Arrow IPC files and streams."""

    suffixes = (".arrow", ".arrows", ".feather", ".ipc")
    part_name = "record batch"

    def read_index(self, file: DataFile) -> FileIndex:
        """See :class:`FileFormat`."""
        if file.size == 0:
            raise empty_file(file)
        is_file = _is_file_format(file)
        try:
            return _index_file(file) if is_file else _index_stream(file)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            raise InvalidData(
                f"{file.name} is a truncated or damaged Arrow IPC file: {one_line(str(error))}",
                file=file.name,
                hint="copy or write it again; it is readable once its writer has closed it",
            ) from error

    def read_part(self, place: ShardLocation, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """See :class:`FileFormat`."""
        is_file = _is_file_format(place.file)
        with place.file.open(memory_map=True) as source:
            batch = _read_from_file(source, place.index, schema.names) if is_file else _read_from_stream(source, place)
            batch.validate()  # a damaged length would otherwise let readers run past the end of a buffer
            yield batch


def _is_file_format(file: DataFile) -> bool:
    return file.head(len(_FILE_MAGIC)) == _FILE_MAGIC


def _index_file(file: DataFile) -> FileIndex:
    with file.open(memory_map=True) as source:
        schema = pa.ipc.open_file(source).schema
        reader = pa.ipc.open_file(source, options=_one_column(schema))
        rows = [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]
    return FileIndex(schema=schema, parts=[FilePart(num_rows=count) for count in rows])


def _index_stream(file: DataFile) -> FileIndex:
    """List the record batches of a stream. It has no index of them, so all of it is passed over once."""
    if file.head(4) != _STREAM_MARK:
        raise not_of_format(file, "an Arrow IPC file or stream")
    with file.open(memory_map=True) as source:
        schema = pa.ipc.open_stream(source).schema
        source.seek(0)
        reader = pa.ipc.open_stream(source, options=_one_column(schema))
        parts, position = [], source.tell()
        while (batch := next(reader, None)) is not None:
            # Without dictionaries a batch is one message, which can be read alone.
            alone = reader.stats.num_dictionary_batches == 0
            parts.append(FilePart(num_rows=batch.num_rows, position=position if alone else None))
            position = source.tell()
    return FileIndex(schema=schema, parts=parts)


def _one_column(schema: pa.Schema) -> pa.ipc.IpcReadOptions:
    """Decode one column, a narrow one if there is any: enough to count rows."""
    widths = [field.type.bit_width if pa.types.is_primitive(field.type) else 1 << 16 for field in schema]
    return pa.ipc.IpcReadOptions(included_fields=[widths.index(min(widths))] if widths else None)


def _read_from_file(source: pa.NativeFile, index: int, columns: Sequence[str]) -> pa.RecordBatch:
    schema = pa.ipc.open_file(source).schema
    options = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(name) for name in columns])
    return pa.ipc.open_file(source, options=options).get_batch(index)


def _read_from_stream(source: pa.NativeFile, place: ShardLocation) -> pa.RecordBatch:
    reader = pa.ipc.open_stream(source)
    if place.part.position is not None:
        source.seek(place.part.position)
        return pa.ipc.read_record_batch(pa.ipc.read_message(source), reader.schema)
    for _ in range(place.index):  # a dictionary may have been replaced or extended before any batch
        reader.read_next_batch()
    return reader.read_next_batch()
