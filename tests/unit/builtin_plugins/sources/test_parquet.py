import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hostcore_builtin_plugins.sources.file_dataset import FileDataset
from hostcore_builtin_plugins.sources.parquet import ParquetSource
from hostcore_hookspecs import DataContext, InvalidData


def open_parquet(*paths: Path | str, columns: Sequence[str] = (), split: str = "train", **settings: Any) -> FileDataset:
    parquet_paths = tuple(map(str, paths))
    source = ParquetSource(settings=ParquetSource.Settings(parquet_paths=parquet_paths, **settings))
    dataset: Mapping[str, Any] = {"parquet_paths": parquet_paths, "columns": list(columns)}
    return source.open_dataset(dataset, DataContext(split=split))


def numbers(dataset: FileDataset, *, offset: int = 0) -> list[int]:
    return [
        number
        for shard in dataset.shards()
        for batch in dataset.read_shard(shard, None, offset)
        for number in batch.column("n").to_pylist()
    ]


def test_row_groups_are_the_shards(write_parquet: Callable[..., Path]) -> None:
    path = write_parquet("a.parquet", rows=range(10), group=4)
    shards = open_parquet(path).shards()
    assert [(shard.id, shard.num_rows) for shard in shards] == [(f"{path}#0", 4), (f"{path}#1", 4), (f"{path}#2", 2)]


@pytest.mark.parametrize("offset", [0, 1, 65_535, 65_536, 65_537, 99_999])
def test_a_shard_is_read_from_any_offset(write_parquet: Callable[..., Path], offset: int) -> None:
    path = write_parquet("a.parquet", rows=range(100_000), group=100_000)
    assert numbers(open_parquet(path), offset=offset) == list(range(offset, 100_000))


def test_a_nested_column_is_read_whole(write_parquet: Callable[..., Path]) -> None:
    rows = [{"x": 1, "y": [1, 2]}, {"x": 2, "y": []}]
    dataset = open_parquet(write_parquet("a.parquet", table=pa.table({"point": rows, "n": [1, 2]})), columns=["point"])
    assert next(dataset.read_shard(dataset.shards()[0], None, 0)).column("point").to_pylist() == rows


def test_large_rows_are_decoded_a_few_at_a_time(write_parquet: Callable[..., Path]) -> None:
    # One megabyte, 100 times: a dictionary makes the file small, and its footer says so.
    path = write_parquet("a.parquet", table=pa.table({"image": [b"x" * 1_000_000] * 100}), group=100)
    dataset = open_parquet(path)
    assert path.stat().st_size < 2_000_000
    assert max(batch.nbytes for batch in dataset.read_shard(dataset.shards()[0], None, 0)) <= 3 << 20


@pytest.mark.parametrize(
    "options",
    [
        {"use_dictionary": False},
        {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}},
        {"use_dictionary": False, "column_encoding": {"text": "DELTA_LENGTH_BYTE_ARRAY"}},
        {"dictionary_pagesize_limit": 1000},
        {"version": "1.0"},
        {"data_page_version": "2.0"},
        {"write_statistics": False},
    ],
    ids=str,
)
def test_strings_are_read_however_they_are_encoded(tmp_path: Path, options: dict[str, Any]) -> None:
    texts = [None if i % 9 == 0 else f"text {i} " * (i % 7) for i in range(20_000)]
    table = pa.table({"text": texts, "texts": [[text] * (i % 3) for i, text in enumerate(texts)]})
    pq.write_table(table, tmp_path / "a.parquet", **options)
    dataset = open_parquet(tmp_path / "a.parquet")
    batches = [batch for shard in dataset.shards() for batch in dataset.read_shard(shard, None, 0)]
    assert pa.Table.from_batches(batches) == table


def test_a_column_without_values_does_not_slow_the_others_down(tmp_path: Path) -> None:
    table = pa.table({"n": range(50_000), "text": pa.nulls(50_000, pa.string()), "empty": [""] * 50_000})
    pq.write_table(table, tmp_path / "a.parquet")
    dataset = open_parquet(tmp_path / "a.parquet")
    assert len(list(dataset.read_shard(dataset.shards()[0], None, 0))) == 1


def test_strings_that_are_all_missing_or_empty_are_read(tmp_path: Path) -> None:
    rows = 3000
    columns = {
        "null": pa.nulls(rows, pa.string()),
        "empty": pa.array([""] * rows),
        "empty lists": pa.array([[]] * rows, pa.list_(pa.string())),
        "one late": pa.array([[]] * (rows - 1) + [["a"]], pa.list_(pa.string())),
    }
    table = pa.table(columns)
    pq.write_table(table, tmp_path / "a.parquet")
    dataset = open_parquet(tmp_path / "a.parquet")
    batches = list(dataset.read_shard(dataset.shards()[0], None, 0))
    assert pa.Table.from_batches(batches) == table


@pytest.mark.parametrize("first", ["nulls", "values"])
def test_a_column_of_nulls_alone_has_the_type_of_the_other_files(tmp_path: Path, first: str) -> None:
    nulls = pa.table({"y": pa.nulls(2), "z": [[], [None]], "n": [0, 1]})
    values = pa.table({"y": [0.5], "z": [["a"]], "n": [2]})
    for name, table in (("a", nulls), ("b", values)) if first == "nulls" else (("a", values), ("b", nulls)):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    dataset = open_parquet(tmp_path, allow_nulls=True)
    assert dataset.schema.types == [pa.float64(), pa.list_(pa.string()), pa.int64()]
    batches = [batch for shard in dataset.shards() for batch in dataset.read_shard(shard, None, 0)]
    rows = sorted(pa.Table.from_batches(batches).to_pylist(), key=lambda row: row["n"])
    assert rows == [*nulls.to_pylist(), *values.to_pylist()]
    with pytest.raises(InvalidData, match=r"column 'y' is (null|double) in .* and (null|double) in ") as raised:
        open_parquet(tmp_path)
    assert raised.value.hint is not None
    assert raised.value.hint.startswith("'y' has nothing but nulls where it is null: set dataset.allow_nulls, ")


@pytest.mark.parametrize("inside", ["", "/*/*.parquet", "/**/*.parquet"])
def test_a_column_in_the_names_of_folders_is_not_lost_in_silence(
    write_parquet: Callable[..., Path], inside: str
) -> None:
    for label in (0, 1):
        path = write_parquet(f"lr=0.1/data/label={label}/a.parquet", rows=range(label, label + 1))
    data = f"{path.parent.parent}{inside}"
    for columns in ([], ["n", "label"]):
        with pytest.raises(InvalidData, match="lies in a folder label=0, and has no column 'label' itself") as raised:
            open_parquet(data, columns=columns)
        assert "(label=…)" in (raised.value.hint or "")
    assert numbers(open_parquet(data, columns=["n"])) == [0, 1]


def test_a_column_that_the_names_of_folders_repeat_is_read(write_parquet: Callable[..., Path]) -> None:
    path = write_parquet("data/n=7/a.parquet", rows=range(7, 8))
    assert numbers(open_parquet(path.parent.parent)) == [7]


def test_a_column_may_have_an_empty_name(write_parquet: Callable[..., Path]) -> None:
    path = write_parquet("a.parquet", table=pa.table({"": [1, 2], "n": [3, 4]}))
    for columns in ([], ["", "n"]):
        dataset = open_parquet(path, columns=columns)
        assert [batch.to_pydict() for batch in dataset.read_shard(dataset.shards()[0], None, 0)] == [
            {"": [1, 2], "n": [3, 4]}
        ]


def test_files_and_row_groups_without_rows_are_passed_over(write_parquet: Callable[..., Path], tmp_path: Path) -> None:
    table = pa.table({"n": [1]})
    with pq.ParquetWriter(tmp_path / "a.parquet", table.schema) as writer:
        for part in (table.slice(0, 0), table, table.slice(0, 0), table):
            writer.write_table(part)
    # pandas writes an empty column as null, whatever the others are.
    write_parquet("0.parquet", table=pa.table({"n": pa.array([], pa.null())}))
    dataset = open_parquet(tmp_path)
    assert [shard.id for shard in dataset.shards()] == [f"{tmp_path}/a.parquet#1", f"{tmp_path}/a.parquet#3"]
    assert numbers(dataset) == [1, 1]


def test_a_thousand_files_keep_the_order_of_their_names(tmp_path: Path) -> None:
    for i in range(1000):
        pq.write_table(pa.table({"n": [i]}), tmp_path / f"{i:04}.parquet")
    dataset = open_parquet(tmp_path)
    assert numbers(dataset) == list(range(1000))


def test_as_many_files_are_open_as_shards_are_being_read(tmp_path: Path) -> None:
    for i in range(100):
        pq.write_table(pa.table({"n": [i]}), tmp_path / f"{i:04}.parquet")
    dataset = open_parquet(tmp_path)
    reading = [dataset.read_shard(shard, None, 0) for shard in dataset.shards()]
    for batches in reading[:24]:
        next(batches)
    open_files = {os.path.realpath(descriptor) for descriptor in Path("/proc/self/fd").iterdir()}
    assert len([file for file in open_files if file.startswith(str(tmp_path))]) == 24


def test_storage_options_reach_the_file_system(write_parquet: Callable[..., Path], tmp_path: Path) -> None:
    options = {"simplecache": {"cache_storage": str(tmp_path / "cache")}}
    dataset = open_parquet(f"simplecache::file://{write_parquet('a.parquet')}", storage_options=options)
    assert numbers(dataset) == list(range(10))
    assert list((tmp_path / "cache").iterdir())


def test_a_file_with_two_columns_of_one_name_is_refused(write_parquet: Callable[..., Path]) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["n", "n"])
    with pytest.raises(InvalidData, match="several columns called 'n'"):
        open_parquet(write_parquet("a.parquet", table=table))


def test_a_damaged_footer_is_refused_in_one_line(write_parquet: Callable[..., Path]) -> None:
    path = write_parquet("a.parquet")
    content = bytearray(path.read_bytes())
    content[-60:-20] = b"\xff" * 40
    path.write_bytes(content)
    with pytest.raises(InvalidData, match="truncated or damaged") as raised:
        open_parquet(path)
    assert raised.value.message.isprintable()


def test_damage_in_the_middle_is_found_while_reading(write_parquet: Callable[..., Path]) -> None:
    values = np.random.default_rng(0).random(30_000)
    path = write_parquet("a.parquet", table=pa.table({"n": values}), group=10_000)
    content = bytearray(path.read_bytes())
    column = pq.read_metadata(path).row_group(1).column(0)
    middle = (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size // 2
    content[middle : middle + 50] = bytes(50)
    path.write_bytes(content)
    dataset = open_parquet(path)
    first, damaged, last = dataset.shards()
    assert sum(batch.num_rows for batch in dataset.read_shard(first, None, 0)) == 10_000
    with pytest.raises(InvalidData, match=rf"row group 1 of {path} cannot be read") as raised:
        list(dataset.read_shard(damaged, None, 0))
    assert raised.value.file == str(path)
    assert sum(batch.num_rows for batch in dataset.read_shard(last, None, 0)) == 10_000
