from datetime import timedelta
from pathlib import Path

import lance
import pytest
from source_examples import flights, save_lance

from hostcore_hookspecs import InvalidData, InvalidSettings


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(save_lance(tmp_path)["path"])


def test_rows_come_in_the_order_they_were_written_in_without_the_deleted_ones(path: Path, open_source, read) -> None:
    lance.dataset(path).delete("id = 3 OR id = 900 OR id = 2499")
    assert read(open_source("lance", path=path)) == [n for n in range(2_500) if n not in (3, 900, 2_499)]


def test_a_shard_is_read_from_any_row_of_a_fragment_with_deleted_rows(path: Path, open_source) -> None:
    lance.dataset(path).delete("id < 10")
    dataset = open_source("lance", path=path)
    first = dataset.shards()[0]
    assert first.num_rows == 890
    [batch, *_] = dataset.read_shard(first, ["id"], 500)
    assert batch.column("id")[0].as_py() == 510


def test_a_run_goes_on_with_the_version_that_it_began_with(path: Path, open_source, read) -> None:
    before = open_source("lance", path=path, run="a")
    lance.write_dataset(flights(0, 5), path, mode="append")
    lance.dataset(path).delete("id = 1000")
    again = open_source("lance", path=path, run="a")
    assert again.shards() == before.shards()
    assert read(again) == list(range(2_500))
    assert len(read(open_source("lance", path=path, run="b"))) == 2_504


def test_a_tag_is_looked_up_once_in_a_run(path: Path, open_source, read) -> None:
    lance.dataset(path).tags.create("good", 1)
    assert read(open_source("lance", path=path, tag="good", run="a")) == list(range(900))
    lance.dataset(path).tags.update("good", 2)
    assert len(read(open_source("lance", path=path, tag="good", run="a"))) == 900
    assert len(read(open_source("lance", path=path, tag="good", run="b"))) == 1_700


def test_the_version_is_part_of_the_shards(path: Path, open_source) -> None:
    first, second = (open_source("lance", path=path, version=version).shards()[0] for version in (1, 2))
    assert first.id == second.id
    assert first.version != second.version


def test_a_version_that_was_removed_is_named_with_those_that_are_there(path: Path, open_source) -> None:
    open_source("lance", path=path, run="a")
    lance.write_dataset(flights(0, 5), path, mode="append")
    lance.dataset(path).cleanup_old_versions(older_than=timedelta(0))
    with pytest.raises(InvalidData, match=r"version 3 of .* is not there, or not any more") as caught:
        open_source("lance", path=path, run="a")
    assert caught.value.hint is not None
    assert "newest versions are 4" in caught.value.hint


def test_an_unknown_tag_is_told_with_those_that_are_there(path: Path, open_source) -> None:
    lance.dataset(path).tags.create("good", 1)
    with pytest.raises(InvalidData, match="no tag 'bad'") as caught:
        open_source("lance", path=path, tag="bad")
    assert caught.value.pointer == "/dataset/tag"
    assert caught.value.hint == "its tags are good"


def test_what_is_no_table_is_told_without_the_places_in_lances_sources(tmp_path: Path, open_source) -> None:
    with pytest.raises(InvalidData, match=r"is not a Lance table: .*not found") as caught:
        open_source("lance", path=tmp_path)
    assert ".rs" not in str(caught.value)
    with pytest.raises(InvalidData, match="does not exist"):
        open_source("lance", path=tmp_path / "nothing")


@pytest.mark.parametrize(
    ("settings", "pointer"),
    [
        ({}, "/path"),
        ({"path": Path("a"), "uri": "s3://b/c"}, "/uri"),
        ({"uri": "b/c"}, "/uri"),
        ({"path": Path("a"), "version": 1, "tag": "good"}, "/tag"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, pointer: str, open_source) -> None:
    with pytest.raises(InvalidSettings) as caught:
        open_source("lance", **settings)
    assert caught.value.pointer == pointer
