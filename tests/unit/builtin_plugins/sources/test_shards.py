import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from opened_data import opened, refused, values

from hostcore_builtin_plugins.sources.csv_source import CsvLayout
from hostcore_builtin_plugins.sources.shards import ShardsSource

Open = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One shard of each format; the values of ``n`` tell them apart."""
    folder = tmp_path / "flights"
    (folder / "more").mkdir(parents=True)
    pq.write_table(pa.table({"n": range(10), "t": ["p"] * 10}), folder / "a.parquet", row_group_size=4)
    table = pa.table({"t": ["q"] * 3, "n": range(10, 13)})
    with pa.ipc.new_file(folder / "b.arrow", table.schema) as writer:
        writer.write_table(table)
    (folder / "c.csv").write_text("n,t\n20,r\n21,r\n")
    (folder / "more" / "d.jsonl").write_text('{"t": "s", "n": 30}\n')
    (folder / "e.csv.gz").write_bytes(gzip.compress(b"t,n\nu,40\n"))
    return folder


@pytest.fixture
def open_shards(folder: Path) -> Open:
    """``open_shards([{"shard": …}])``: with an index of these records, or of this content."""

    def open_index(content: Any, *, path: Path | str = folder / "index.json", **settings: Any) -> Any:
        text = content if isinstance(content, str) else json.dumps({"name": "flights", "records": content})
        (folder / "index.json").write_text(text)
        return opened(ShardsSource, index=str(path), **settings)

    return open_index


def record(shard: str, samples: int, importance: Any = None) -> Mapping[str, Any]:
    return {"shard": shard, "samples": samples, "importance": importance}


def test_files_of_all_formats_come_by_importance(open_shards: Open) -> None:
    dataset = open_shards(
        [
            record("c.csv", 2, 0.5),
            record("a.parquet", 10, 1),
            {"shard": "e.csv.gz", "samples": 1, "importance": 7.5, "owner": "somebody"},
            record("b.arrow", 3, 2.5),
            record("more/d.jsonl", 1, 1),
        ]
    )
    assert values(dataset) == [40, 10, 11, 12, *range(10), 30, 20, 21]
    assert dataset.schema == pa.schema([("t", pa.string()), ("n", pa.int64())])


@pytest.mark.parametrize("importance", [None, 0, -3, 0.0, float("nan"), float("inf"), float("-inf")])
def test_the_number_of_samples_stands_in_for_an_importance_that_does_not_count(
    open_shards: Open, importance: float | None
) -> None:
    dataset = open_shards(
        [record("c.csv", 2, importance), record("b.arrow", 3, importance), record("e.csv.gz", 1, 2.5)]
    )
    assert values(dataset) == [10, 11, 12, 40, 20, 21]


def test_shards_of_one_weight_stay_in_the_order_of_the_index(open_shards: Open) -> None:
    records = [record("more/d.jsonl", 1), record("c.csv", 2, 1), record("e.csv.gz", 1)]
    assert values(open_shards(records)) == [30, 20, 21, 40]


def test_the_settings_of_a_format_are_passed_on(open_shards: Open, folder: Path) -> None:
    (folder / "c.csv").write_text("n;t\n20;r\n")
    dataset = open_shards([record("c.csv", 1)], csv=CsvLayout(delimiter=";"))
    assert values(dataset) == [20]


def test_an_index_on_a_server_names_files_beside_it(folder: Path) -> None:
    memory = fsspec.filesystem("memory")
    for path in folder.rglob("*.*"):
        memory.pipe(f"/flights/{path.relative_to(folder)}", path.read_bytes())
    index = {"records": [record("c.csv", 2), record("more/d.jsonl", 1), record("a.parquet", 10)]}
    memory.pipe("/flights/index.json", json.dumps(index).encode())
    try:
        assert values(opened(ShardsSource, index="memory://flights/index.json")) == [*range(10), 20, 21, 30]
    finally:
        memory.rm("/flights", recursive=True)


@pytest.mark.parametrize("samples", [1, 3])
def test_samples_that_are_not_the_rows_of_the_file_are_refused(open_shards: Open, folder: Path, samples: int) -> None:
    error = refused(
        lambda: open_shards([record("a.parquet", 10), record("c.csv", samples)]),
        rf"says that c\.csv has {samples} samples, and it has 2 rows",
    )
    assert (error.file, error.pointer) == (str(folder / "c.csv"), "/dataset/index")


def test_a_shard_without_rows_may_be_there(open_shards: Open, folder: Path) -> None:
    (folder / "c.csv").write_text("n,t\n")
    assert values(open_shards([record("c.csv", 0), record("e.csv.gz", 1)])) == [40]
    refused(lambda: open_shards([record("c.csv", 0)]), "has no rows")


def test_shards_with_other_types_are_refused(open_shards: Open, folder: Path) -> None:
    (folder / "c.csv").write_text("n,t\nzwanzig,r\n")
    refused(
        lambda: open_shards([record("a.parquet", 10), record("c.csv", 1)]),
        r"column 'n' is int64 in .*a\.parquet and string in .*c\.csv",
    )


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is not JSON"),
        ('{"records": [', "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "has no list of 'records'"),
        ('{"records": {}}', "has no list of 'records'"),
        ([], "has no records"),
        (["c.csv"], "/records/0 is not an object"),
        ([{"samples": 2}], "/records/0/shard is missing, not a path"),
        ([record("", 2)], '/records/0/shard is "", not a path'),
        ([record(".", 2)], '/records/0/shard is ".", not a path'),
        ([{"shard": 7, "samples": 2}], "/records/0/shard is 7, not a path"),
        ([record("/c.csv", 2)], "not below the folder of the index"),
        ([record("more/../../c.csv", 2)], "not below the folder of the index"),
        ([record("file:///c.csv", 2)], "not below the folder of the index"),
        ([{"shard": "c.csv"}], "/records/0/samples is missing, not a number of rows"),
        ([{"shard": "c.csv", "samples": True}], "/records/0/samples is true"),
        ([{"shard": "c.csv", "samples": -1}], "/records/0/samples is -1"),
        ([{"shard": "c.csv", "samples": 2.0}], "/records/0/samples is 2.0"),
        ([record("c.csv", 2, "high")], '/records/0/importance is "high", not a number'),
        ([record("c.csv", 2, True)], "/records/0/importance is true, not a number"),
        ([record("c.csv", 2), record("./more/../c.csv", 2)], "/records/1/shard names c.csv again, which is /records/0"),
        ([record("c.csv", 2), record("x.csv", 2)], "names x.csv, and there is no such file"),
        ([record("more", 1)], "names more, whose ending tells no format"),
        ([record("index.toml", 1)], "names index.toml, whose ending tells no format"),
    ],
)
def test_an_index_that_is_wrong_is_refused(open_shards: Open, folder: Path, content: Any, says: str) -> None:
    error = refused(lambda: open_shards(content))
    assert says in error.message
    assert (error.pointer, error.file) == ("/dataset/index", str(folder / "index.json"))


def test_a_shard_that_is_not_there_is_told_with_its_neighbours_and_no_shard_has_two_names(
    open_shards: Open, folder: Path
) -> None:
    assert "did you mean c.csv" in (refused(lambda: open_shards([record("cc.csv", 2)])).hint or "")
    (folder / "link.csv").symlink_to("c.csv")
    refused(
        lambda: open_shards([record("c.csv", 2), record("link.csv", 2)]),
        r"c.csv is named twice, by .*index.json: .*link.csv is the same file",
    )


@pytest.mark.parametrize("path", ["none.json", "more", ""])
def test_an_index_that_is_not_there_is_refused(open_shards: Open, folder: Path, path: str) -> None:
    error = refused(lambda: open_shards([], path=folder / path))
    assert error.pointer == "/dataset/index"
    assert error.hint
