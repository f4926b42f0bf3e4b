"""The contract of a data source of files, whatever their format: Parquet, Arrow, CSV, JSON."""

import csv
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from opened_data import opened, refused, table, values

from hostcore_builtin_plugins.sources.arrow import ArrowSource
from hostcore_builtin_plugins.sources.csv_source import CsvLayout, CsvSource
from hostcore_builtin_plugins.sources.json_source import JsonLayout, JsonSource
from hostcore_builtin_plugins.sources.parquet import ParquetSource
from hostcore_builtin_plugins.sources.shards import ShardsSource
from hostcore_hookspecs import InvalidSettings


def binary(make: Callable[..., Any], *parts: pa.Table) -> bytes:
    """A file with each table as a part of its own."""
    content = io.BytesIO()
    with make(content, parts[0].schema) as writer:
        for part in parts:
            arrays = [column.combine_chunks() for column in part.columns]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=part.schema))
    return content.getvalue()


def text_of_csv(*parts: pa.Table) -> bytes:
    text = io.StringIO()
    rows = [row.values() for part in parts for row in part.to_pylist()]
    csv.writer(text).writerows([parts[0].column_names, *rows])
    return text.getvalue().encode()


def text_of_json(*parts: pa.Table) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for part in parts for row in part.to_pylist())


@attrs.frozen
class Format:
    """A source, and how its files are written."""

    name: str
    source: Any
    write: Callable[..., bytes]
    paths: str = "paths"
    #: Text is cut into much larger ones.
    is_text: bool = False

    def open(self, *paths: Path | str, **how: Any) -> Any:
        return opened(self.source, *paths, **how)

    def put(self, path: Path, rows: range = range(10), **more: Any) -> Path:
        """Write a file of numbered rows, four in a part."""
        path = path.with_suffix(f".{self.name}")
        columns = {"n": pa.array(rows, pa.int64()), "text": pa.array([f"row {i}" for i in rows], pa.string()), **more}
        whole = pa.table(columns)
        path.write_bytes(self.write(*(whole.slice(first, 4) for first in range(0, max(1, len(rows)), 4))))
        return path


FORMATS = [
    Format("parquet", ParquetSource, lambda *parts: binary(pq.ParquetWriter, *parts), "parquet_paths"),
    Format("arrow", ArrowSource, lambda *parts: binary(pa.ipc.new_file, *parts)),
    Format("arrows", ArrowSource, lambda *parts: binary(pa.ipc.new_stream, *parts)),
    Format("csv", CsvSource, text_of_csv, is_text=True),
    Format("jsonl", JsonSource, text_of_json, is_text=True),
]
binary_formats = pytest.mark.parametrize("format", FORMATS[:3], ids=lambda one: one.name)


@pytest.fixture(params=FORMATS, ids=lambda one: one.name)
def format(request: pytest.FixtureRequest) -> Format:
    return request.param


@pytest.fixture
def memory() -> Iterator[Any]:
    filesystem = fsspec.filesystem("memory")
    yield filesystem
    filesystem.rm("/flights", recursive=True)


def test_a_shard_is_read_from_any_row_with_the_columns_asked_for(format: Format, tmp_path: Path) -> None:
    path = format.put(tmp_path / "a")
    dataset = format.open(path, columns=("text", "n"))
    assert dataset.schema.names == ["text", "n"]
    sizes = [10] if format.is_text else [4, 4, 2]
    assert [shard.num_rows for shard in dataset.shards()] == sizes
    assert [shard.id for shard in dataset.shards()] == [f"{path}#{number}" for number in range(len(sizes))]
    assert table(dataset).to_pydict() == {"text": [f"row {n}" for n in range(10)], "n": list(range(10))}
    first = 0
    for shard in dataset.shards():
        for offset in range(shard.num_rows + 1):
            read = [n for batch in dataset.read_shard(shard, ["n"], offset) for n in batch.to_pydict()["n"]]
            assert read == list(range(first + offset, first + shard.num_rows))
        first += shard.num_rows
    assert next(dataset.read_shard(dataset.shards()[0], ["text", "n"], 0)).schema == dataset.schema


def test_columns_may_be_in_another_order_in_each_file(format: Format, tmp_path: Path) -> None:
    format.put(tmp_path / "a", range(2))
    format.put(tmp_path / "b", range(0)).write_bytes(format.write(pa.table({"text": ["x"], "n": [2]})))
    dataset = format.open(tmp_path)
    assert values(dataset) == [0, 1, 2]
    assert next(dataset.read_shard(dataset.shards()[1], None, 0)).schema == dataset.schema


def test_nulls_are_let_through_when_the_job_says_so(format: Format, tmp_path: Path) -> None:
    path = format.put(tmp_path / "a", range(2), y=pa.array([1, None]))
    assert not format.open(path).allow_nulls
    dataset = format.open(path, allow_nulls=True)
    assert dataset.allow_nulls
    assert values(dataset, "y") == [1, None]


def test_the_version_of_a_shard_changes_with_its_file(format: Format, tmp_path: Path) -> None:
    path = format.put(tmp_path / "a")
    before = format.open(path).shards()
    assert format.open(f"file://{path}").shards() == before, "which is the same file"
    os.utime(path, ns=(1, 1))
    assert format.open(path).shards()[0].version != before[0].version


def test_files_in_memory_are_read_through_fsspec(format: Format, tmp_path: Path, memory: Any) -> None:
    versions = []
    for rows in (range(4, 8), range(4, 9)):
        for name, part in (("b", rows), ("a", range(4))):
            memory.pipe(f"/flights/{name}.{format.name}", format.put(tmp_path / name, part).read_bytes())
        dataset = format.open("memory://flights")
        assert values(dataset) == list(range(rows.stop))
        versions.append(dataset.shards()[1].version)
    assert versions[0] != versions[1], "the file was written again"


def test_files_and_parts_of_many_rows_none_and_others_are_one_dataset(format: Format, tmp_path: Path) -> None:
    one = pa.table({"n": [3], "text": ["x"]})
    none = one.slice(1)
    format.put(tmp_path / "a", range(3))
    format.put(tmp_path / "b", range(0))
    format.put(tmp_path / "c", range(0)).write_bytes(format.write(none, one, none, one))
    dataset = format.open(tmp_path)
    assert values(dataset) == [0, 1, 2, 3, 3]
    if not format.is_text:
        assert [shard.id.rpartition("#")[2] for shard in dataset.shards()] == ["0", "1", "3"]


def test_a_dataset_without_rows_is_refused(format: Format, tmp_path: Path) -> None:
    assert refused(lambda: format.open(format.put(tmp_path / "a", range(0))), "has no rows").pointer == "/dataset"


def test_a_column_that_is_missing_or_named_twice_is_refused(format: Format, tmp_path: Path) -> None:
    path = format.put(tmp_path / "a")
    error = refused(lambda: format.open(path, columns=("n", "txet"), split="validation"), "no column 'txet'")
    assert (error.pointer, error.file) == ("/validation/columns/1", str(path))
    assert "did you mean 'text'?" in (error.hint or "")
    refused(lambda: format.open(path, columns=("n", "n")), "column 'n' is named twice")


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
    refused(lambda: values(dataset), "changed while the run was reading it")
    path.unlink()
    refused(lambda: values(dataset), "nothing at")


@binary_formats
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


def test_a_file_without_the_right_to_read_it_is_refused(format: Format) -> None:
    """It lies where another user may come to: the tests may run as root, who may read everything."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path, user = format.put(Path(folder) / "a"), os.geteuid()
        path.chmod(0)
        if user == 0:
            os.seteuid(65534)
        try:
            assert refused(lambda: format.open(path), "permission denied").file == str(path)
        finally:
            os.seteuid(user)


def test_a_path_that_names_nothing_is_refused_with_the_name_close_to_it(format: Format, tmp_path: Path) -> None:
    path = format.put(tmp_path / "flights")
    error = refused(lambda: format.open(path.with_stem("fligths"), split="validation"), "does not exist")
    assert error.pointer == f"/validation/{format.paths}/0"
    assert f"did you mean {path.name}" in (error.hint or "")


DEEP = "list<" * 5000 + "int8" + ">" * 5000


@pytest.mark.parametrize(
    ("source", "settings", "pointer"),
    [
        *((one.source, {one.paths: ()}, f"/{one.paths}") for one in FORMATS),
        *((CsvSource, {"delimiter": wrong}, "/delimiter") for wrong in (";;", "\n", "")),
        *((CsvSource, {"quote": wrong}, "/quote") for wrong in ("«", ",")),
        (CsvSource, {"column_names": ("a", "a")}, "/column_names/1"),
        (CsvSource, {"types": {"a/b": "int7"}}, "/types/a~1b"),
        (CsvSource, {"types": {"a": "list<int8>"}}, "/types/a"),
        *((JsonSource, {"types": {"a": wrong}}, "/types/a") for wrong in ("int7", "list<int7>", "list<int8>[2]", DEEP)),
        *((JsonSource, {"types": {"a": f"fixed_size_list<int8>{n}"}}, "/types/a") for n in ("", "[0]")),
        (JsonSource, {"types": {"a": "time32[s]"}}, "/types/a"),
        (ShardsSource, {"index": ""}, "/index"),
        (ShardsSource, {"csv": CsvLayout(delimiter="")}, "/csv/delimiter"),
        (ShardsSource, {"json": JsonLayout(types={"n": "int7"})}, "/json/types/n"),
    ],
)
def test_settings_that_make_no_sense_are_refused(source: Any, settings: dict[str, Any], pointer: str) -> None:
    place = {"index": "i"} if source is ShardsSource else {"parquet_paths" if source is ParquetSource else "paths": "a"}
    with pytest.raises(InvalidSettings) as raised:
        source(settings=source.Settings(**{**place, **settings}))
    assert raised.value.pointer == pointer
