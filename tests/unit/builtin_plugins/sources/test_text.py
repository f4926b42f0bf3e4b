"""CSV and JSON: types that are found and declared, errors with their lines, and the conversion, once and as a whole."""

import bz2
import csv
import gzip
import io
import json
import os
import resource
import threading
from collections.abc import Callable, Mapping
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from opened_data import opened, refused, table, values

from hostcore_builtin_plugins.sources.csv_source import CsvSource
from hostcore_builtin_plugins.sources.json_source import JsonSource
from hostcore_hookspecs import InvalidData

Rows = list[dict[str, Any]]


@attrs.frozen
class Text:
    """One of the formats, in a folder of the test."""

    ending: str
    folder: Path

    @property
    def is_csv(self) -> bool:
        return self.ending == "csv"

    def content(self, rows: Rows) -> bytes:
        """A text with these rows; of CSV with a header."""
        if self.ending == "json":  # one array
            return json.dumps(rows, indent=0).encode()
        if not self.is_csv:
            return b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([rows[0].keys(), *(row.values() for row in rows)])
        return text.getvalue().encode()

    def open(self, files: bytes | Rows | Mapping[str, bytes | Rows] | None = None, **how: Any) -> Any:
        """Open one file, or several by name; those of before if none are given."""
        for name, content in (
            files if isinstance(files, Mapping) else {"a": files} if files is not None else {}
        ).items():
            stem, _, packed = name.partition(".")
            path = self.folder / f"{stem}.{self.ending}{packed and f'.{packed}'}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else self.content(content))
        return opened(CsvSource if self.is_csv else JsonSource, self.folder, **how)


@pytest.fixture(params=["csv", "jsonl"])
def text(request: pytest.FixtureRequest, tmp_path: Path) -> Text:
    return Text(request.param, tmp_path / "data")


def test_declared_types_are_used(text: Text) -> None:
    types = {"a": "float32", "b": "string", "c": "timestamp[ms]", "d": "int8", "e": "bool", "f": "date32"}
    row = {"a": 1, "b": "007", "c": "2020-01-01", "d": -5, "e": True, "f": "2020-02-29"}
    dataset = text.open([row], types=types)
    assert [str(kind) for kind in dataset.schema.types] == [
        *("float", "string", "timestamp[ms]", "int8", "bool", "date32[day]")
    ]
    assert table(dataset).to_pylist() == [{**row, "c": datetime(2020, 1, 1), "f": date(2020, 2, 29)}]


@pytest.mark.parametrize(
    ("kind", "good", "bad", "shown"),
    [
        ("int8", 1, 300, "300"),
        ("int64", 1, 1.5, "1.5"),
        ("date32", "2020-01-01", "soon", '"soon"'),
        ("timestamp[s]", "2020-01-01", "soon", '"soon"'),
        ("fixed_size_list<float32>[2]", [1, 2], [1, 2, 3], "[1,2,3]"),
    ],
)
def test_the_first_value_that_does_not_fit_is_named(text: Text, kind: str, good: Any, bad: Any, shown: str) -> None:
    if text.is_csv:
        if isinstance(good, list):
            pytest.skip("CSV has no lists")
        shown = repr(str(bad))
    for before in (50, 30_000):  # the second one in a later block
        rows = [{"a": good, "b": "word " * 16 + "\n"}] * before
        error = refused(partial(text.open, [*rows, {"a": bad, "b": "x"}, *rows[:50]], types={"a": kind}))
        line = 2 * before + 2 if text.is_csv else before + 1
        assert f"a.{text.ending}, line {line}: column 'a' has {shown}, which is no " in error.message
        assert error.file == str(text.folder / f"a.{text.ending}")


@pytest.mark.parametrize("text", ["csv", "jsonl", "json"], indirect=True)
def test_a_large_file_has_one_type_for_all_its_blocks_and_many_shards(text: Text) -> None:
    """The types of most columns are known in the last block, after 8 MiB."""
    early: dict[str, Any] = {"v": [], "m": {}}
    late: dict[str, Any] = {"v": [1], "m": {"k": "z"}, "new": True}
    types = [pa.list_(pa.int64()), pa.struct([("k", pa.string())]), pa.bool_()]
    if text.is_csv:
        early, late = {"v": 7, "m": "2020-01-01", "new": ""}, {"v": "seven", "m": "2020-01-01 10:00", "new": "x"}
        types = [pa.string(), pa.timestamp("s"), pa.string()]
    rows = [{"n": n, "number": n, "text": "word " * 40, **early} for n in range(45_000)]
    rows[-1] = {**rows[-1], "number": 0.5, **late}
    dataset = text.open(rows)
    assert dataset.schema.types == [pa.int64(), pa.float64(), pa.string(), *types]
    assert len(dataset.shards()) > 2
    for name in ("n", "number", "text"):
        assert values(dataset, name) == [row[name] for row in rows]
    assert values(dataset, "v")[-2:] == [str(early["v"]) if text.is_csv else [], late["v"]]
    shard = dataset.shards()[1]
    first = dataset.shards()[0].num_rows
    for offset in (0, 137, shard.num_rows - 1, shard.num_rows):
        batches = dataset.read_shard(shard, ["n"], offset)
        assert [n for one in batches for n in one["n"].to_pylist()] == [*range(first + offset, first + shard.num_rows)]


def test_types_of_several_files_are_joined(text: Text) -> None:
    dataset = text.open({"a": [{"x": 1, "y": 2}], "b": [{"y": 2.5, "x": 3}]})
    assert dataset.schema == pa.schema([("x", pa.int64()), ("y", pa.float64())])
    assert values(dataset, "y") == [2.0, 2.5]


def test_a_declared_type_of_a_column_that_is_not_there_is_refused(text: Text) -> None:
    error = refused(lambda: text.open([{"label": 1, "b": 2}], types={"lable": "int8"}))
    assert error.pointer == "/dataset/types/lable"
    assert "did you mean 'label'?" in (error.hint or "")


@pytest.mark.parametrize(
    ("ending", "content"),
    [
        *(("csv", content) for content in (b"", b"\n\r\n", b"a,b\n", b"\xef\xbb\xbf")),
        *(("jsonl", content) for content in (b"", b"\n \n", b"[]", b" [\n]\n", b"\xef\xbb\xbf")),
    ],
)
def test_files_without_rows_are_as_good_as_not_there(ending: str, content: bytes, tmp_path: Path) -> None:
    text = Text(ending, tmp_path)
    refused(lambda: text.open({"a": content, "b": content}), "has no rows")
    assert table(text.open({"b": [{"a": 1, "b": 2}]})).to_pylist() == [{"a": 1, "b": 2}]


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "zst": lambda content: pa.compress(content, "zstd", asbytes=True),
}


@pytest.mark.parametrize("ending", PACKERS)
def test_a_packed_file_of_several_parts_is_read_unless_it_is_cut_off(text: Text, ending: str) -> None:
    rows = [{"n": n, "t": f"a\n{n}"} for n in range(500)]
    content = text.content(rows)
    packed = PACKERS[ending](content[:3000]) + PACKERS[ending](content[3000:])
    assert table(text.open({f"a.{ending}": packed})).to_pylist() == rows
    refused(lambda: text.open({f"a.{ending}": packed[:-5]}), rf"a\.{text.ending}\.{ending} cannot be used")


NUMBERS = [{"n": n, "t": f"word {n}"} for n in range(100, 200)]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def open_kept(text: Text, cache: Path) -> Callable[..., Any]:
    """``open_kept(rows)``: with the cache; the rows of before, and at first the numbers from 100 to 199."""
    text.open({"a": NUMBERS})
    return lambda *rows, **how: text.open(*rows, **{"cache_dir": cache, **how})


def converted(cache: Path) -> dict[Path, int]:
    """Files of the cache, with the times when they were written."""
    return {path: path.stat().st_mtime_ns for path in (cache / "text").iterdir() if path.suffix != ".lock"}


def test_a_file_is_converted_once_into_parquet_and_with_other_settings_apart(open_kept: Any, cache: Path) -> None:
    first = open_kept()
    (path,) = before = converted(cache)
    assert pq.read_table(path)["n"].to_pylist() == list(range(100, 200))
    second = open_kept()
    assert converted(cache) == before
    assert (second.shards(), second.schema) == (first.shards(), first.schema)
    assert values(second) == values(first) == list(range(100, 200))
    for _ in range(2):
        assert values(open_kept(types={"n": "float32"})) == [float(n) for n in range(100, 200)]
        assert values(open_kept()) == list(range(100, 200))
    assert len(converted(cache)) == 2


def test_a_file_that_is_another_one_has_a_conversion_of_its_own(open_kept: Any, cache: Path) -> None:
    """A run of another machine may read the one before: of a text with the same name there."""
    before = open_kept()
    (kept,) = converted(cache)
    assert values(open_kept([{"n": 1}])) == [1]
    assert kept in converted(cache)
    refused(lambda: values(before), "changed while the run was reading it")


def test_a_time_of_modification_that_was_set_back_hides_nothing(open_kept: Any, text: Text) -> None:
    open_kept()
    path = text.folder / f"a.{text.ending}"
    before = path.stat()
    with path.open("r+") as file:
        file.write(path.read_text().replace("199", "0.5"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # all of this may fit between two ticks of a coarse clock
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert values(open_kept())[-1] == 0.5


def test_a_damaged_conversion_is_made_again_and_while_it_is_read_is_one_error(open_kept: Any, cache: Path) -> None:
    open_kept()
    (path,) = converted(cache)
    whole = path.read_bytes()
    for damaged in (whole[:-3], b"", whole[:50]):
        path.write_bytes(damaged)
        dataset = open_kept()
        assert path.read_bytes() == whole
        for damage in (lambda: path.write_bytes(b"\xff" * 200), path.unlink):
            damage()
            assert refused(partial(values, dataset), "was converted to, cannot be read").file == str(path)
        assert values(open_kept()) == list(range(100, 200))


def test_without_a_cache_nothing_is_left(open_kept: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    dataset = open_kept(cache_dir="")
    assert values(dataset) == list(range(100, 200))
    assert len(list(tmp_path.glob("hostcore-text-*"))) == 1
    del dataset
    assert not list(tmp_path.glob("hostcore-text-*"))


def test_several_may_convert_a_file_at_once(open_kept: Any, cache: Path) -> None:
    ready, found = threading.Barrier(4), []

    def open_at_once() -> None:
        ready.wait()
        found.append(values(open_kept()))

    threads = [threading.Thread(target=open_at_once) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [list(range(100, 200))] * 4
    assert len(converted(cache)) == 1


def test_text_that_is_wrong_leaves_nothing(open_kept: Any, text: Text, cache: Path) -> None:
    refused(lambda: open_kept(text.content(NUMBERS) + b"1,2,3\n"), "line 10")
    assert not converted(cache)


def test_a_cache_that_cannot_be_written_is_one_error_with_the_remedy(open_kept: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    error = refused(
        lambda: open_kept(cache_dir=tmp_path / "file"), r"cannot be converted to Parquet in .*: not a directory"
    )
    assert "HOSTCORE_CACHE_DIR" in (error.hint or "")


def test_a_full_disk_is_one_error_and_leaves_nothing(open_kept: Any, text: Text, cache: Path) -> None:
    text.open([{"n": n, "t": f"word {n}"} for n in range(20_000)])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(InvalidData, match="cannot be converted to Parquet in") as raised:
            open_kept()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert raised.value.file == str(cache / "text")
    assert "make room there, or set HOSTCORE_CACHE_DIR" in (raised.value.hint or "")
    assert not converted(cache)
    assert values(open_kept()) == list(range(20_000))
