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
    lance.dataset(path).delete("id < 10 OR id = 900 OR id = 2499")
    dataset = open_source("lance", path=path)
    assert read(dataset) == [n for n in range(10, 2_499) if n != 900]
    first = dataset.shards()[0]
    assert first.num_rows == 890
    [batch, *_] = dataset.read_shard(first, ["id"], 500)
    assert batch.column("id")[0].as_py() == 510


def test_a_tag_is_looked_up_once_in_a_run_and_an_unknown_one_is_told(path: Path, open_source, read) -> None:
    lance.dataset(path).tags.create("good", 1)
    before = open_source("lance", path=path, tag="good", run="a")
    assert read(before) == list(range(900))
    lance.dataset(path).tags.update("good", 2)
    assert len(read(open_source("lance", path=path, tag="good", run="a"))) == 900
    later = open_source("lance", path=path, tag="good", run="b")
    assert len(read(later)) == 1_700
    assert later.shards()[0].id == before.shards()[0].id
    assert later.shards()[0].version != before.shards()[0].version
    with pytest.raises(InvalidData, match="no tag 'bad'") as caught:
        open_source("lance", path=path, tag="bad")
    assert (caught.value.pointer, caught.value.hint) == ("/dataset/tag", "its tags are good")


def test_a_version_that_was_removed_is_named_with_those_that_are_there(path: Path, open_source) -> None:
    open_source("lance", path=path, run="a")
    lance.write_dataset(flights(0, 5), path, mode="append")
    lance.dataset(path).cleanup_old_versions(older_than=timedelta(0))
    with pytest.raises(InvalidData, match=r"version 3 of .* is not there, or not any more") as caught:
        open_source("lance", path=path, run="a")
    assert caught.value.hint is not None
    assert "newest versions are 4" in caught.value.hint


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
