"""Small data for the built-in data sources, and what is in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

#: Two files' worth, of different lengths.
PARTS = (range(70), range(70, 120))


class Known:
    """The harness: the rows that were written."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def rows(self) -> pa.Table:
        """All of them, in order."""
        return self._table


def _table(rows: range) -> pa.Table:
    return pa.table(
        {
            "hour": pa.array([i % 24 for i in rows], pa.int64()),
            "delay": pa.array([i / 8 - 3 for i in rows], pa.float64()),
            "flight": pa.array([f"HC {i}" for i in rows], pa.string()),
        }
    )


def _tables() -> list[pa.Table]:
    return [_table(rows) for rows in PARTS]


def _known() -> Known:
    return Known(pa.concat_tables(_tables()))


def parquet(folder: Path) -> dict[str, Any]:
    """Two files with several row groups each."""
    for i, table in enumerate(_tables()):
        pq.write_table(table, folder / f"{i}.parquet", row_group_size=32)
    return {"settings": {"parquet_paths": [str(folder / "*.parquet")]}, "harness": _known()}


def arrow(folder: Path) -> dict[str, Any]:
    """A file and a stream."""
    for name, new, table in zip("ab", (pa.ipc.new_file, pa.ipc.new_stream), _tables(), strict=True):
        with new(folder / f"{name}.arrow", table.schema) as writer:
            writer.write_table(table, max_chunksize=32)
    return {"settings": {"paths": [str(folder / "a.arrow"), str(folder / "b.arrow")]}, "harness": _known()}


def csv(folder: Path) -> dict[str, Any]:
    """Two files in a folder."""
    for i, table in enumerate(_tables()):
        pa.csv.write_csv(table, folder / f"{i}.csv")
    return {"settings": {"paths": [str(folder)]}, "harness": _known()}


def json_lines(folder: Path) -> dict[str, Any]:
    """Two files of lines."""
    for i, table in enumerate(_tables()):
        (folder / f"{i}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))
    return {"settings": {"paths": [str(folder / "0.jsonl"), str(folder / "1.jsonl")]}, "harness": _known()}


def shards(folder: Path) -> dict[str, Any]:
    """An index of two Parquet files."""
    parquet(folder)
    records = [{"shard": f"{i}.parquet", "samples": len(rows)} for i, rows in enumerate(PARTS)]
    (folder / "index.json").write_text(json.dumps({"name": "flights", "records": records}))
    return {"settings": {"index": str(folder / "index.json")}, "harness": _known()}


def mock(folder: Path) -> dict[str, Any]:
    """Generated rows need no files; what they are follows from the formula, which no harness repeats."""
    return {"settings": {"num_rows": 100, "num_shards": 3, "types": {"x": "float32", "words": "string"}}}


EXAMPLES: Mapping[str, Callable[[Path], dict[str, Any]]] = {
    "parquet": parquet,
    "arrow": arrow,
    "csv": csv,
    "json": json_lines,
    "shards": shards,
    "mock": mock,
}
