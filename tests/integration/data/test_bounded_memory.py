"""Small Parquet files that expand to a gigabyte are read in little memory, whatever makes them expand."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fork_server import run

MIB = 1 << 20
#: What reading may take beyond the process as it is before it opens the dataset.
ALLOWED = 256 * MIB

#: Reads a dataset in a process of its own, several shards side by side, and tells what it took. Rows are counted and
#: their bytes summed up, so that every value is decoded.
READ = """
import json, sys
from hostcore_builtin_plugins.sources.parquet import ParquetSource
from hostcore_hookspecs import DataContext

def memory(name):
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith(name))

path, side_by_side, offset = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
base = memory("VmRSS")
dataset = ParquetSource(settings=ParquetSource.Settings(parquet_paths=path)).open_dataset({}, DataContext())
left, open_shards, rows, size = list(dataset.shards()), [], 0, 0
while left or open_shards:
    while left and len(open_shards) < side_by_side:
        open_shards.append(dataset.read_shard(left.pop(0), None, offset))
    for shard in list(open_shards):
        batch = next(shard, None)
        if batch is None:
            open_shards.remove(shard)
        else:
            rows, size = rows + batch.num_rows, size + batch.nbytes
print(json.dumps({"rows": rows, "bytes": size, "memory": memory("VmHWM") - base}))
"""


def read(path: Path, *, side_by_side: int = 1, offset: int = 0) -> dict[str, int]:
    command = [sys.executable, "-c", READ, path, str(side_by_side), str(offset)]
    done = run(command, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def write(path: Path, columns: dict[str, list[pa.Array]], **options: object) -> None:
    """Write arrays, of which the same one may come many times, as one row group (of up to 67 million rows)."""
    table = pa.table({name: pa.chunked_array(chunks) for name, chunks in columns.items()})
    pq.write_table(table, path, **{"row_group_size": table.num_rows, "compression": "zstd", **options})


def numbers(path: Path) -> None:
    write(path, {"n": [pa.array(np.zeros(MIB, np.int64))] * 60})


def plain_zeros(path: Path) -> None:
    write(path, {"n": [pa.array(np.zeros(MIB, np.int64))] * 60}, use_dictionary=False)


def strings(path: Path) -> None:
    write(path, {"text": [pa.array(["x" * 1_000_000])] * 480})


def categories(path: Path) -> None:
    one = pa.DictionaryArray.from_arrays(pa.array(np.zeros(480, np.int32)), ["x" * 1_000_000])
    write(path, {"text": [one]})


def strings_in_structs(path: Path) -> None:
    """Behind columns of many leaves, which the metadata numbers."""
    first = pa.array([{"x": 1, "y": [1], "z": {"a": "b"}}])
    pairs = pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))
    item = pa.array([{"id": 1, "text": "x" * 100_000}])
    write(path, {"first": [first] * 4700, "pairs": [pairs] * 4700, "item": [item] * 4700})


def strings_in_lists(path: Path) -> None:
    write(path, {"texts": [pa.array([["x" * 50_000] * 100])] * 95})


def lists(path: Path) -> None:
    write(path, {"values": [pa.array([[0.0] * 10_000] * 10)] * 600})


def fixed_size_lists(path: Path) -> None:
    write(path, {"values": [pa.array([[0.0] * 10_000] * 10, pa.list_(pa.float64(), 10_000))] * 600})


def many_columns(path: Path) -> None:
    write(path, {f"x{i}": [pa.array(np.zeros(1000))] * 300 for i in range(200)})


def late_strings(path: Path, **options: object) -> None:
    """A hundred thousand short ones, 500 that are long, and short ones again."""
    short = pa.array([f"row {i}" for i in range(1000)])
    write(path, {"text": [short] * 100 + [pa.array(["x" * 1_000_000])] * 500 + [short] * 100}, **options)


def late_plain_strings(path: Path) -> None:
    late_strings(path, use_dictionary=False)


def late_lists(path: Path) -> None:
    short = pa.array([[1.0]] * 1000)
    write(path, {"values": [short] * 100 + [pa.array([np.zeros(125_000)])] * 500 + [short] * 100})


BOMBS = [
    *(numbers, plain_zeros, strings, categories, strings_in_structs, strings_in_lists),
    *(lists, fixed_size_lists, many_columns, late_strings, late_plain_strings, late_lists),
]


@pytest.mark.parametrize("bomb", BOMBS, ids=[bomb.__name__ for bomb in BOMBS])
def test_a_small_file_with_large_content_is_read_in_little_memory(tmp_path: Path, bomb: Callable[[Path], None]) -> None:
    bomb(tmp_path / "bomb.parquet")
    assert (tmp_path / "bomb.parquet").stat().st_size < MIB
    done = read(tmp_path / "bomb.parquet")
    assert done["bytes"] >= 440 * MIB  # so the whole of it would not have fitted
    assert done["memory"] < ALLOWED


def test_24_row_groups_side_by_side_fit_too(tmp_path: Path) -> None:
    text = pa.chunked_array([pa.array(["x" * 1_000_000])] * 480)
    pq.write_table(pa.table({"text": text}), tmp_path / "bomb.parquet", row_group_size=20, compression="zstd")
    done = read(tmp_path / "bomb.parquet", side_by_side=24)
    assert done["rows"] == 480
    assert done["memory"] < ALLOWED


@pytest.mark.parametrize("offset", [0, 3_999_990])
def test_a_huge_row_group_is_read_from_anywhere_in_little_memory(tmp_path: Path, offset: int) -> None:
    noise = np.random.default_rng(0).random(4_000_000)
    write(tmp_path / "noise.parquet", {f"x{i}": [pa.array(noise)] for i in range(4)}, compression="none")
    done = read(tmp_path / "noise.parquet", offset=offset)
    assert done["rows"] == 4_000_000 - offset
    assert done["memory"] < 96 * MIB  # three quarters of the row group
