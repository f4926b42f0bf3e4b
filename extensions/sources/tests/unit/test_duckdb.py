import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from source_examples import flights

from hostcore_hookspecs import InvalidData, InvalidSettings


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, Path]:
    pq.write_table(flights(0, 3_000), tmp_path / "flights.parquet")
    pa.csv.write_csv(pa.table({"id": [2, 1, 0], "place": ["JFK", "EWR", "LGA"]}), tmp_path / "places.csv")
    return {"flights": tmp_path / "flights.parquet", "places": tmp_path / "places.csv"}


@pytest.fixture
def query(open_source, tables):
    return lambda sql, **settings: open_source("duckdb", sql=sql, **{"tables": tables, **settings})


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute('CREATE TABLE orders (id INTEGER PRIMARY KEY, price REAL, "the note" TEXT, mixed, never)')
        database.executemany(
            "INSERT INTO orders (id, price, mixed) VALUES (?, ?, ?)", [(2, 1.5, 1), (1, 2, "x"), (3, None, 2)]
        )
        database.execute("CREATE VIEW cheap AS SELECT id FROM orders WHERE price < 2")
    return path


def test_one_table_keeps_its_order_through_filters_and_columns(query, read) -> None:
    dataset = query("SELECT id * 2 AS double, delay FROM flights WHERE id % 3 = 0 LIMIT 500")
    assert dataset.schema == pa.schema([("double", pa.int64()), ("delay", pa.float32())])
    assert read(dataset, "double") == list(range(0, 3_000, 6))


def test_a_query_with_order_by_may_join_and_group_and_one_may_make_rows(query, read) -> None:
    dataset = query("SELECT place, sum(delay) AS s FROM flights JOIN places USING (id) GROUP BY place ORDER BY place")
    assert read(dataset, "place") == ["EWR", "JFK", "LGA"]
    assert read(query("SELECT range AS id FROM range(3)")) == [0, 1, 2]


@pytest.mark.parametrize(
    ("sql", "what", "place"),
    [
        ("SELECT * FROM flights\nJOIN places USING (id)", "a join", "line 2, column 1"),
        ("SELECT * FROM flights, places", "a join", "line 1"),
        ("SELECT delay, count(*) FROM flights GROUP BY delay", "GROUP BY", "line 1"),
        ("SELECT DISTINCT delay FROM flights", "DISTINCT", ""),
        ("SELECT id FROM flights UNION SELECT id FROM places", "UNION", "line 1"),
        ("SELECT id FROM flights EXCEPT SELECT id FROM places", "EXCEPT", "line 1"),
        ("SELECT id, row_number() OVER (ORDER BY delay) FROM flights", "a window", "line 1, column 12"),
        ("SELECT id FROM flights WHERE id IN (SELECT id FROM places)", "a subquery in an expression", "line 1"),
        ("SELECT id FROM (SELECT DISTINCT id FROM flights)", "DISTINCT", ""),
        ("WITH a AS (SELECT * FROM flights JOIN places USING (id)) SELECT * FROM a", "a join", "line 1"),
        ("SELECT delay, count(*) FROM flights GROUP BY ALL", "GROUP BY", ""),
        ("SELECT id FROM flights USING SAMPLE 10 ROWS (reservoir, 5)", "a sample", ""),
    ],
)
def test_rows_without_an_order_are_refused(sql: str, what: str, place: str, query) -> None:
    with pytest.raises(InvalidData, match=f"{place}.*in which order {what} gives them") as caught:
        query(sql)
    assert caught.value.pointer == "/dataset/sql"
    assert "ORDER BY" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("SELECT id, random() AS r FROM flights", "random"),
        ("SELECT id, Now() AS r FROM flights", "now"),
        ("SELECT id FROM flights ORDER BY uuid()", "uuid"),
        ("SELECT id, current_timestamp FROM flights", "current_timestamp"),
        ("SELECT id, age(TIMESTAMP '2020-01-01') FROM flights", "age"),
        ("SELECT id FROM flights TABLESAMPLE 10% ORDER BY id", "a sample without REPEATABLE"),
    ],
)
def test_values_that_change_from_run_to_run_are_refused(sql: str, what: str, query) -> None:
    with pytest.raises(InvalidData, match=f"{what}.* has another value each time"):
        query(sql)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT id\nFRM flights WHERE id = 1", r'line 2, column 5: syntax error at or near "flights"'),
        ("SELECT id\nFROM flights WHERE dely > 1", r"line 2, column 20: Binder Error: .*\"dely\".*\"delay\""),
        ("SELECT id FROM flihts", "line 1, column 16: Catalog Error: Table with name flihts does not exist"),
        ("SELECT CAST(flight AS INT) FROM flights", "Conversion Error: Could not convert string 'HC 0'"),
        ("INSERT INTO flights VALUES (1)", "has to be a SELECT"),
        ("COPY flights TO 'there.parquet'", "has to be a SELECT"),
        ("SELECT 1; SELECT 2", "there are 2 statements"),
        ("SELECT * FROM '/etc/passwd'", "does not exist|Permission Error"),
        ("SELECT * FROM read_csv('/etc/passwd')", r"line 1, column 15: read_csv\(\) in FROM is refused"),
        ("SELECT * FROM Read_Text('https://localhost/x')", r"read_text\(\) in FROM is refused"),
        ("SELECT * FROM query('SELECT random()')", r"query\(\) in FROM is refused"),
        ("SELECT name FROM duckdb_settings()", r"duckdb_settings\(\) in FROM is refused"),
        ("SELECT id FROM flights WHERE id < 0", "has no rows"),
    ],
)
def test_a_query_that_fails_is_told_with_its_place(sql: str, message: str, query, tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match=message) as caught:
        query(sql)
    assert caught.value.file is None, "it is about the query, and no file of the cache"
    assert not [*tmp_path.glob("cache/duckdb/*/.making-*")]


def test_a_result_is_kept_and_made_again_as_it_was_when_it_is_lost(query, tmp_path: Path) -> None:
    for sql in ("SELECT * FROM flights", "SELECT avg(delay) AS a, id % 7 AS g FROM flights GROUP BY g ORDER BY g"):
        before = query(sql).shards()
        [kept] = tmp_path.glob("cache/duckdb/*/rows.parquet")
        made = kept.stat().st_mtime_ns
        assert query(sql).shards() == before
        assert kept.stat().st_mtime_ns == made
        shutil.rmtree(tmp_path / "cache")
        assert query(sql).shards() == before
        shutil.rmtree(tmp_path / "cache")


def test_other_files_are_other_data(query, tables: dict[str, Path]) -> None:
    before = query("SELECT * FROM flights").shards()
    pq.write_table(flights(1, 3_001), tables["flights"])
    after = query("SELECT * FROM flights").shards()
    assert [shard.id for shard in after] == [shard.id for shard in before]
    assert all(one.version != other.version for one, other in zip(before, after, strict=True))


def test_ranks_that_begin_at_once_run_a_query_once(query) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(lambda _: query("SELECT * FROM flights").shards(), range(4))]
    assert found.count(found[0]) == 4
    assert [shard.num_rows for shard in found[0]] == [1_024, 1_024, 952], "a small result has several shards"


def test_a_database_is_read_in_the_order_of_its_rows_and_not_written_to(shop: Path, open_source, read) -> None:
    before = shop.read_bytes()
    dataset = open_source(
        "duckdb", sql='SELECT id, price, "the note" FROM shop.orders', tables={"shop": shop}, allow_nulls=True
    )
    assert read(dataset, "id") == [1, 2, 3]
    assert read(dataset, "price") == [2.0, 1.5, None]
    assert dataset.schema.field("the note").type == pa.string()
    assert read(open_source("duckdb", sql="SELECT id FROM shop.cheap", tables={"shop": shop})) == [2]
    assert shop.read_bytes() == before
    assert [one.name for one in shop.parent.glob("shop.db*")] == ["shop.db"]


def test_what_waits_in_the_log_of_a_database_counts(shop: Path, open_source, read) -> None:
    def opened() -> Any:
        return open_source("duckdb", sql="SELECT id FROM shop.orders", tables={"shop": shop})

    before = opened().shards()
    with closing(sqlite3.connect(shop)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("INSERT INTO orders (id) VALUES (9)")
        database.commit()
        after = opened()
        assert read(after) == [1, 2, 3, 9]
        assert after.shards() != before


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT mixed FROM shop.orders", "column 'mixed' of orders .* has values of several types: integer, text"),
        ("SELECT * FROM shop.order", "has no table 'order'"),
        ("SELECT * FROM shop", "Table with name shop does not exist"),
    ],
)
def test_what_a_database_cannot_give_is_told(sql: str, message: str, shop: Path, open_source) -> None:
    with pytest.raises(InvalidData, match=message):
        open_source("duckdb", sql=sql, tables={"shop": shop})


def test_tables_that_cannot_be_read_are_told(tmp_path: Path, query) -> None:
    (tmp_path / "a.db").write_text("no database, but text that is long enough to look at")
    (tmp_path / "a.xlsx").touch()
    for path, message in {
        "a.db": "cannot be read by SQLite: file is not a database",
        "a.xlsx": "the ending of .* tells no format",
        "a.csv": "does not exist",
    }.items():
        with pytest.raises(InvalidData, match=message) as caught:
            query("SELECT * FROM a.b", tables={"a": tmp_path / path})
        assert caught.value.pointer == "/dataset/tables/a"
    with pytest.raises(InvalidSettings) as refused:
        query("SELECT 1", tables={"a b": tmp_path / "flights.parquet"})
    assert refused.value.pointer == "/tables/a b"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT orders.price FROM shop.orders JOIN shop.names USING (id) ORDER BY 1", [{"price": 1.5}]),
        ("SELECT id FROM shop.orders NATURAL JOIN shop.names ORDER BY id", []),
        ("SELECT o.price, o FROM shop.orders o LIMIT 1", [{"price": 2.0, "o": {"id": 1, "price": 2.0}}]),
        ("SELECT id, #1 AS first FROM shop.names", [{"id": 2, "first": 7.0}]),
        ("SELECT id FROM shop.names AS n(id, price)", [{"id": 7.0}]),
        ("SELECT id FROM shop.names UNION ALL SELECT id FROM shop.Names", [{"id": 2}, {"id": 2}]),
    ],
)
def test_columns_of_a_database_that_a_query_reads_without_naming_them_are_there(
    sql: str, expected: list[dict[str, Any]], tmp_path: Path, open_source
) -> None:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, price REAL)")
        database.executemany("INSERT INTO orders VALUES (?, ?)", [(2, 1.5), (1, 2)])
        database.execute("CREATE TABLE names (price REAL, id INTEGER)")
        database.execute("INSERT INTO names VALUES (7, 2)")
    if not expected:
        with pytest.raises(InvalidData, match="has no rows"):
            open_source("duckdb", sql=sql, tables={"shop": path})
        return
    dataset = open_source("duckdb", sql=sql, tables={"shop": path})
    assert [
        row for one in dataset.shards() for b in dataset.read_shard(one, None, 0) for row in b.to_pylist()
    ] == expected


def test_text_of_a_database_that_is_no_text_is_told_without_a_traceback(shop: Path, open_source) -> None:
    with closing(sqlite3.connect(shop)) as database, database:
        database.execute("UPDATE orders SET \"the note\" = CAST(x'ff41' AS TEXT) WHERE id = 3")
    with pytest.raises(InvalidData, match="cannot be read by SQLite: Could not decode to UTF-8") as caught:
        open_source("duckdb", sql='SELECT "the note" FROM shop.orders', tables={"shop": shop})
    assert "Traceback" not in caught.value.message


def test_a_column_that_is_called_as_a_changing_word_needs_its_table(tmp_path: Path, open_source, read) -> None:
    pq.write_table(pa.table({"user": [7, 8]}), tmp_path / "users.parquet")
    tables = {"users": tmp_path / "users.parquet"}
    with pytest.raises(InvalidData, match="user has another value") as caught:
        open_source("duckdb", sql="SELECT user FROM users", tables=tables)
    assert "name its table as well" in (caught.value.hint or "")
    assert read(open_source("duckdb", sql="SELECT users.user FROM users", tables=tables), "user") == [7, 8]


def test_files_whose_names_have_brackets_are_read_once_each(tmp_path: Path, open_source, read) -> None:
    for number, name in enumerate(("a1.parquet", "a[1].parquet")):
        pq.write_table(pa.table({"id": [number]}), tmp_path / name)
    dataset = open_source("duckdb", sql="SELECT id FROM a", tables={"a": tmp_path / "a*.parquet"})
    assert read(dataset) == [0, 1]


def test_what_a_killed_run_or_a_power_cut_has_left_is_made_again(tmp_path: Path, query, read) -> None:
    before = query("SELECT id FROM flights").shards()
    (folder,) = (tmp_path / "cache" / "duckdb").iterdir()
    (folder / ".making-x").mkdir()
    (folder / ".making-x" / "spilled.tmp").touch()
    (folder / "result.json").write_bytes(b"")
    assert query("SELECT id FROM flights").shards() == before
    (folder / "rows.parquet").unlink()
    assert len(read(query("SELECT id FROM flights"))) == 3_000
    assert {one.name for one in folder.iterdir()} == {"lock", "result.json", "rows.parquet"}
