"""The contract of a data source of files, whatever their format: Parquet, Arrow, CSV, JSON."""

import csv
import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hostcore_builtin_plugins.sources.arrow import ArrowSource
from hostcore_builtin_plugins.sources.csv_source import CsvSource
from hostcore_builtin_plugins.sources.file_dataset import FileDataset
from hostcore_builtin_plugins.sources.json_source import JsonSource
from hostcore_builtin_plugins.sources.parquet import ParquetSource
from hostcore_hookspecs import DataContext, InvalidData, InvalidSettings


def parquet(table: pa.Table) -> bytes:
    content = io.BytesIO()
    pq.write_table(table, content, row_group_size=4)
    return content.getvalue()


def arrow(make: Callable[..., Any], table: pa.Table) -> bytes:
    content = io.BytesIO()
    with make(content, table.schema) as writer:
        writer.write_table(table, max_chunksize=4)
    return content.getvalue()


def text_of_csv(table: pa.Table) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([table.column_names, *(row.values() for row in table.to_pylist())])
    return text.getvalue().encode()


def text_of_json(table: pa.Table) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in table.to_pylist())


@attrs.frozen
class Format:
    """A source, and how its files are written."""

    name: str
    source: type
    write: Callable[[pa.Table], bytes]
    paths: str = "paths"
    #: Of ten rows; text is cut into much larger ones.
    shards: int = 3

    def open(self, *paths: Path | str, columns: tuple[str, ...] = (), split: str = "train", **more: Any) -> FileDataset:
        settings = self.source.Settings(**{self.paths: tuple(map(str, paths))}, **more)  # type: ignore[attr-defined]
        return self.source(settings=settings).open_dataset({"columns": list(columns)}, DataContext(split=split))

    def put(self, path: Path, rows: range = range(10), **more: Any) -> Path:
        """Write a file of numbered rows."""
        path = path.with_suffix(f".{self.name}")
        columns = {"n": pa.array(rows, pa.int64()), "text": pa.array([f"row {i}" for i in rows], pa.string()), **more}
        path.write_bytes(self.write(pa.table(columns)))
        return path


FORMATS = [
    Format("parquet", ParquetSource, parquet, "parquet_paths"),
    Format("arrow", ArrowSource, lambda table: arrow(pa.ipc.new_file, table)),
    Format("arrows", ArrowSource, lambda table: arrow(pa.ipc.new_stream, table)),
    Format("csv", CsvSource, text_of_csv, shards=1),
    Format("jsonl", JsonSource, text_of_json, shards=1),
]


@pytest.fixture(params=FORMATS, ids=lambda one: one.name)
def format(request: pytest.FixtureRequest) -> Format:
    return request.param


@pytest.fixture
def memory() -> Iterator[Any]:
    filesystem = fsspec.filesystem("memory")
    yield filesystem
    filesystem.rm("/flights", recursive=True)


def numbers(dataset: FileDataset) -> list[int]:
    """Of all rows, read backwards, so that every shard is sought."""
    parts = [[n for b in dataset.read_shard(s, None, 0) for n in b["n"].to_pylist()] for s in dataset.shards()[::-1]]
    return [n for part in reversed(parts) for n in part]


def refused(call: Callable[[], Any], match: str) -> InvalidData:
    with pytest.raises(InvalidData, match=match) as raised:
        call()
    return raised.value


def test_a_shard_is_read_from_any_row_with_the_columns_asked_for(format: Format, tmp_path: Path) -> None:
    dataset = format.open(format.put(tmp_path / "a"), columns=("text", "n"))
    assert dataset.schema.names == ["text", "n"]
    assert len({shard.id for shard in dataset.shards()}) == len(dataset.shards()) == format.shards
    assert numbers(dataset) == list(range(10))
    first = 0
    for shard in dataset.shards():
        for offset in range(shard.num_rows + 1):
            read = [n for batch in dataset.read_shard(shard, ["n"], offset) for n in batch.to_pydict()["n"]]
            assert read == list(range(first + offset, first + shard.num_rows))
        first += shard.num_rows
    assert next(dataset.read_shard(dataset.shards()[0], ["text", "n"], 0)).schema == dataset.schema


def test_only_the_columns_of_the_job_are_read(format: Format, tmp_path: Path) -> None:
    dataset = format.open(format.put(tmp_path / "a", more=pa.array(range(10))), columns=("text", "n"))
    assert next(dataset.read_shard(dataset.shards()[0], ["n"], 0)).slice(0, 4).to_pydict() == {"n": [0, 1, 2, 3]}
    assert next(dataset.read_shard(dataset.shards()[0], None, 0)).schema.names == ["text", "n"]


def test_columns_may_be_in_another_order_in_each_file(format: Format, tmp_path: Path) -> None:
    format.put(tmp_path / "a", range(2))
    format.put(tmp_path / "b", range(0)).write_bytes(format.write(pa.table({"text": ["x"], "n": [2]})))
    dataset = format.open(tmp_path)
    assert numbers(dataset) == [0, 1, 2]
    assert next(dataset.read_shard(dataset.shards()[1], None, 0)).schema == dataset.schema


def test_nulls_are_let_through_when_the_job_says_so(format: Format, tmp_path: Path) -> None:
    path = format.put(tmp_path / "a", range(2), y=pa.array([1, None]))
    assert not format.open(path).allow_nulls
    dataset = format.open(path, allow_nulls=True)
    assert dataset.allow_nulls
    assert next(dataset.read_shard(dataset.shards()[0], ["y"], 0)).to_pydict() == {"y": [1, None]}


def test_no_file_stays_open(format: Format, tmp_path: Path) -> None:
    path = format.put(tmp_path / "a")
    dataset = format.open(path)
    numbers(dataset)
    half_read = dataset.read_shard(dataset.shards()[0], None, 0)
    next(half_read)
    half_read.close()
    assert str(path) not in {os.path.realpath(one) for one in Path("/proc/self/fd").iterdir()}


def test_the_version_of_a_shard_changes_with_its_file(format: Format, tmp_path: Path) -> None:
    path = format.put(tmp_path / "a")
    before = format.open(path).shards()[0]
    os.utime(path, ns=(1, 1))
    assert format.open(path).shards()[0].version != before.version


def test_files_in_memory_are_read_through_fsspec(format: Format, tmp_path: Path, memory: Any) -> None:
    versions = []
    for rows in (range(4, 8), range(4, 9)):
        for name, part in (("b", rows), ("a", range(4))):
            memory.pipe(f"/flights/{name}.{format.name}", format.put(tmp_path / name, part).read_bytes())
        dataset = format.open("memory://flights")
        assert numbers(dataset) == list(range(rows.stop))
        versions.append(dataset.shards()[1].version)
    assert versions[0] != versions[1], "the file was written again"


def test_a_file_uri_is_a_local_file(format: Format, tmp_path: Path) -> None:
    path = format.put(tmp_path / "a")
    assert format.open(f"file://{path}").shards() == format.open(path).shards()


def test_files_of_many_rows_none_and_others_are_one_dataset(format: Format, tmp_path: Path) -> None:
    format.put(tmp_path / "a", range(3))
    format.put(tmp_path / "b", range(0))
    format.put(tmp_path / "c", range(3, 5))
    assert numbers(format.open(tmp_path)) == [0, 1, 2, 3, 4]


def test_a_dataset_without_rows_is_refused(format: Format, tmp_path: Path) -> None:
    assert refused(lambda: format.open(format.put(tmp_path / "a", range(0))), "has no rows").pointer == "/dataset"


def test_a_missing_column_is_named_with_those_close_to_it(format: Format, tmp_path: Path) -> None:
    path = format.put(tmp_path / "a")
    error = refused(lambda: format.open(path, columns=("n", "txet"), split="validation"), "no column 'txet'")
    assert (error.pointer, error.file) == ("/validation/columns/1", str(path))
    assert "did you mean 'text'?" in (error.hint or "")


def test_a_column_named_twice_is_refused(format: Format, tmp_path: Path) -> None:
    refused(lambda: format.open(format.put(tmp_path / "a"), columns=("n", "n")), "column 'n' is named twice")


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ({"n": ["x"], "text": ["x"]}, "column 'n' is int64 in {a} and string in {b}"),
        ({"n": [True], "text": ["x"]}, "column 'n' is int64 in {a} and bool in {b}"),
        ({"text": ["x"]}, "column 'n' is in {a} and not in {b}"),
        ({"n": [1], "text": ["x"], "more": [1]}, "column 'more' is in {b} and not in {a}"),
    ],
)
def test_files_that_differ_are_refused_where_columns_that_are_read_do(
    format: Format, tmp_path: Path, other: dict[str, list[Any]], difference: str
) -> None:
    a, b = format.put(tmp_path / "a", range(2)), format.put(tmp_path / "b")
    b.write_bytes(format.write(pa.table(other)))
    error = refused(lambda: format.open(tmp_path), "the files of the dataset differ")
    assert error.message.endswith(": " + difference.format(a=a, b=b))
    assert error.file == str(b)
    assert [shard.num_rows for shard in format.open(tmp_path, columns=("text",)).shards()] == [2, 1]


def test_a_file_that_changes_or_goes_away_after_opening_is_noticed(format: Format, tmp_path: Path) -> None:
    dataset = format.open(format.put(tmp_path / "a"))
    path = format.put(tmp_path / "a", range(100, 200))
    refused(lambda: numbers(dataset), "changed while the run was reading it")
    path.unlink()
    refused(lambda: numbers(dataset), "nothing at")


@pytest.mark.parametrize("format", FORMATS[:3], ids=lambda one: one.name)
def test_an_empty_or_truncated_file_is_refused(format: Format, tmp_path: Path) -> None:
    path = format.put(tmp_path / "a", range(1000))
    os.truncate(path, path.stat().st_size // 2)
    assert refused(lambda: format.open(path), "truncated or damaged").file == str(path)
    path.write_bytes(b"")
    refused(lambda: format.open(path), r"is empty \(0 bytes\)")


@pytest.mark.parametrize("format", FORMATS[:2], ids=lambda one: one.name)
@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"a,b\n1,2\n", "for CSV or JSON, set dataset.source to csv or json"),
        (b"ARROW1\0\0" + bytes(20), "set dataset.source to arrow"),
        (b"PAR1" + bytes(20), "set dataset.source to parquet"),
        (b"\x1f\x8b\x08\0", "gzip"),
    ],
)
def test_a_file_of_another_format_is_refused_with_what_it_looks_like(
    format: Format, tmp_path: Path, content: bytes, hint: str
) -> None:
    if hint.endswith(format.name):
        content, hint = b"\0\1\2\3", "check that it is the file you mean"
    path = tmp_path / f"a.{format.name}"
    path.write_bytes(content)
    assert hint in (refused(lambda: format.open(path), f"a.{format.name} is not a").hint or "")


def test_a_file_without_the_right_to_read_it_is_refused(
    format: Format, tmp_path: Path, unreadable: Callable[..., Any]
) -> None:
    with unreadable(format.put(tmp_path / "a")) as path:
        assert refused(lambda: format.open(path), "permission denied").file == str(path)


def test_a_path_that_names_nothing_is_refused_with_the_name_close_to_it(format: Format, tmp_path: Path) -> None:
    path = format.put(tmp_path / "flights")
    error = refused(lambda: format.open(path.with_stem("fligths"), split="validation"), "does not exist")
    assert error.pointer == f"/validation/{format.paths}/0"
    assert f"did you mean {path.name}" in (error.hint or "")


def test_settings_without_a_path_are_refused(format: Format) -> None:
    with pytest.raises(InvalidSettings) as raised:
        format.open()
    assert raised.value.pointer == f"/{format.paths}"
