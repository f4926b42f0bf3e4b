import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from opened_data import opened, refused, table, values

from hostcore_builtin_plugins.sources.parquet import ParquetSource

open_parquet = partial(opened, ParquetSource)
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """``write({"n": [1, 2]}, "a.parquet", group=4)``: a file with these columns, in groups of so many rows."""

    def write_columns(columns: Any, name: str = "a.parquet", *, group: int = 100_000, **options: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = columns if isinstance(columns, pa.Table) else pa.table(columns)
        pq.write_table(content, path, row_group_size=group, **options)
        return path

    return write_columns


def test_a_shard_is_read_from_any_offset(write: Write) -> None:
    dataset = open_parquet(write({"n": range(100_000)}))
    for offset in (0, 1, 65_535, 65_536, 65_537, 99_999):
        assert values(dataset, offset=offset) == list(range(offset, 100_000))


@pytest.mark.parametrize("spread", [0, 1.5])
def test_texts_are_decoded_in_batches_of_some_megabytes_however_their_lengths_differ(
    write: Write, spread: float
) -> None:
    print("seed", seed := 7)
    lengths = np.random.default_rng(seed).lognormal(5, spread, 100_000).astype(int)
    texts = {"text": ["x" * int(length) for length in lengths], "none": pa.nulls(100_000, pa.string())}
    dataset = open_parquet(write(texts, use_dictionary=False))
    assert len(list(dataset.read_shard(dataset.shards()[0], None, 0))) < 4 * lengths.sum() / (2 << 20)


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
def test_strings_are_read_however_they_are_encoded(write: Write, options: dict[str, Any]) -> None:
    texts = [None if i % 9 == 0 else f"text {i} " * (i % 7) for i in range(20_000)]
    written = pa.table({"text": texts, "texts": [[text] * (i % 3) for i, text in enumerate(texts)]})
    assert table(open_parquet(write(written, **options))) == written


@pytest.mark.parametrize(
    "columns",
    [
        {
            "null": pa.nulls(3000, pa.string()),
            "empty": pa.array([""] * 3000),
            "empty lists": pa.array([[]] * 3000, pa.list_(pa.string())),
            "one late": pa.array([[]] * 2999 + [["a"]], pa.list_(pa.string())),
        },
        {"point": [{"x": 1, "y": [1, 2]}, {"x": 2, "y": []}], "": [1, 2]},
    ],
    ids=["missing or empty strings", "a nested column, and a name that is empty"],
)
def test_columns_of_all_kinds_are_read_whole_and_alone(write: Write, columns: Any) -> None:
    written = pa.table(columns)
    path = write(written)
    assert table(open_parquet(path)) == written
    for name in written.column_names:
        assert table(open_parquet(path, columns=[name])) == written.select([name])


@pytest.mark.parametrize("first", ["nulls", "values"])
def test_a_column_of_nulls_alone_has_the_type_of_the_other_files(write: Write, tmp_path: Path, first: str) -> None:
    nulls = pa.table({"y": pa.nulls(2), "z": [[], [None]], "n": [0, 1]})
    others = pa.table({"y": [0.5], "z": [["a"]], "n": [2]})
    for name, content in zip("ab", [nulls, others] if first == "nulls" else [others, nulls], strict=True):
        write(content, f"{name}.parquet")
    dataset = open_parquet(tmp_path, allow_nulls=True)
    assert dataset.schema.types == [pa.float64(), pa.list_(pa.string()), pa.int64()]
    rows = sorted(table(dataset).to_pylist(), key=lambda row: row["n"])
    assert rows == [*nulls.to_pylist(), *others.to_pylist()]
    error = refused(lambda: open_parquet(tmp_path), r"column 'y' is (null|double) in .* and (null|double) in ")
    assert str(error.hint).startswith("'y' has nothing but nulls where it is null: set dataset.allow_nulls, ")


@pytest.mark.parametrize("inside", ["", "/*/*.parquet", "/**/*.parquet"])
def test_a_column_in_the_names_of_folders_is_not_lost_in_silence(write: Write, inside: str) -> None:
    for label in (0, 1):
        path = write({"n": [label], "text": ["x"]}, f"lr=0.1/data/label={label}/a.parquet")
    data = f"{path.parent.parent}{inside}"
    for columns in ([], ["n", "label"]):
        error = refused(
            lambda columns=columns: open_parquet(data, columns=columns),
            "lies in a folder label=0, and has no column 'label' itself",
        )
        assert "(label=…)" in (error.hint or "")
    assert values(open_parquet(data, columns=["n"])) == [0, 1]


def test_a_column_that_the_names_of_folders_repeat_is_read(write: Write) -> None:
    assert values(open_parquet(write({"n": [7]}, "data/n=7/a.parquet").parents[1])) == [7]


def test_many_files_keep_the_order_of_their_names_and_as_many_are_open_as_are_being_read(tmp_path: Path) -> None:
    for number in range(100):
        pq.write_table(pa.table({"n": [number]}), tmp_path / f"{number:04}.parquet")
    dataset = open_parquet(tmp_path)
    assert values(dataset) == list(range(100))
    reading = [dataset.read_shard(shard, None, 0) for shard in dataset.shards()]
    for batches in reading[:24]:
        next(batches)
    open_files = {os.path.realpath(descriptor) for descriptor in Path("/proc/self/fd").iterdir()}
    assert len([file for file in open_files if file.startswith(str(tmp_path))]) == 24


def test_storage_options_reach_the_file_system(write: Write, tmp_path: Path) -> None:
    options = {"simplecache": {"cache_storage": str(tmp_path / "cache")}}
    assert values(open_parquet(f"simplecache::file://{write({'n': [1]})}", storage_options=options)) == [1]
    assert list((tmp_path / "cache").iterdir())


def test_a_file_with_two_columns_of_one_name_is_refused(write: Write) -> None:
    path = write(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["n", "n"]))
    refused(lambda: open_parquet(path), "several columns called 'n'")


def test_a_damaged_footer_is_refused_in_one_line(write: Write) -> None:
    path = write({"n": range(10)}, group=4)
    content = bytearray(path.read_bytes())
    content[-60:-20] = b"\xff" * 40
    path.write_bytes(content)
    assert refused(lambda: open_parquet(path), "truncated or damaged").message.isprintable()


def test_damage_in_the_middle_is_found_while_reading(write: Write) -> None:
    path = write({"n": np.random.default_rng(0).random(30_000)}, group=10_000, write_page_checksum=True)
    content = bytearray(path.read_bytes())
    column = pq.read_metadata(path).row_group(1).column(0)
    middle = (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size // 2
    content[middle : middle + 50] = bytes(50)
    path.write_bytes(content)
    dataset = open_parquet(path)

    def rows(shard: Any) -> int:
        return sum(batch.num_rows for batch in dataset.read_shard(shard, None, 0))

    first, damaged, last = dataset.shards()
    assert rows(first) == 10_000
    assert refused(lambda: rows(damaged), rf"row group 1 of {path} cannot be read").file == str(path)
    assert rows(last) == 10_000
