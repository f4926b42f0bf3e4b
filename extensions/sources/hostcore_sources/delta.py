"""The data source ``delta``: one version of a Delta Lake table.

The log of the table lists the Parquet files of a version; they are read as the source ``parquet`` reads them, a row
group as a shard. Delta gives its rows no order. Here they have the order of their files: by the time at which a file
was added, then by its path. Both stand in the log, and stay the same when the log is compacted.

Protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from hostcore_builtin_plugins.extras import require
from hostcore_builtin_plugins.sources.file_dataset import FileDataset, FileIndex, ShardLocation, job_pointer, one_line
from hostcore_builtin_plugins.sources.files import DataFile, LocalFileTree, RemoteFileTree
from hostcore_builtin_plugins.sources.layouts import plain_array
from hostcore_builtin_plugins.sources.parquet import ParquetFormat
from hostcore_builtin_plugins.stores.errors import data_errors
from hostcore_builtin_plugins.stores.location import Location
from hostcore_hookspecs import DataContext, InvalidData
from hostcore_sources.renamed_shards import RenamedShards
from hostcore_sources.table_version import TableSettings, version_of_run

if TYPE_CHECKING:
    from deltalake import DeltaTable

#: Features of readers that change nothing for this one, or only where a table makes use of them, which is looked at.
_READABLE: Final = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",
    }
)


@attrs.frozen(kw_only=True)
class AddedFile:
    """A file of a version."""

    #: Relative to the table, with letters as URIs have them: ``%20`` for a space.
    path: str
    #: When it was added, in milliseconds since 1970.
    time_ms: int
    #: The values of the partition's columns, which are not in the file.
    partition: Mapping[str, Any]


class DeltaSource:
    """Opens a Delta table as a dataset."""

    @attrs.frozen(kw_only=True)
    class Settings(TableSettings):
        """Table and version."""

    def __init__(self, *, settings: Settings) -> None:
        settings.check()
        require("deltalake", extra="delta")
        self._settings = settings

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> RenamedShards:
        """Read the log of the run's version, and the footers of its files."""
        settings, pointer = self._settings, job_pointer(ctx)
        table = _open(settings, pointer)
        version = settings.version
        if version is None:
            asked = {"source": "delta", "table": settings.location}
            version = version_of_run(ctx, asked, table.version)
        _load_version(table, version, settings, pointer)
        _require_readable(table, settings, pointer)
        added = _added_files(table)
        if not added:
            message = f"version {version} of {settings.location} has no rows"
            raise InvalidData(message, pointer=pointer, file=settings.location)
        files = dict(zip(_data_files(table, settings, added, pointer), added, strict=True))
        delta = DeltaFormat(pa.schema(table.schema().to_arrow()), {file: one.partition for file, one in files.items()})
        read = FileDataset(list(files), lambda _: delta, dataset=dataset, ctx=ctx, allow_nulls=settings.allow_nulls)
        names = {file.name: one.path for file, one in files.items()}
        # A table may be moved: what a file has in it follows from its name, which Delta never gives twice.
        return RenamedShards(read, names=names, version=f"{table.metadata().id} {version}")


class DeltaFormat(ParquetFormat):
    """Parquet files of a Delta table, with the columns of the table.

    A file lacks the columns of its partition, and those that the table was given later; a type may be narrower in it.

    :param schema: Of the table.
    :param partitions: The values of the partition's columns, by file.
    """

    def __init__(self, schema: pa.Schema, partitions: Mapping[DataFile, Mapping[str, Any]]) -> None:
        super().__init__()
        self._schema = schema
        self._partitions = partitions

    def read_index(self, file: DataFile) -> FileIndex:
        """See :class:`FileFormat`."""
        return attrs.evolve(super().read_index(file), schema=self._schema)

    def read_part(self, place: ShardLocation, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """See :class:`FileFormat`."""
        stored = self._footer(place.file).schema
        partition = self._partitions[place.file]
        names = [name for name in schema.names if name in stored.names and name not in partition]
        # Without a column of the file, its rows could not be counted.
        for batch in super().read_part(place, pa.schema([stored.field(name) for name in names or stored.names[:1]])):
            columns = [
                _of_type(batch.column(field.name), field.type)
                if field.name in names
                else pa.repeat(pa.scalar(partition.get(field.name), field.type), batch.num_rows)
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _of_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column with the type that the table has today.

    :raises ArrowInvalid: A value does not fit.
    """
    return array if array.type == kind else pc.cast(plain_array(array, array.type), kind)


def _open(settings: TableSettings, pointer: str) -> "DeltaTable":
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    name = settings.location
    where = {"pointer": f"{pointer}/{settings.key}", "file": name}
    if settings.path is not None and not settings.path.is_dir():
        what = "is a file, and a Delta table is a folder" if settings.path.exists() else "does not exist"
        raise InvalidData(f"{name} {what}", **where)
    try:
        return DeltaTable(name, storage_options=dict(settings.storage_options) or None)
    except TableNotFoundError as error:
        hint = "a Delta table is a folder with _delta_log in it; for Parquet files alone, set dataset.source to parquet"
        raise InvalidData(f"{name} is not a Delta table", hint=hint, **where) from error
    except (DeltaError, OSError, ValueError) as error:
        raise InvalidData(f"the log of {name} cannot be read: {one_line(str(error))}", **where) from error


def _load_version(table: "DeltaTable", version: int, settings: TableSettings, pointer: str) -> None:
    newest = table.version()
    if version == newest:
        return
    from deltalake.exceptions import DeltaError

    try:
        table.load_as_version(version)
    except (DeltaError, OSError, ValueError) as error:
        raise InvalidData(
            f"version {version} of {settings.location} is not there, or not any more",
            pointer=f"{pointer}/version",
            file=settings.location,
            hint=f"the newest version is {newest}; the log of old ones is removed after delta.logRetentionDuration",
        ) from error


def _require_readable(table: "DeltaTable", settings: TableSettings, pointer: str) -> None:
    """Refuse a table whose files lack information that a reader needs."""

    def refuse(what: str, hint: str) -> InvalidData:
        message = f"{settings.location} {what}"
        return InvalidData(message, pointer=f"{pointer}/{settings.key}", file=settings.location, hint=hint)

    unknown = sorted(set(table.protocol().reader_features or ()) - _READABLE)
    if unknown:
        raise refuse(
            f"needs what this source cannot read: {', '.join(unknown)}", "copy the table without these features"
        )
    mapping = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mapping != "none":
        raise refuse(
            f"has column mapping ({mapping}): its files have other names for the columns",
            "copy the table with delta.columnMapping.mode = none",
        )
    if '"variant"' in table.schema().to_json():
        raise refuse("has a column of type variant", "write it as a struct or as text")
    schema = pa.schema(table.schema().to_arrow())
    binary = [name for name in table.metadata().partition_columns if pa.types.is_binary(schema.field(name).type)]
    if binary:
        raise refuse(
            f"has binary columns in its partition, whose values the log has as escaped text: {', '.join(binary)}",
            "partition the table by other columns",
        )
    if _has_deletion_vectors(table):
        raise refuse(
            "has deletion vectors: rows are deleted that its files still have",
            "run REORG TABLE … APPLY (PURGE) in Spark, or optimize() of deltalake, and read the version that it makes",
        )


def _has_deletion_vectors(table: "DeltaTable") -> bool:
    from deltalake.exceptions import DeltaError

    try:
        return any(batch.num_rows for batch in table.deletion_vectors())
    except DeltaError:  # there are some, which cannot be read
        return True


def _added_files(table: "DeltaTable") -> list[AddedFile]:
    """The files of the version, in order."""
    rows = pa.table(table.get_add_actions(flatten=False)).to_pylist()
    found = [
        AddedFile(path=row["path"], time_ms=row["modification_time"], partition=row.get("partition") or {})
        for row in rows
    ]
    return sorted(found, key=lambda file: (file.time_ms, file.path))


def _data_files(
    table: "DeltaTable", settings: TableSettings, added: Sequence[AddedFile], pointer: str
) -> Sequence[DataFile]:
    tree: LocalFileTree | RemoteFileTree
    if settings.path is not None:
        tree, root = LocalFileTree(), f"{settings.path}/"
    else:
        tree, root = _remote_tree(table, settings), ""
    files = []
    for one in added:
        try:
            with data_errors(one.path, f"{pointer}/{settings.key}"):
                files.append(tree.file(f"{root}{unquote(one.path)}"))
        except InvalidData as error:
            error.hint = (
                f"version {table.version()} has this file, and VACUUM may have removed it: read a newer version"
            )
            raise
    return files


def _remote_tree(table: "DeltaTable", settings: TableSettings) -> RemoteFileTree:
    """The store as the library of the table reaches it."""
    import pyarrow.fs as pa_fs
    from deltalake.fs import DeltaStorageHandler
    from fsspec.implementations.arrow import ArrowFSWrapper

    handler = DeltaStorageHandler.from_table(table._table, dict(settings.storage_options))
    filesystem = ArrowFSWrapper(pa_fs.PyFileSystem(handler))
    return RemoteFileTree(Location(filesystem=filesystem, path="", uri=settings.location))
