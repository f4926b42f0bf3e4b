import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from hostcore_builtin_plugins.sources.arrow import ArrowSource
from hostcore_builtin_plugins.sources.file_dataset import FileDataset
from hostcore_hookspecs import DataContext, InvalidData

Write = Callable[..., Path]
FORMATS = ("file", "stream")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(
        name: str, *, kind: str = "file", table: pa.Table | None = None, compression: str | None = None, rows: int = 10
    ) -> Path:
        if table is None:
            table = pa.table({"text": [f"row {i}" for i in range(rows)], "n": range(rows)})
        options = pa.ipc.IpcWriteOptions(compression=compression)
        make = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
        with make(tmp_path / name, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=4)
        return tmp_path / name

    return write


def open_arrow(*paths: Path | str, columns: Sequence[str] = ()) -> FileDataset:
    source = ArrowSource(settings=ArrowSource.Settings(paths=tuple(map(str, paths))))
    return source.open_dataset({"columns": list(columns)}, DataContext())


def rows(dataset: FileDataset, column: str = "n", *, offset: int = 0) -> list[Any]:
    # Backwards, so that every shard is sought.
    shards = reversed(dataset.shards())
    parts = [[b.column(column).to_pylist() for b in dataset.read_shard(s, None, offset)] for s in shards]
    return [value for part in reversed(parts) for batch in part for value in batch]


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("kind", FORMATS)
def test_record_batches_are_the_shards(write: Write, kind: str, compression: str | None) -> None:
    path = write("a.arrow", kind=kind, compression=compression)
    dataset = open_arrow(path)
    assert [(shard.id, shard.num_rows) for shard in dataset.shards()] == [
        (f"{path}#0", 4),
        (f"{path}#1", 4),
        (f"{path}#2", 2),
    ]
    assert rows(dataset) == list(range(10))
    assert rows(dataset, offset=1) == [1, 2, 3, 5, 6, 7, 9]


@pytest.mark.parametrize("kind", FORMATS)
def test_dictionaries_are_read_in_any_order_of_shards(write: Write, kind: str) -> None:
    words = ["a", "b", "a", "c"]
    table = pa.table({"word": pa.array(words * 3).dictionary_encode()})
    assert rows(open_arrow(write("a.arrow", kind=kind, table=table)), "word") == words * 3


def test_a_dictionary_replaced_in_the_middle_of_a_stream_is_minded(tmp_path: Path) -> None:
    batches = [pa.record_batch({"word": pa.array(words).dictionary_encode()}) for words in (["a", "b"], ["c"], ["d"])]
    with pa.ipc.new_stream(tmp_path / "a.arrows", batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    assert rows(open_arrow(tmp_path / "a.arrows"), "word") == ["a", "b", "c", "d"]


def test_a_batch_outlives_the_file_it_was_mapped_from(write: Write) -> None:
    path = write("a.arrow")
    dataset = open_arrow(path)
    batches = [batch for shard in dataset.shards() for batch in dataset.read_shard(shard, None, 0)]
    path.unlink()
    assert pa.Table.from_batches(batches).column("n").to_pylist() == list(range(10))


@pytest.mark.parametrize("kind", FORMATS)
def test_batches_without_rows_are_passed_over(tmp_path: Path, kind: str) -> None:
    full, empty = pa.record_batch({"n": [1, 2]}), pa.record_batch({"n": pa.array([], pa.int64())})
    make = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    with make(tmp_path / "a.arrow", full.schema) as writer:
        for batch in (empty, full, empty, full):
            writer.write_batch(batch)
    dataset = open_arrow(tmp_path)
    assert [shard.id.rpartition("#")[2] for shard in dataset.shards()] == ["1", "3"]
    assert rows(dataset) == [1, 2, 1, 2]


def test_a_stream_that_nobody_ended_is_read_as_far_as_it_goes(write: Write) -> None:
    path = write("a.arrows", kind="stream")
    os.truncate(path, path.stat().st_size - 8)  # the mark of the end, which the format does not require
    assert rows(open_arrow(path)) == list(range(10))


def test_damage_in_the_middle_is_found_while_reading(tmp_path: Path) -> None:
    table = pa.table({"narrow": pa.array([1] * 8, pa.int8()), "n": list(range(8))})
    path = tmp_path / "a.arrow"
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table, max_chunksize=4)
    content = bytearray(path.read_bytes())
    frames = [i for i in range(len(content)) if content[i : i + 4] == b"\x28\xb5\x2f\xfd"]  # of Zstandard
    content[frames[-1] : frames[-1] + 4] = b"junk"
    path.write_bytes(content)
    dataset = open_arrow(path)
    with pytest.raises(InvalidData, match=rf"record batch 1 of {path} cannot be read"):
        list(dataset.read_shard(dataset.shards()[1], None, 0))
