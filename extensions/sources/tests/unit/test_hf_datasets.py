import os
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from source_examples import flights

from hostcore_hookspecs import InvalidData, InvalidSettings

datasets.disable_progress_bars()

PIXEL = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x00\x00\x00\x00:~\x9bU\x00\x00\x00\n"
    b"IDATx\x9cc`\x00\x00\x00\x02\x00\x01H\xaf\xa4q\x00\x00\x00\x00IEND\xaeB`\x82"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Saved: ``plain``, ``mixed`` (shuffled and selected), ``splits``, ``one`` (split), ``typed``."""
    folder = tmp_path_factory.mktemp("datasets")
    plain = datasets.Dataset(flights())
    plain.save_to_disk(folder / "plain", num_shards=3)
    plain.shuffle(seed=1).select(range(100)).save_to_disk(folder / "mixed")
    parts = {"train": plain.select(range(20)), "test": plain.select(range(20, 30))}
    datasets.DatasetDict(parts).save_to_disk(folder / "splits")
    datasets.DatasetDict(train=plain.select(range(5))).save_to_disk(folder / "one")
    features = datasets.Features(
        label=datasets.ClassLabel(names=["late", "early"]),
        vector=datasets.List(datasets.Value("float32"), length=2),
        matrix=datasets.Array2D((2, 2), "int32"),
        image=datasets.Image(),
    )
    row = {"label": 1, "vector": [0.5, 1.5], "matrix": [[1, 2], [3, 4]], "image": {"bytes": PIXEL, "path": None}}
    datasets.Dataset.from_list([row] * 3, features=features).save_to_disk(folder / "typed")
    return folder


def test_rows_come_in_the_order_of_the_dataset(folder: Path, open_source, read) -> None:
    assert read(open_source("datasets", path=folder / "plain")) == list(range(2_500))
    mixed = datasets.load_from_disk(folder / "mixed")["id"]
    assert read(open_source("datasets", path=folder / "mixed")) == list(mixed)


def test_indices_that_a_dataset_has_are_applied(folder: Path, read, tmp_path: Path) -> None:
    from hostcore_hookspecs import DataContext
    from hostcore_sources.hf_datasets import DatasetsReader
    from hostcore_sources.indexed_rows import IndexedDataset

    mixed = datasets.load_from_disk(folder / "plain").shuffle(seed=2)
    assert list(mixed["id"]) != sorted(mixed["id"])
    reader = DatasetsReader(mixed, "mixed", is_built=True)
    assert read(IndexedDataset(reader, dataset={}, ctx=DataContext(), allow_nulls=False)) == list(mixed["id"])


def test_features_have_the_types_that_the_feed_takes(folder: Path, open_source, read) -> None:
    dataset = open_source("datasets", path=folder / "typed", columns=["matrix", "label", "vector", "image"])
    assert dataset.schema == pa.schema(
        [
            ("matrix", pa.list_(pa.list_(pa.int32(), 2), 2)),
            ("label", pa.int64()),
            ("vector", pa.list_(pa.float32(), 2)),
            ("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
        ]
    )
    assert read(dataset, "matrix") == [[[1, 2], [3, 4]]] * 3
    assert read(dataset, "image") == [{"bytes": PIXEL, "path": None}] * 3


def test_a_split_is_chosen_where_there_are_several(folder: Path, open_source, read) -> None:
    assert read(open_source("datasets", path=folder / "splits", split="test")) == list(range(20, 30))
    assert read(open_source("datasets", path=folder / "one")) == list(range(5))
    for split, message in {"": "has 2 splits, and none is chosen", "tset": "has no split 'tset'"}.items():
        with pytest.raises(InvalidData, match=message) as caught:
            open_source("datasets", path=folder / "splits", split=split)
        assert caught.value.pointer == "/dataset/split"
        assert caught.value.hint == "set split to one of: train, test"
    with pytest.raises(InvalidData, match="has a dataset without splits"):
        open_source("datasets", path=folder / "plain", split="train")


def test_what_is_no_dataset_or_cannot_be_read_by_its_rows_is_told(tmp_path: Path, open_source) -> None:
    with pytest.raises(InvalidData, match="was not written by save_to_disk") as caught:
        open_source("datasets", path=tmp_path)
    assert "name the builder" in (caught.value.hint or "")
    with pytest.raises(InvalidData, match="does not exist"):
        open_source("datasets", path=tmp_path / "nothing")
    (tmp_path / "zip::data").mkdir()
    with pytest.raises(InvalidData, match=r"datasets cannot read .*zip::data, for the :: in it"):
        open_source("datasets", path=tmp_path / "zip::data")  # which the library takes for a chain
    with pytest.raises(InvalidSettings, match="a stream cannot be read by row index") as refused:
        open_source("datasets", path=tmp_path, streaming=True)
    assert refused.value.pointer == "/streaming"


def test_a_dataset_that_was_saved_again_is_other_data_and_a_damaged_one_is_told(tmp_path: Path, open_source) -> None:
    path = tmp_path / "saved"
    datasets.Dataset(flights(0, 10)).save_to_disk(path)
    before = open_source("datasets", path=path).shards()
    assert open_source("datasets", path=path).shards() == before
    datasets.Dataset(flights(1, 11)).save_to_disk(path)
    assert open_source("datasets", path=path).shards() != before
    [file] = path.glob("*.arrow")
    os.truncate(file, 100)
    with pytest.raises(InvalidData, match="cannot be loaded by datasets"):
        open_source("datasets", path=path)


def test_a_dataset_without_rows_is_told(tmp_path: Path, open_source) -> None:
    empty = datasets.Dataset(flights(0, 0))
    empty.save_to_disk(tmp_path / "empty")
    datasets.DatasetDict(train=datasets.Dataset(flights(0, 10)), test=empty).save_to_disk(tmp_path / "splits")
    with pytest.raises(InvalidData, match="empty has no rows"):
        open_source("datasets", path=tmp_path / "empty")
    with pytest.raises(InvalidData, match="splits/test has no rows") as caught:
        open_source("datasets", path=tmp_path / "splits", split="train")
    assert "without that split" in (caught.value.hint or "")


@pytest.mark.parametrize("path", ["exp[1]", "exp[1]/a.parquet"])
def test_a_folder_with_brackets_is_no_pattern_for_a_builder(path: str, tmp_path: Path, open_source, read) -> None:
    for folder, value in (("exp1", 1), ("exp[1]", 2)):
        (tmp_path / folder).mkdir()
        pq.write_table(pa.table({"id": [value]}), tmp_path / folder / "a.parquet")
    assert read(open_source("datasets", path=tmp_path / path, builder="parquet")) == [2]


def test_a_builder_reads_files_once(tmp_path: Path, open_source, read) -> None:
    pq.write_table(flights(0, 50), tmp_path / "flights.parquet")
    before = open_source("datasets", path=tmp_path / "flights.parquet", builder="parquet")
    assert read(before) == list(range(50))
    [made] = tmp_path.glob("cache/datasets/**/*.arrow")
    time = made.stat().st_mtime_ns
    again = open_source("datasets", path=tmp_path / "flights.parquet", builder="parquet")
    assert again.shards() == before.shards()
    assert made.stat().st_mtime_ns == time
    pq.write_table(flights(1, 51), tmp_path / "flights.parquet")
    changed = open_source("datasets", path=tmp_path / "flights.parquet", builder="parquet")
    assert read(changed) == list(range(1, 51))
    assert changed.shards() != before.shards()


def test_images_of_a_folder_come_as_their_bytes(tmp_path: Path, open_source, read) -> None:
    for label in ("late", "early"):
        (tmp_path / "images" / label).mkdir(parents=True)
        (tmp_path / "images" / label / "1.png").write_bytes(PIXEL)
    dataset = open_source("datasets", path=tmp_path / "images", builder="imagefolder")
    assert [value["bytes"] for value in read(dataset, "image")] == [PIXEL] * 2
    assert read(dataset, "label") == [0, 1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"builder": "squad"}, "datasets has no builder 'squad'"),
        ({"builder": "pandas"}, "datasets has no builder 'pandas'"),  # of pickles
        ({"builder": "parquet"}, "the builder parquet cannot read .*: ArrowInvalid"),
    ],
)
def test_a_builder_that_cannot_read_is_told(settings, message: str, tmp_path: Path, open_source) -> None:
    (tmp_path / "flights.parquet").write_text("no Parquet file")
    with pytest.raises(InvalidData, match=message):
        open_source("datasets", path=tmp_path / "flights.parquet", **settings)
