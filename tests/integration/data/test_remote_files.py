"""Parquet and Arrow files that lie on an HTTP server are read by ranges, and watched for changes."""

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from opened_data import opened, refused, values

from hostcore_builtin_plugins.sources import parquet
from hostcore_builtin_plugins.sources.arrow import ArrowSource
from hostcore_builtin_plugins.sources.data_files import find_file
from hostcore_builtin_plugins.sources.parquet import ParquetSource


def write(path: Path, *, rows: int = 4000, seed: int = 0) -> Path:
    """Numbered rows with a column of noise, in four row groups."""
    noise = np.random.default_rng(seed).random((rows, 10))
    table = pa.table({"n": range(rows), "noise": list(noise), "word": [f"word {i % 7}" for i in range(rows)]})
    pq.write_table(table, path, row_group_size=rows // 4, compression="none")
    return path


@pytest.mark.parametrize(
    ("rows", "columns"),
    [(4000, ()), (400, ("n", "word"))],
    ids=["all columns", "those around a small one that nobody reads"],
)
def test_a_file_on_a_server_is_read_in_order_and_a_small_row_group_at_once(
    server: Any, rows: int, columns: tuple[str, ...]
) -> None:
    write(server.folder / "a.parquet", rows=rows)
    dataset = opened(ParquetSource, server.url("a.parquet"), columns=columns)
    assert values(dataset) == list(range(rows))
    assert values(dataset, offset=rows // 4 - 1) == [rows * part // 4 - 1 for part in range(1, 5)]
    server.requests.clear()
    list(dataset.read_shard(dataset.shards()[1], None, 0))
    assert [method for method, _ in server.requests].count("GET") == 1


def test_a_large_row_group_is_fetched_in_pieces(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_FETCH_BYTES", 1 << 16)
    path = write(server.folder / "a.parquet", rows=40_000)
    dataset = opened(ParquetSource, server.url("a.parquet"))
    server.requests.clear()
    assert values(dataset) == list(range(40_000))
    assert max(size for _, size in server.requests) < path.stat().st_size / 4
    assert server.bytes_sent < 1.2 * path.stat().st_size  # nothing is fetched over and over


def test_columns_that_are_not_read_are_not_fetched(server: Any) -> None:
    path = write(server.folder / "a.parquet")
    dataset = opened(ParquetSource, server.url("a.parquet"), columns=["n"])
    server.requests.clear()
    assert values(dataset) == list(range(4000))
    assert server.bytes_sent < path.stat().st_size / 5


def test_a_file_that_is_replaced_or_gone_after_opening_is_noticed(server: Any) -> None:
    path = write(server.folder / "a.parquet")
    dataset = opened(ParquetSource, server.url("a.parquet"))
    first, second, *_ = dataset.shards()
    list(dataset.read_shard(first, None, 0))
    size = path.stat().st_size
    write(path, seed=1)
    assert path.stat().st_size == size
    error = refused(lambda: list(dataset.read_shard(second, None, 0)), "changed while the run was reading it")
    assert error.file == server.url("a.parquet")
    path.unlink()
    refused(lambda: values(dataset), "nothing at")


def test_a_server_that_fails_is_one_error(server: Any) -> None:
    write(server.folder / "a.parquet")
    dataset = opened(ParquetSource, server.url("a.parquet"))
    server.is_broken = True
    refused(lambda: values(dataset), r"a\.parquet cannot be reached: ClientResponseError: 500")


def test_a_part_of_a_file_that_was_not_fetched_cannot_be_read(server: Any) -> None:
    write(server.folder / "a.parquet")
    file = find_file(server.url("a.parquet"), storage_options={}, pointer="/dataset/paths")
    excerpt = file.open_excerpt([(4, 8)])
    for position in (0, 8):
        excerpt.seek(position)
        with pytest.raises(OSError, match=f"byte {position} of the file was not fetched"):
            excerpt.read(1)


def test_a_server_that_falls_silent_is_one_error(server: Any) -> None:
    write(server.folder / "a.parquet")
    file = find_file(server.url("a.parquet"), storage_options={}, pointer="/dataset/paths")
    impatient = attrs.evolve(file, place=attrs.evolve(file.place, answer_seconds=0.1))
    with impatient.open(read_ahead=False) as opened:
        server.speaks.clear()
        for read in (lambda: opened.read(8), lambda: impatient.open_excerpt([(4, 8)]), impatient.require_unchanged):
            refused(read, r"a\.parquet cannot be reached: TimeoutError: no answer within 0\.1")


def test_an_arrow_file_on_a_server_is_read_in_order(server: Any) -> None:
    table = pa.table({"n": range(1000), "word": pa.array(["a", "b"] * 500).dictionary_encode()})
    with pa.ipc.new_file(server.folder / "a.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=300)
    dataset = opened(ArrowSource, server.url("a.arrow"))
    assert len(dataset.shards()) == 4
    assert values(dataset) == list(range(1000))
