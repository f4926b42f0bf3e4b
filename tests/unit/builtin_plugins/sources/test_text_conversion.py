"""Text is converted once, by one process, as a whole or not at all."""

import os
import resource
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from hostcore_builtin_plugins.sources.csv_source import CsvSource
from hostcore_builtin_plugins.sources.file_dataset import FileDataset
from hostcore_builtin_plugins.sources.json_source import JsonSource
from hostcore_hookspecs import DataContext, InvalidData

Open = Callable[..., FileDataset]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture(params=["csv", "jsonl"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"a.{request.param}"
    write(path, range(100, 200))
    return path


def write(path: Path, numbers: range) -> None:
    if path.suffix == ".csv":
        path.write_text("n,t\n" + "".join(f"{n},word {n}\n" for n in numbers))
    else:
        path.write_text("".join(f'{{"n": {n}, "t": "word {n}"}}\n' for n in numbers))


@pytest.fixture
def open_text(data: Path, cache: Path) -> Open:
    def open_dataset(*, cache_dir: Path | str = cache, **settings: Any) -> FileDataset:
        source: Any = CsvSource if data.suffix == ".csv" else JsonSource
        opened: FileDataset = source(settings=source.Settings(paths=str(data), **settings)).open_dataset(
            {}, DataContext(cache_dir=str(cache_dir))
        )
        return opened

    return open_dataset


def numbers(dataset: FileDataset) -> list[Any]:
    return [n for s in dataset.shards() for b in dataset.read_shard(s, ["n"], 0) for n in b["n"].to_pylist()]


def converted(cache: Path) -> dict[Path, int]:
    """What is in the cache, with the times when it was written."""
    return {path: path.stat().st_mtime_ns for path in (cache / "text").iterdir() if path.suffix != ".lock"}


def replace_in_place(path: Path, old: str, new: str) -> None:
    """Change some bytes of a file, and set the time of its modification back."""
    before = path.stat()
    content = path.read_text()
    with path.open("r+") as file:
        file.write(content.replace(old, new))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # all of this may fit between two ticks of a coarse clock
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


def test_a_file_is_converted_once_into_parquet(open_text: Open, cache: Path) -> None:
    first = open_text()
    (path,) = before = converted(cache)
    assert pq.read_table(path)["n"].to_pylist() == list(range(100, 200))
    second = open_text()
    assert converted(cache) == before
    assert second.shards() == first.shards()
    assert second.schema == first.schema
    assert numbers(second) == numbers(first) == list(range(100, 200))


def test_other_settings_are_converted_apart(open_text: Open, cache: Path) -> None:
    for _ in range(2):
        assert numbers(open_text(types={"n": "float32"})) == [float(n) for n in range(100, 200)]
        assert numbers(open_text()) == list(range(100, 200))
    assert len(converted(cache)) == 2


def test_a_file_that_is_another_one_has_a_conversion_of_its_own(open_text: Open, data: Path, cache: Path) -> None:
    """A run of another machine may read the one before: of a text with the same name there."""
    before = open_text()
    (kept,) = converted(cache)
    write(data, range(1, 2))
    assert numbers(open_text()) == [1]
    assert kept in converted(cache)
    with pytest.raises(InvalidData, match="changed while the run was reading it"):
        numbers(before)


def test_a_time_of_modification_that_was_set_back_hides_nothing(open_text: Open, data: Path) -> None:
    open_text()
    replace_in_place(data, "199", "0.5")
    assert numbers(open_text())[-1] == 0.5


@pytest.mark.parametrize("damage", [lambda content: content[:-3], lambda _: b"", lambda content: content[:50]])
def test_a_truncated_conversion_is_made_again(open_text: Open, cache: Path, damage: Callable[[bytes], bytes]) -> None:
    open_text()
    (path,) = converted(cache)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert numbers(open_text()) == list(range(100, 200))
    assert path.read_bytes() == whole


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b"\xff" * 200), lambda path: path.unlink()])
def test_a_conversion_that_is_damaged_while_it_is_read_is_one_error_with_the_remedy(
    open_text: Open, cache: Path, damage: Callable[[Path], None]
) -> None:
    dataset = open_text()
    (path,) = converted(cache)
    damage(path)
    with pytest.raises(InvalidData, match="was converted to, cannot be read") as raised:
        numbers(dataset)
    assert raised.value.file == str(path)
    assert numbers(open_text()) == list(range(100, 200))


def test_without_a_cache_nothing_is_left(open_text: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    dataset = open_text(cache_dir="")
    assert numbers(dataset) == list(range(100, 200))
    assert len(list(tmp_path.glob("hostcore-text-*"))) == 1
    del dataset
    assert not list(tmp_path.glob("hostcore-text-*"))


def test_several_may_convert_a_file_at_once(open_text: Open, cache: Path) -> None:
    ready, found = threading.Barrier(4), []

    def open_at_once() -> None:
        ready.wait()
        found.append(numbers(open_text()))

    threads = [threading.Thread(target=open_at_once) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [list(range(100, 200))] * 4
    assert len(converted(cache)) == 1


def test_text_that_is_wrong_leaves_nothing(open_text: Open, data: Path, cache: Path) -> None:
    with data.open("a") as file:
        file.write("1,2,3\n")
    with pytest.raises(InvalidData, match="line 10"):
        open_text()
    assert not converted(cache)


def test_a_cache_that_cannot_be_written_is_one_error_with_the_remedy(open_text: Open, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidData, match=r"cannot be converted to Parquet in .*: not a directory") as raised:
        open_text(cache_dir=tmp_path / "file")
    assert "HOSTCORE_CACHE_DIR" in (raised.value.hint or "")


def test_a_full_disk_is_one_error_and_leaves_nothing(open_text: Open, data: Path, cache: Path) -> None:
    write(data, range(20_000))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(InvalidData, match="cannot be converted to Parquet in") as raised:
            open_text()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert raised.value.file == str(cache / "text")
    assert "make room there, or set HOSTCORE_CACHE_DIR" in (raised.value.hint or "")
    assert not converted(cache)
    assert numbers(open_text()) == list(range(20_000))
