"""The tables of a query: files of Parquet and CSV, and SQLite databases.

DuckDB's own extension for SQLite would have to be downloaded. Instead, Python's sqlite3 reads them: the tables that a
query names are copied into DuckDB, in the order of their rowid. A column of SQLite may have values of several types;
the type of a column here is the one that all its values have.
"""

import glob
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import attrs
import pyarrow as pa

from hostcore_builtin_plugins.sources.data_files import find_files
from hostcore_builtin_plugins.sources.files import DataFile
from hostcore_hookspecs import InvalidData, InvalidSettings
from hostcore_sources.query_order import Query

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_READERS: Final[Mapping[str, tuple[str, ...]]] = {
    "read_parquet": (".parquet",),
    "read_csv": (".csv", ".csv.gz", ".tsv", ".tsv.gz"),
    "sqlite": (".sqlite", ".sqlite3", ".db"),
}
_ENDINGS: Final = tuple(ending for endings in _READERS.values() for ending in endings)
_ROWS_AT_ONCE: Final = 10_000
#: Types by the storage classes that a column has (https://www.sqlite.org/datatype3.html), null aside.
_TYPES: Final[Mapping[frozenset[str], pa.DataType]] = {
    frozenset(): pa.string(),
    frozenset({"integer"}): pa.int64(),
    frozenset({"real"}): pa.float64(),
    frozenset({"integer", "real"}): pa.float64(),
    frozenset({"text"}): pa.string(),
    frozenset({"blob"}): pa.binary(),
}


@attrs.frozen(kw_only=True)
class QueryTable:
    """A name in a query, and the files behind it."""

    name: str
    #: The function of DuckDB that reads them, or ``sqlite``.
    reader: str
    files: tuple[DataFile, ...]
    pointer: str

    @property
    def identity(self) -> list[str]:
        """Identity of the table's rows: versions of its files."""
        found = [f"{file.name} {file.version}" for file in self.files]
        if self.reader == "sqlite":
            log = Path(f"{self.files[0].path}-wal")  # what was written and is not in the database yet
            status = log.stat() if log.exists() else None
            found += [f"{log.name} {status.st_size}-{status.st_mtime_ns}"] if status and status.st_size else []
        return found


def find_tables(tables: Mapping[str, Path], *, pointer: str) -> list[QueryTable]:
    """Find the files of all tables.

    :param tables: A file, a folder or a glob, by the name that the query has for it.
    :param pointer: Where the job has them.
    :raises InvalidData: If there are none, or of several formats.
    :raises InvalidSettings: If a name is none of SQL.
    """
    found = []
    for name, path in tables.items():
        where = f"{pointer}/{name}"
        if not name.isidentifier() or not name.isascii():
            raise InvalidSettings(f"/tables/{name}", "is no name for a table: letters, digits and _")
        files = find_files(str(path), suffixes=_ENDINGS, storage_options={}, pointer=where)
        readers = {_reader(file, where) for file in files}
        if len(readers) > 1:
            hint = "make a table of each, and join them with UNION ALL"
            raise InvalidData(f"{path} has files of several formats", pointer=where, file=str(path), hint=hint)
        if readers == {"sqlite"} and len(files) > 1:
            raise InvalidData(
                f"{path} has {len(files)} databases", pointer=where, file=str(path), hint="name one of them"
            )
        found.append(QueryTable(name=name, reader=readers.pop(), files=files, pointer=where))
    return found


def _reader(file: DataFile, pointer: str) -> str:
    for reader, endings in _READERS.items():
        if file.path.endswith(endings):
            return reader
    hint = f"files of tables end in {', '.join(_ENDINGS)}"
    raise InvalidData(f"the ending of {file.name} tells no format", pointer=pointer, file=file.name, hint=hint)


def add_tables(connection: "DuckDBPyConnection", tables: Sequence[QueryTable], query: Query) -> None:
    """Give a connection the tables of a query.

    :raises InvalidData: If a database has no such table, or a column of several types.
    """
    for table in tables:
        if table.reader == "sqlite":
            _copy_database(connection, table, query)
            continue
        listed = ", ".join(_quoted(glob.escape(file.path)) for file in table.files)
        # All of a file decides the types of a CSV file, not a part of it.
        options = ", sample_size = -1" if table.reader == "read_csv" else ""
        view = f'CREATE VIEW "{table.name}" AS SELECT * FROM {table.reader}([{listed}]{options})'  # noqa: S608 - quoted
        connection.execute(view)


def allowed_paths(tables: Sequence[QueryTable]) -> str:
    """The files that DuckDB may open, as SQL."""
    paths = {file.path for table in tables if table.reader != "sqlite" for file in table.files}
    return ", ".join(map(_quoted, sorted(paths | set(map(glob.escape, paths)))))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _copy_database(connection: "DuckDBPyConnection", table: QueryTable, query: Query) -> None:
    file = table.files[0]
    connection.execute(f'CREATE SCHEMA "{table.name}"')
    wanted = {name.lower() for schema, name in query.tables if schema.lower() == table.name.lower()}
    try:
        with closing(sqlite3.connect(f"file:{quote(file.path)}?mode=ro", uri=True)) as database:
            known = [
                name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
            ]
            for name in sorted(wanted):
                own = next((one for one in known if one.lower() == name), None)
                if own is None:
                    hint = f"its tables are {', '.join(sorted(known))}: write FROM {table.name}.{(known or ['…'])[0]}"
                    raise InvalidData(
                        f"{file.name} has no table {name!r}", pointer=table.pointer, file=file.name, hint=hint
                    )
                schema = _schema_of(database, own, table, query)
                target = f'"{table.name}".{_identifier(own)}'
                connection.register("rows_of_sqlite", schema.empty_table())
                connection.execute(f"CREATE TABLE {target} AS SELECT * FROM rows_of_sqlite")  # noqa: S608 - quoted
                # Read here, and not by DuckDB, whose messages would show where in this source SQLite has failed.
                for batch in _batches(database, own, schema):
                    connection.register("rows_of_sqlite", pa.Table.from_batches([batch]))
                    connection.execute(f"INSERT INTO {target} SELECT * FROM rows_of_sqlite")  # noqa: S608 - quoted
                connection.unregister("rows_of_sqlite")
    except sqlite3.Error as error:
        raise InvalidData(
            f"{file.name} cannot be read by SQLite: {error}", pointer=table.pointer, file=file.name
        ) from error


def _schema_of(database: sqlite3.Connection, name: str, table: QueryTable, query: Query) -> pa.Schema:
    """The columns of a table that the query may need."""
    known = [row[1] for row in database.execute(f"PRAGMA table_xinfo({_identifier(name)})") if row[6] != 1]
    columns = [column for column in known if query.may_read(column)] or known
    asked = ", ".join(f"group_concat(DISTINCT typeof({_identifier(column)}))" for column in columns)
    [found] = database.execute(f"SELECT {asked} FROM {_identifier(name)}").fetchall()  # noqa: S608 - quoted
    fields = []
    for column, classes in zip(columns, found, strict=True):
        kinds = frozenset((classes or "").split(",")) - {"null", ""}
        if kinds not in _TYPES:
            raise InvalidData(
                f"the column {column!r} of {name} in {table.files[0].name} has values of several types: "
                f"{', '.join(sorted(kinds))}",
                pointer=table.pointer,
                file=table.files[0].name,
                hint="make a view in the database that casts it: CREATE VIEW … AS SELECT CAST(…)",
            )
        fields.append(pa.field(column, _TYPES[kinds]))
    return pa.schema(fields)


def _batches(database: sqlite3.Connection, name: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    select = f"SELECT {', '.join(map(_identifier, schema.names))} FROM {_identifier(name)}"  # noqa: S608 - quoted
    try:
        rows = database.execute(f"{select} ORDER BY rowid")
    except sqlite3.OperationalError:  # a view, or a table WITHOUT ROWID, which has the order of its primary key
        rows = database.execute(select)
    while found := rows.fetchmany(_ROWS_AT_ONCE):
        arrays = [pa.array(values, field.type) for values, field in zip(zip(*found, strict=True), schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
