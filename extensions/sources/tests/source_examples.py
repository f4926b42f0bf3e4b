"""The same 2,500 rows as each source reads them: what the kit is given, and what tests open."""

import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

ROWS = 2_500
#: Rows that were written together.
CUTS = (0, 900, 1_700, ROWS)


def flights(first: int = 0, last: int = ROWS) -> pa.Table:
    numbers = range(first, last)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "delay": pa.array([number / 8 - 3 for number in numbers], pa.float32()),
            "flight": pa.array([f"HC {number}" for number in numbers], pa.string()),
        }
    )


def written_parts() -> list[pa.Table]:
    return [flights(first, last) for first, last in pairwise(CUTS)]


def save_datasets(folder: Path) -> dict[str, Any]:
    import datasets

    datasets.disable_progress_bars()
    datasets.Dataset(flights()).save_to_disk(folder / "saved", num_shards=2)
    return {"path": str(folder / "saved")}


def save_lance(folder: Path) -> dict[str, Any]:
    import lance

    for part in written_parts():
        lance.write_dataset(part, folder / "flights.lance", mode="append")
    return {"path": str(folder / "flights.lance")}


def save_delta(folder: Path) -> dict[str, Any]:
    import deltalake

    for part in written_parts():
        deltalake.write_deltalake(folder / "flights", part, mode="append")
    return {"path": str(folder / "flights")}


def save_duckdb(folder: Path) -> dict[str, Any]:
    """A query over all three formats."""
    first, second, third = written_parts()
    pq.write_table(first, folder / "first.parquet")
    pa.csv.write_csv(second, folder / "second.csv")
    with closing(sqlite3.connect(folder / "third.sqlite")) as database, database:
        database.execute("CREATE TABLE flights (id INTEGER PRIMARY KEY, delay REAL, flight TEXT)")
        rows = [tuple(row.values()) for row in third.to_pylist()]
        database.executemany("INSERT INTO flights VALUES (?, ?, ?)", rows)
    return {
        "sql": "SELECT id, delay::FLOAT AS delay, flight FROM (SELECT * FROM first UNION ALL SELECT * FROM second "
        "UNION ALL SELECT * FROM third.flights)",
        "tables": {
            "first": str(folder / "first.parquet"),
            "second": str(folder / "second.csv"),
            "third": str(folder / "third.sqlite"),
        },
    }


SAVED = {"datasets": save_datasets, "delta": save_delta, "duckdb": save_duckdb, "lance": save_lance}


class Numbers:
    """A map-style dataset, as one by import path: of three shards."""

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> int:
        return index


@attrs.frozen
class Example:
    """A harness: the settings of a source, and the rows that it must read."""

    settings: Mapping[str, Any]

    table: pa.Table = attrs.field(factory=flights)

    def rows(self) -> pa.Table:
        return self.table


@contextmanager
def _example(name: str) -> Iterator[Example]:
    with tempfile.TemporaryDirectory() as folder:
        yield Example(SAVED[name](Path(folder)))


def datasets_example() -> Any:
    return _example("datasets")


def delta_example() -> Any:
    return _example("delta")


def duckdb_example() -> Any:
    return _example("duckdb")


def lance_example() -> Any:
    return _example("lance")


def torch_example() -> Any:
    """The rows of this source are the numbers of the items."""
    return Example({"use": "source_examples:Numbers"}, pa.table({"index": pa.array(range(len(Numbers())), pa.int64())}))
