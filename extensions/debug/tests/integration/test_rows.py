"""``hostcore rows``: the rows of a step, and the steps of a row."""

from collections import Counter
from pathlib import Path
from typing import Any

from pyarrow import parquet


def test_the_steps_of_an_epoch_have_each_row_once(bench: Any, plain: Path) -> None:
    assert plain.is_dir()
    places = Counter(
        (row["row_group"], row["row"])
        for step in range(1, 21)
        for row in bench.json("rows", "plain", "--step", str(step))["rows"]
    )
    assert sorted(places) == [(row // 16, row) for row in range(320)]
    assert set(places.values()) == {1}


def test_a_row_is_found_in_the_steps_that_list_it(bench: Any, plain: Path) -> None:
    assert plain.is_dir()
    visits = bench.json("rows", "plain", "--row", "train.parquet:77")["visits"]
    assert [one["epoch"] for one in visits] == [0, 1]
    for visit in visits:
        rows = bench.json("rows", "plain", "--step", str(visit["step"]))["rows"]
        assert 77 in [one["row"] for one in rows]


def test_contents_are_those_of_the_file(bench: Any, plain: Path) -> None:
    assert plain.is_dir()
    saved = bench.folder / "rows.parquet"
    found = bench.json("rows", "plain", "--step", "3", "--where", "a > 0", "--show", "2", "--save", str(saved))
    written = parquet.read_table(saved)
    assert written.column("row").to_pylist() == [one["row"] for one in found["rows"]]
    data = parquet.read_table(bench.folder / "train.parquet")
    assert written.column("y").to_pylist() == data.column("y").take(written.column("row")).to_pylist()
    assert min(written.column("a").to_pylist()) > 0
    assert [one["a"] for one in found["contents"]] == written.column("a").to_pylist()[:2]


def test_mistakes_are_one_error_each(bench: Any, plain: Path) -> None:
    for arguments, message in (
        (["--step", "41"], "has no step 41: it has finished 40"),
        (["--step", "0"], "has no step 0"),
        (["--step", "first"], "'first' is no step"),
        (["--step", "1", "--rank", "1"], "has no rank 1"),
        (["--step", "1", "--where", "label"], "is no condition"),
        (["--step", "1", "--where", "c > 1"], "no column 'c'"),
        (["--step", "1", "--where", "a > x"], "cannot be compared"),
        (["--row", "other.parquet:1"], "no file of the data is called"),
        (["--row", "train.parquet:320"], "has no row 320"),
        (["--step", "1", "--save", "nowhere/rows.parquet"], "cannot be written"),
    ):
        (error,) = bench.json("rows", str(plain), *arguments, code=2)["errors"]
        assert message in error["message"]
    assert bench(["rows", "plain"]).returncode == 2


def test_data_that_has_changed_is_named(bench: Any) -> None:
    bench.data("old.parquet", 160)
    bench.run("changed", "old.parquet", max_steps=2)
    bench.data("old.parquet", 176)
    (error,) = bench.json("rows", "changed", "--step", "1", code=2)["errors"]
    assert "is not what the run was trained on: rows, shards" in error["message"]
    (bench.folder / "old.parquet").unlink()
    (error,) = bench.json("rows", "changed", "--step", "1", code=2)["errors"]
    assert "old.parquet does not exist" in error["message"]
