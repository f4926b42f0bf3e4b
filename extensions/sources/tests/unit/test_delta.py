import json
import shutil
import struct
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from source_examples import CUTS, save_delta

from hostcore_hookspecs import InvalidData


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(save_delta(tmp_path)["path"])


def z85(content: bytes) -> str:
    """https://rfc.zeromq.org/spec/32/."""
    letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    words = struct.unpack(f">{len(content) // 4}I", content)
    return "".join(letters[word // 85**place % 85] for word in words for place in (4, 3, 2, 1, 0))


def edit_log(path: Path, change) -> None:
    """Change the actions of version 0."""
    log = path / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    change({key: value for action in actions for key, value in action.items()})
    log.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


def test_the_order_is_that_of_the_log_stays_when_it_is_compacted_and_the_table_may_be_moved(
    path: Path, open_source, read
) -> None:
    before = open_source("delta", path=path)
    assert read(before) == list(range(CUTS[-1]))
    deltalake.DeltaTable(path).create_checkpoint()
    assert open_source("delta", path=path).shards() == before.shards()
    shutil.copytree(path, path.parent / "elsewhere")
    assert open_source("delta", path=path.parent / "elsewhere").shards() == before.shards()


def test_files_that_were_added_at_one_time_come_in_the_order_of_their_paths(tmp_path: Path, open_source) -> None:
    table = pa.table({"id": range(40), "part": range(40)})
    deltalake.write_deltalake(tmp_path / "t", table, partition_by=["part"])
    shards = open_source("delta", path=tmp_path / "t").shards()
    added = pa.table(deltalake.DeltaTable(tmp_path / "t").get_add_actions()).to_pylist()
    expected = sorted((row["modification_time"], row["path"]) for row in added)
    assert [shard.id for shard in shards] == [f"{path}#0" for _, path in expected]


def test_columns_of_partitions_and_later_columns_have_their_values(tmp_path: Path, open_source, read) -> None:
    path, places = tmp_path / "t", ["x y", "ü%", "a/b", None]
    deltalake.write_deltalake(path, pa.table({"id": [0, 1, 2, 3], "place": places}), partition_by=["place"])
    later = pa.table({"id": [4], "place": ["x y"], "delay": pa.array([0.5], pa.float32())})
    deltalake.write_deltalake(path, later, partition_by=["place"], mode="append", schema_mode="merge")
    dataset = open_source("delta", path=path, allow_nulls=True, columns=["delay", "place", "id"])
    assert dataset.schema == pa.schema([("delay", pa.float32()), ("place", pa.string()), ("id", pa.int64())])
    ids, found = read(dataset, "id"), read(dataset, "place")
    assert dict(zip(ids, found, strict=True)) == dict(enumerate([*places, "x y"]))
    assert dict(zip(ids, read(dataset, "delay"), strict=True)) == {0: None, 1: None, 2: None, 3: None, 4: 0.5}


def test_files_and_versions_that_are_not_there_are_told_with_those_that_are(path: Path, open_source) -> None:
    with pytest.raises(InvalidData, match=r"version 7 of .* is not there") as caught:
        open_source("delta", path=path, version=7)
    assert caught.value.pointer == "/dataset/version"
    assert "newest version is 2" in (caught.value.hint or "")
    open_source("delta", path=path, run="a")
    table = deltalake.DeltaTable(path)
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(InvalidData, match="nothing at") as caught:
        open_source("delta", path=path, run="a")
    assert "version 2 has this file, and VACUUM may have removed it" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ({"id": range(4)}, {"configuration": {"delta.columnMapping.mode": "name"}}, r"has column mapping \(name\)"),
        (
            {"id": [1], "key": pa.array([b"\x01a"], pa.binary())},
            {"partition_by": ["key"]},
            r"has binary columns in its partition.*: key",
        ),
    ],
)
def test_what_cannot_be_read_exactly_is_refused(tmp_path: Path, open_source, table, options, message: str) -> None:
    deltalake.write_deltalake(tmp_path / "t", pa.table(table), **options)
    with pytest.raises(InvalidData, match=message):
        open_source("delta", path=tmp_path / "t")


def test_deletion_vectors_are_refused_where_rows_are_deleted_by_them(tmp_path: Path, open_source, read) -> None:
    path, by_vectors = tmp_path / "t", {"delta.enableDeletionVectors": "true"}
    deltalake.write_deltalake(path, pa.table({"id": range(30)}), configuration=by_vectors)
    assert read(open_source("delta", path=path)) == list(range(30))
    rows = (3, 7)
    # https://github.com/delta-io/delta/blob/master/PROTOCOL.md#deletion-vector-format: one bitmap with one container.
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16) + struct.pack("<2H", *rows)
    content = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    vector = {"storageType": "i", "pathOrInlineDv": z85(content), "sizeInBytes": len(content), "cardinality": 2}
    edit_log(path, lambda actions: actions["add"].update(deletionVector=vector))
    with pytest.raises(InvalidData, match="has deletion vectors"):
        open_source("delta", path=path)


def test_what_a_reader_has_to_know_and_does_not_is_named(path: Path, open_source) -> None:
    # Made for Spark's catalogs; deltalake reads the log of such a table.
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["variantShredding-preview"]}
    edit_log(path, lambda actions: actions["protocol"].update(features, writerFeatures=["variantShredding-preview"]))
    with pytest.raises(InvalidData, match="variantShredding-preview"):
        open_source("delta", path=path)


def test_an_empty_table_and_a_damaged_log_are_told(path: Path, open_source) -> None:
    deltalake.DeltaTable(path).delete()
    with pytest.raises(InvalidData, match=r"version 3 of .* has no rows"):
        open_source("delta", path=path)
    (path / "_delta_log" / f"{1:020}.json").write_text("{not json")
    with pytest.raises(InvalidData, match=r"the log of .* cannot be read"):
        open_source("delta", path=path)
