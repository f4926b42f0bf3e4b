import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from hostcore_builtin_plugins.sources import text_files, text_index, text_scan
from hostcore_builtin_plugins.sources.csv_source import CsvSource
from hostcore_builtin_plugins.sources.file_dataset import FileDataset
from hostcore_hookspecs import DataContext, InvalidData


@attrs.define
class Scans:
    """Counts how often text is looked through."""

    count: int = 0


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> "Scans":
    """Small shards, indexes also of small files, and a count of the files that were looked through."""
    counted = Scans()

    class CountedScan(text_scan.TextScan):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            counted.count += 1

    monkeypatch.setattr(text_files, "TextScan", CountedScan)
    monkeypatch.setattr(text_index, "_SMALLEST_FILE", 1)
    monkeypatch.setattr(text_scan, "STRETCH_BYTES", 64)
    return counted


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "a.csv"
    path.write_text("n,t\n" + "".join(f"{n},word {n}\n" for n in range(100, 200)))
    return path


@pytest.fixture
def open_csv(data: Path, tmp_path: Path) -> Callable[..., FileDataset]:
    def open_dataset(*, cache_dir: Path = tmp_path / "cache", **settings: Any) -> FileDataset:
        source = CsvSource(settings=CsvSource.Settings(paths=str(data), **settings))
        return source.open_dataset({}, DataContext(cache_dir=str(cache_dir)))

    return open_dataset


def numbers(dataset: FileDataset) -> list[Any]:
    return [
        number
        for shard in dataset.shards()
        for batch in dataset.read_shard(shard, ["n"], 0)
        for number in batch.column("n").to_pylist()
    ]


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


def test_a_file_is_looked_through_once(open_csv: Callable[..., FileDataset], scans: Scans) -> None:
    first, second = open_csv(), open_csv()
    assert scans.count == 1
    assert second.shards() == first.shards()
    assert second.schema == first.schema
    assert numbers(second) == numbers(first) == list(range(100, 200))


def test_other_settings_have_an_index_of_their_own(open_csv: Callable[..., FileDataset], scans: Scans) -> None:
    for _ in range(2):
        assert numbers(open_csv(types={"n": "string"})) == [str(n) for n in range(100, 200)]
        assert numbers(open_csv()) == list(range(100, 200))
    assert scans.count == 2


def test_a_file_that_is_another_one_is_looked_through_again(
    open_csv: Callable[..., FileDataset], data: Path, scans: Scans
) -> None:
    open_csv()
    data.write_text("n,t\n1,x\n")
    assert numbers(open_csv()) == [1]
    assert scans.count == 2


def test_a_time_of_modification_that_was_set_back_hides_nothing(
    open_csv: Callable[..., FileDataset], data: Path, scans: Scans
) -> None:
    open_csv()
    replace_in_place(data, "199,word 199", "0.5,word 199")
    assert numbers(open_csv())[-1] == 0.5
    assert scans.count == 2


@pytest.mark.parametrize("damage", [lambda text: text[:-3], lambda text: text.replace(b"64", b"65"), lambda _: b""])
def test_a_damaged_index_is_made_again(
    open_csv: Callable[..., FileDataset], tmp_path: Path, scans: Scans, damage: Callable[[bytes], bytes]
) -> None:
    open_csv()
    (kept,) = (tmp_path / "cache").rglob("*.json")
    kept.write_bytes(damage(kept.read_bytes()))
    assert numbers(open_csv()) == list(range(100, 200))
    open_csv()
    assert scans.count == 2


def test_without_a_folder_nothing_is_kept_and_small_files_need_none(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scans: Scans
) -> None:
    source = CsvSource(settings=CsvSource.Settings(paths=str(data)))
    source.open_dataset({}, DataContext())
    monkeypatch.setattr(text_index, "_SMALLEST_FILE", 1 << 20)
    source.open_dataset({}, DataContext(cache_dir=str(tmp_path / "cache")))
    assert scans.count == 2
    assert not (tmp_path / "cache").exists()


def test_an_index_that_cannot_be_kept_is_a_warning(
    open_csv: Callable[..., FileDataset], tmp_path: Path, scans: Scans
) -> None:
    (tmp_path / "file").touch()
    with pytest.warns(RuntimeWarning, match=r"the index of .*a\.csv cannot be kept"):
        dataset = open_csv(cache_dir=tmp_path / "file")
    assert numbers(dataset) == list(range(100, 200))


def test_several_may_make_an_index_at_once(open_csv: Callable[..., FileDataset], tmp_path: Path, scans: Scans) -> None:
    ready, found = threading.Barrier(4), []

    def open_at_once() -> None:
        ready.wait()
        found.append(numbers(open_csv()))

    threads = [threading.Thread(target=open_at_once) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [list(range(100, 200))] * 4
    assert len(list((tmp_path / "cache").rglob("*.*"))) == 1
    scans.count = 0
    open_csv()
    assert scans.count == 0


def test_a_file_that_is_written_while_it_is_looked_through_is_refused(
    open_csv: Callable[..., FileDataset], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scans: Scans
) -> None:
    infer = text_files.TextScan.infer

    def infer_late(self: Any, *arguments: Any) -> Any:
        data.write_text("n,t\n1,x\n")
        return infer(self, *arguments)

    monkeypatch.setattr(text_files.TextScan, "infer", infer_late)
    with pytest.raises(InvalidData, match="changed while the run was reading it"):
        open_csv()
    assert not (tmp_path / "cache").exists()


def test_bytes_that_are_not_those_of_the_index_are_never_decoded(
    open_csv: Callable[..., FileDataset], data: Path, scans: Scans
) -> None:
    dataset = open_csv()
    replace_in_place(data, "150,word", "250,word")
    with pytest.raises(InvalidData, match="is not what it was") as raised:
        numbers(dataset)
    assert raised.value.file == str(data)
