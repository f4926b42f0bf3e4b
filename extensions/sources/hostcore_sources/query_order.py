"""Check that a query's rows have one order, and one content, whenever it is run.

DuckDB documents the clauses that keep the order of their input
(https://duckdb.org/docs/stable/sql/dialect/order_preservation): one table, ``WHERE``, ``SELECT``, ``LIMIT``, ``UNION
ALL``, and subqueries in ``FROM`` made of these. All others may give their rows in any order, so a query that has them
needs an ``ORDER BY`` at its end. Functions such as ``random()`` and ``now()`` give other values each time, and are
refused.
"""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from hostcore_hookspecs import InvalidData

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Words that DuckDB's parser takes for columns.
_CHANGING_WORDS: Final = frozenset(
    {
        "current_catalog",
        "current_date",
        "current_role",
        "current_schema",
        "current_time",
        "current_timestamp",
        "current_user",
        "localtime",
        "localtimestamp",
        "session_user",
        "user",
    }
)
#: A function that depends on the time in one of its forms, and macros over such functions.
_CHANGING_FORMS: Final = frozenset(
    {"age", "ago", "pg_conf_load_time", "pg_postmaster_start_time", "current_setting", "getvariable"}
)
#: Functions that may stand in ``FROM``. Others read files, the state of DuckDB, or run SQL that nothing has checked.
_TABLE_FUNCTIONS: Final = ("generate_series", "range", "repeat", "unnest")
#: Parts of a query that DuckDB does not document as keeping the order of rows, in words.
_UNORDERED: Final = {
    "DISTINCT_MODIFIER": "DISTINCT",
    "JOIN": "a join",
    "PIVOT": "PIVOT",
    "RECURSIVE_CTE_NODE": "WITH RECURSIVE",
}
_UNORDERED_EXPRESSIONS: Final = {"SUBQUERY": "a subquery in an expression", "WINDOW": "a window"}
_CHANGING_FUNCTIONS: Final = (
    "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_name <> 'error' AND "
    "(stability = 'VOLATILE' OR (stability = 'CONSISTENT_WITHIN_QUERY' AND len(parameters) = 0))"
)


@attrs.frozen(kw_only=True)
class Query:
    """A query that may be run."""

    sql: str
    #: The tables that it reads, each with its schema or "".
    tables: frozenset[tuple[str, str]]
    #: The names of columns in it, in lower case; None: it may read others than those that it names.
    columns: frozenset[str] | None

    def may_read(self, column: str) -> bool:
        """Return whether the query may need a column of one of its tables."""
        return self.columns is None or column.lower() in self.columns


def checked_query(connection: "DuckDBPyConnection", sql: str, *, pointer: str) -> Query:
    """Read a query, and see that its rows have one order.

    :param pointer: Where the job has it.
    :raises InvalidData: If it is not one ``SELECT``, has no known order, or has values that change from run to run.
    """
    [(text,)] = connection.execute("SELECT json_serialize_sql($1)", [sql]).fetchall()
    parsed = json.loads(text)
    if parsed["error"]:
        if parsed["error_type"] == "parser":
            place = parsed.get("position")
            raise query_error(sql, parsed["error_message"], None if place is None else int(place), pointer=pointer)
        raise query_error(sql, "the query has to be a SELECT", None, pointer=pointer)
    if len(parsed["statements"]) != 1:
        message = f"there are {len(parsed['statements'])} statements, and one SELECT is expected"
        raise query_error(sql, message, None, pointer=pointer)
    [statement] = parsed["statements"]
    nodes = list(_nodes(statement["node"]))
    for node in nodes:
        if (name := _unknown_table_function(node)) is not None:
            hint = f"name the files in dataset.tables; of functions there are {', '.join(_TABLE_FUNCTIONS)}"
            message = f"{name}() in FROM is refused: a query reads the tables of the job"
            raise query_error(sql, message, _position(node), pointer=pointer, hint=hint)
    changing = {name for (name,) in connection.execute(_CHANGING_FUNCTIONS).fetchall()} | _CHANGING_FORMS
    for node in nodes:
        if (what := _changes(node, changing)) is not None:
            message = f"{what} has another value each time the query is run, and a resume would read other rows"
            hint = "write the value itself; for a random order, set dataset.shuffle"
            if node.get("class") == "COLUMN_REF":
                hint = f"write the value itself; if it is a column, name its table as well: flights.{what}"
            raise query_error(sql, message, _position(node), pointer=pointer, hint=hint)
    if not any(one["type"] == "ORDER_MODIFIER" for one in statement["node"]["modifiers"]):
        for node in nodes:
            if (what := _loses_order(node)) is not None:
                message = f"the rows have no order of their own: DuckDB does not say in which order {what} gives them"
                hint = "end the query with ORDER BY columns of which no two rows have the same, or with ORDER BY ALL"
                raise query_error(sql, message, _position(node), pointer=pointer, hint=hint)
    tables = frozenset((node["schema_name"], node["table_name"]) for node in nodes if node.get("type") == "BASE_TABLE")
    keys = ("column_names", "using_columns")
    named = {str(part).lower() for node in nodes for key in keys for part in node.get(key) or ()}
    # A table's name among those of columns is a whole row, or stands before a column.
    rows = {
        str(node.get(key)).lower()
        for node in nodes
        for key in ("alias", "table_name")
        if node.get("type") == "BASE_TABLE"
    }
    alone = {str(one[0]).lower() for node in nodes if len(one := list(node.get("column_names") or [])) == 1}
    reads_all = any(map(_reads_unnamed_columns, nodes)) or not rows.isdisjoint(alone)
    return Query(sql=sql, tables=tables, columns=None if reads_all else frozenset(named))


def query_error(sql: str, message: str, position: int | None, *, pointer: str, hint: str | None = None) -> InvalidData:
    """The error about a place in a query.

    :param position: The byte at which the place begins; None without a place.
    """
    where = ""
    if position is not None and 0 <= position <= len(sql.encode()):
        before = sql.encode()[:position].decode("utf-8", "replace")
        where = f"line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}: "
    return InvalidData(f"{where}{'; '.join(message.splitlines())}", pointer=pointer, hint=hint)


def _nodes(tree: Any) -> Iterator[Mapping[str, Any]]:
    """All objects of a syntax tree, the outer ones first."""
    if isinstance(tree, dict):
        yield tree
        for child in tree.values():
            yield from _nodes(child)
    elif isinstance(tree, list):
        for child in tree:
            yield from _nodes(child)


def _position(node: Mapping[str, Any]) -> int | None:
    """Return the first position in a node; DuckDB has 2^64 - 1 for none."""
    places = (one["query_location"] for one in _nodes(node) if "query_location" in one)
    return next((place for place in places if place < 1 << 63), None)


def _changes(node: Mapping[str, Any], changing: set[str]) -> str | None:
    """Name the part of a node that has another value in the next run; None without one."""
    name = str(node.get("function_name", "")).lower()
    if node.get("class") == "FUNCTION" and name in changing:
        return f"{name}()"
    columns = node.get("column_names")
    if node.get("class") == "COLUMN_REF" and isinstance(columns, list) and len(columns) == 1:
        word = str(columns[0]).lower()
        return word if word in _CHANGING_WORDS else None
    sample = node.get("sample")
    return "a sample without REPEATABLE (seed)" if isinstance(sample, dict) and not sample.get("repeatable") else None


def _unknown_table_function(node: Mapping[str, Any]) -> str | None:
    if node.get("type") != "TABLE_FUNCTION":
        return None
    name = str(node["function"].get("function_name", "")).lower()
    return None if name in _TABLE_FUNCTIONS else name


def _reads_unnamed_columns(node: Mapping[str, Any]) -> bool:
    """Return whether a node depends on columns of a table that the query does not name."""
    is_natural = node.get("ref_type") in ("NATURAL", "POSITIONAL")
    counts = node.get("class") == "POSITIONAL_REFERENCE" or bool(node.get("column_name_alias"))
    return is_natural or counts or node.get("class") == "STAR" or node.get("type") == "PIVOT"


def _loses_order(node: Mapping[str, Any]) -> str | None:
    """Name the part of a node that does not keep the order of its rows; None without one."""
    kind = node.get("type")
    if node.get("class") in _UNORDERED_EXPRESSIONS:
        return _UNORDERED_EXPRESSIONS[node["class"]]
    if kind in _UNORDERED:
        return _UNORDERED[str(kind)]
    if kind == "SET_OPERATION_NODE" and not (node.get("setop_type") == "UNION" and node.get("setop_all")):
        return str(node.get("setop_type"))
    if kind == "SELECT_NODE" and (
        node.get("group_expressions") or node.get("aggregate_handling") == "FORCE_AGGREGATES"
    ):
        return "GROUP BY"
    return "a sample" if isinstance(node.get("sample"), dict) else None
