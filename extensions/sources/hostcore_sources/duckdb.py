"""The data source ``duckdb``: the rows of a SQL query over files of Parquet and CSV and SQLite databases.

A query has no way into the middle of its rows. So it is run once, on one thread, and its rows are kept in a Parquet
file below ``HOSTCORE_CACHE_DIR``, under a name made of the query and of its files; that file is what runs read. The
version of its shards is the SHA-256 of the rows as they are stored: rows in another order, or of other files, are
other data.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from hostcore_builtin_plugins.extras import require
from hostcore_builtin_plugins.sources.data_files import find_file
from hostcore_builtin_plugins.sources.file_dataset import FileDataset, job_pointer
from hostcore_builtin_plugins.sources.parquet import ParquetFormat
from hostcore_builtin_plugins.sources.row_budget import MOST_ROWS
from hostcore_builtin_plugins.sources.text_cache import alone
from hostcore_builtin_plugins.stores.errors import data_errors
from hostcore_hookspecs import DataContext, InvalidData, InvalidSettings
from hostcore_sources.query_order import Query, checked_query, query_error
from hostcore_sources.query_tables import QueryTable, add_tables, allowed_paths, find_tables
from hostcore_sources.renamed_shards import RenamedShards

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, Error

#: Changes whenever a result of before would not be made now.
_FORMAT: Final = "hostcore.query-result/1"
#: A row group, and so a shard, has at least so many rows, and at most so much. In between it has this part of what was
#: written before it: a shuffle draws from many places of a small result, and a large one has not too many shards.
_FEWEST_ROWS: Final = 1_024
_GROUP_PART: Final = 32
_MOST_BYTES: Final = 64 << 20
_ROWS_AT_ONCE: Final = 2_048
#: How folders begin in which a query is run, with what DuckDB does not hold in memory.
_MAKING: Final = ".making-"
_EXPLAIN: Final = "EXPLAIN "
#: DuckDB gives the same rows in the same order, and the same sums of floats, on one thread alone.
_THREADS: Final = 1


class DuckdbSource:
    """Opens the rows of a query as a dataset."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """Query and tables."""

        sql: str = attrs.field(
            metadata={
                "help": "One SELECT. It ends with ORDER BY, unless it only filters and computes columns of one table."
            }
        )
        tables: Mapping[str, Path] = attrs.field(
            metadata={
                "help": "Files, folders and globs of Parquet, CSV and SQLite, by the names that the query has for them."
            }
        )
        allow_nulls: bool = attrs.field(default=False, metadata={"help": "Let nulls in numeric columns through."})

    def __init__(self, *, settings: Settings) -> None:
        if not settings.sql.strip():
            raise InvalidSettings("/sql", "is empty")
        if not settings.tables:
            raise InvalidSettings("/tables", "names no table: the query can read nothing else")
        require("duckdb", extra="duckdb")
        self._settings = settings

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> RenamedShards:
        """Run the query, unless its rows are there."""
        settings, pointer = self._settings, job_pointer(ctx)
        if not ctx.cache_dir:
            raise InvalidData(
                "there is no folder for downloads, where the rows of the query could be kept", pointer=pointer
            )
        tables = find_tables(settings.tables, pointer=f"{pointer}/tables")
        result = _result(settings.sql, tables, Path(ctx.cache_dir) / "duckdb", pointer=f"{pointer}/sql")
        file = find_file(str(result.rows), storage_options={}, pointer=f"{pointer}/sql")
        parquet = ParquetFormat()
        try:
            read = FileDataset([file], lambda _: parquet, dataset=dataset, ctx=ctx, allow_nulls=settings.allow_nulls)
        except InvalidData as error:  # the name of a file that is kept here means nothing to the reader
            error.message, error.file = error.message.replace(file.name, "the result of the query"), None
            raise
        return RenamedShards(read, names={file.name: "query"}, version=result.sha256)


@attrs.frozen(kw_only=True)
class QueryResult:
    """The rows of a query."""

    #: A Parquet file.
    rows: Path
    sha256: str


def _result(sql: str, tables: list[QueryTable], cache: Path, *, pointer: str) -> QueryResult:
    """The rows of a query: those of an earlier run, or those that it has now."""
    import duckdb

    versions = [_FORMAT, duckdb.__version__, pa.__version__]
    key = json.dumps([versions, sql, {table.name: [table.reader, *table.identity] for table in tables}], sort_keys=True)
    folder = cache / hashlib.sha256(key.encode()).hexdigest()[:32]
    note = folder / "result.json"
    with data_errors(str(folder)), alone(folder / "lock"):  # ranks of one machine run the query once
        for left in folder.glob(f"{_MAKING}*"):  # of a run that was killed
            shutil.rmtree(left, ignore_errors=True)
        rows, sha256 = folder / "rows.parquet", _noted(note)
        if sha256 is None or not rows.exists():
            sha256 = _run(sql, tables, folder, pointer=pointer)
        return QueryResult(rows=rows, sha256=sha256)


def _noted(note: Path) -> str | None:
    """The SHA-256 of the rows; None: there are none, or the note was lost with the power."""
    try:
        return str(json.loads(note.read_bytes())["sha256"])
    except (FileNotFoundError, ValueError):
        return None


def _run(sql: str, tables: list[QueryTable], folder: Path, *, pointer: str) -> str:
    """Run a query, and keep its rows: first the rows, then the note that marks them as whole.

    :return: The SHA-256 of the rows.
    """
    import duckdb

    with tempfile.TemporaryDirectory(dir=folder, prefix=_MAKING) as making:
        made = Path(making) / "rows.parquet"
        connection = duckdb.connect(":memory:", config=_configuration(making))
        try:
            query = checked_query(connection, sql, pointer=pointer)
            _prepare(connection, tables, query)
            # Rows are streamed from a relation, whose errors have no position in the query.
            connection.execute(f"{_EXPLAIN}{query.sql}")
            _write(connection.sql(query.sql).to_arrow_reader(_ROWS_AT_ONCE), made)
        except duckdb.Error as error:
            raise _told(error, sql, pointer) from error
        except pa.ArrowException as error:
            hint = "cast the column to another type in the query"
            raise query_error(
                sql, f"the rows cannot be kept as Parquet: {error}", None, pointer=pointer, hint=hint
            ) from error
        finally:
            connection.close()
        with made.open("rb") as written:
            digest = hashlib.file_digest(written, "sha256").hexdigest()
            os.fsync(written.fileno())
        note = Path(making) / "result.json"
        note.write_text(json.dumps({"format": _FORMAT, "sha256": digest, "sql": sql}))
        made.replace(folder / made.name)
        note.replace(folder / note.name)
    return digest


def _configuration(scratch: str) -> dict[str, Any]:
    return {
        "threads": _THREADS,
        "preserve_insertion_order": True,
        "temp_directory": scratch,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "allow_persistent_secrets": False,
        "python_enable_replacements": False,
    }


def _prepare(connection: "DuckDBPyConnection", tables: list[QueryTable], query: Query) -> None:
    """Give the connection the tables, and nothing else: neither files, nor the network, nor other settings."""
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET errors_as_json = true")
    add_tables(connection, tables, query)
    connection.execute(f"SET allowed_paths = [{allowed_paths(tables)}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _write(rows: pa.RecordBatchReader, target: Path) -> None:
    """Write rows as row groups that a shuffle can draw from, and a reader can hold."""
    with pq.ParquetWriter(target, rows.schema, compression="snappy", write_page_checksum=True) as writer:
        kept, written = rows.schema.empty_table(), 0
        for batch in rows:
            kept = pa.concat_tables([kept, pa.Table.from_batches([batch])])
            while kept.num_rows >= (size := _group_rows(kept, written)):
                writer.write_table(kept.slice(0, size), row_group_size=size)
                kept, written = kept.slice(size), written + size
        if kept.num_rows:
            writer.write_table(kept)


def _group_rows(kept: pa.Table, written: int) -> int:
    """Return the number of rows of the next row group."""
    fitting = max(1, _MOST_BYTES * int(kept.num_rows) // max(1, int(kept.nbytes)))
    return min(MOST_ROWS, fitting, max(_FEWEST_ROWS, written // _GROUP_PART))


def _told(error: "Error", sql: str, pointer: str) -> InvalidData:
    """Error of DuckDB about a query, with the position in it."""
    import duckdb

    hint = None
    if isinstance(error, duckdb.PermissionException):
        hint = "a query reads the tables of dataset.tables alone: name the file there"
    kind, _, text = str(error).partition(": ")
    try:
        told = json.loads(text)
    except ValueError:
        return query_error(sql, str(error), None, pointer=pointer, hint=hint)
    place = told.get("position")
    place = int(place) - len(_EXPLAIN) if place is not None else None
    return query_error(sql, f"{kind}: {told['exception_message']}", place, pointer=pointer, hint=hint)
