"""Every type of column comes out of a file with one defined type, in a form that a shuffled feed can put in order."""

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import opened_data
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from opened_data import opened

from hostcore_builtin_plugins.sources.arrow import ArrowSource
from hostcore_builtin_plugins.sources.layouts import plain_batches, plain_type
from hostcore_builtin_plugins.sources.parquet import ParquetSource

WORDS = ["a", "b", None, "a"]
OTHER_WORDS = ["c", "a", "d", "c"]


def encoded(values: list[Any], kind: pa.DataType | None = None) -> pa.Array:
    return pa.array(values, kind).dictionary_encode()


def runs(values: list[Any]) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array([1, 4], pa.int32()), pa.array(values))


def extended(kind: pa.DataType, values: list[Any]) -> pa.Array:
    return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))


def in_lists(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, 1, None, 4], pa.int32()), values)


def as_struct(values: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([values], ["field"], mask=pa.array([False, False, True, False]))


#: Types that batches have as files do: a type, and four values.
KEPT: list[tuple[pa.DataType, list[Any]]] = [
    *[(kind, [1, 2, None, 4]) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())],
    *[(kind, [1, 2, None, 4]) for kind in (pa.uint8(), pa.uint16(), pa.uint32())],
    (pa.uint64(), [1, 2**64 - 1, None, 4]),
    (pa.float16(), [np.float16(1.5), np.float16(2.5), None, np.float16(0)]),
    *[(kind, [1.5, float("inf"), None, 4.0]) for kind in (pa.float32(), pa.float64())],
    (pa.bool_(), [True, False, None, True]),
    (pa.null(), [None] * 4),
    *[(kind, ["a", "", None, "d"]) for kind in (pa.string(), pa.large_string())],
    *[(kind, [b"a", b"", None, b"d"]) for kind in (pa.binary(), pa.large_binary())],
    (pa.binary(2), [b"ab", b"cd", None, b"ef"]),
    *[(pa.timestamp(unit), [datetime(2020, 1, 1), None] * 2) for unit in ("ms", "us", "ns")],
    (pa.timestamp("us", "Europe/Berlin"), [datetime(2020, 1, 1), None] * 2),
    (pa.date32(), [date(2020, 1, 1), None] * 2),
    (pa.time32("ms"), [time(1, 2, 3), None] * 2),
    (pa.time64("us"), [time(1, 2, 3), None] * 2),
    (pa.duration("us"), [timedelta(seconds=1), None] * 2),
    (pa.decimal128(5, 2), [Decimal("1.50"), None] * 2),
    (pa.decimal256(50, 2), [Decimal("1.50"), None] * 2),
    (pa.list_(pa.int64()), [[1], [], None, [2, None]]),
    (pa.large_list(pa.string()), [["a"], [], None, ["b", None]]),
    (pa.list_(pa.float32(), 2), [[1, 2], [3, 4], None, [5, 6]]),
    (pa.list_(pa.list_(pa.int64(), 2), 2), [[[1, 2], [3, 4]]] * 4),
    (pa.struct({"x": pa.int64(), "y": pa.list_(pa.string())}), [{"x": 1, "y": ["a"]}, None] * 2),
    (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [], None, [("b", None)]]),
]


def made(kind: pa.DataType, first: list[Any], second: list[Any], plain: pa.DataType) -> tuple[Any, Any, pa.DataType]:
    return pa.array(first, kind), pa.array(second, kind), plain


LISTS, INT = [[1], None, [2, 3]], pa.int64()
FULL = [pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), [f"{a}{i}" for i in range(100)]) for a in "ab"]
OPAQUE = pa.opaque(pa.string_view(), "text", "somebody")
NOT_NULL = pa.list_(pa.field("element", INT, nullable=False))
STRUCT = pa.struct({"field": pa.string()})

#: Types that batches have in their plain form: two arrays, with dictionaries of their own, and the plain type.
MADE_PLAIN: dict[str, tuple[pa.Array, pa.Array, pa.DataType]] = {
    "dictionary of strings": (encoded(WORDS), encoded(OTHER_WORDS), pa.string()),
    "dictionary of numbers": (encoded([5, 6, None, 5]), encoded([7, 5, 7, 7]), INT),
    "dictionary of dates": (encoded([date(2020, 1, 1)] * 4), encoded([date(2021, 1, 1)] * 4), pa.date32()),
    "dictionary in lists": (in_lists(encoded(WORDS)), in_lists(encoded(OTHER_WORDS)), pa.list_(pa.string())),
    "dictionary in structs": (as_struct(encoded(WORDS)), as_struct(encoded(OTHER_WORDS)), STRUCT),
    "dictionary of full indices": (*FULL, pa.string()),
    "run-end encoded": (runs([1.5, None]), runs([2.5, 3.5]), pa.float64()),
    "run-end encoded in structs": (as_struct(runs(["a", None])), as_struct(runs(["b", "c"])), STRUCT),
    "string view": made(pa.string_view(), WORDS, OTHER_WORDS, pa.string()),
    "binary view": made(pa.binary_view(), [b"a", None], [b"b"], pa.binary()),
    "string views in maps": made(
        pa.map_(pa.string(), pa.string_view()),
        [[("k", "a")], None],
        [[], [("k", None)]],
        pa.map_(pa.string(), pa.string()),
    ),
    "an extension over string views": (extended(OPAQUE, WORDS), extended(OPAQUE, OTHER_WORDS), pa.string()),
    "list view": made(pa.list_view(INT), LISTS, [[], [4]], pa.list_(INT)),
    "large list view": made(pa.large_list_view(INT), LISTS, [[], [4]], pa.large_list(INT)),
    "list views in fixed-size lists": made(
        pa.list_(pa.list_view(INT), 2), [[[1], [2, 3]], None], [[[], None]], pa.list_(pa.list_(INT), 2)
    ),
    "lists of what cannot be null": made(NOT_NULL, [[1]], [[2, 3]], pa.list_(INT)),
}

#: Extension types stay, and have the storage they say.
EXTENSIONS = [
    (pa.uuid(), [b"x" * 16, b"y" * 16]),
    (pa.json_(pa.string()), ["{}", None]),
    (pa.bool8(), [1, 0]),
    (pa.fixed_shape_tensor(pa.float32(), [2, 2]), [[1, 2, 3, 4], [5, 6, 7, 8]]),
]


def write_arrow(path: Path, batches: list[pa.RecordBatch]) -> Any:
    with pa.ipc.new_stream(path / "a.arrow", batches[0].schema) as writer:  # in which dictionaries may be replaced
        for batch in batches:
            writer.write_batch(batch)
    return opened(ArrowSource, path / "a.arrow")


def write_parquet(path: Path, batches: list[pa.RecordBatch]) -> Any:
    with pq.ParquetWriter(path / "a.parquet", batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return opened(ParquetSource, path / "a.parquet")


Write = Callable[[Path, list[pa.RecordBatch]], Any]
FORMATS = pytest.mark.parametrize("write", [write_arrow, write_parquet], ids=["arrow", "parquet"])


def shuffled(dataset: Any) -> tuple[pa.DataType, list[Any], list[Any]]:
    """Gather rows as the shuffled feed does: pieces of all shards become one batch.

    :return: The type of the column, its values in order, and its values backwards, as they were gathered.
    """
    batches = [batch for shard in dataset.shards() for batch in dataset.read_shard(shard, None, 0)]
    assert all(batch.schema == dataset.schema for batch in batches)
    window = pa.concat_batches([part for batch in batches for part in (batch.slice(0, 1), batch.slice(1))])
    backwards = window.take(pa.array(range(window.num_rows))[::-1])
    backwards.validate(full=True)
    in_order = [value for batch in batches for value in batch.column("x").to_pylist()]
    return backwards.schema.field("x").type, in_order, backwards.column("x").to_pylist()


@FORMATS
@pytest.mark.parametrize(("kind", "values"), KEPT, ids=[str(kind) for kind, _ in KEPT])
def test_plain_types_stay_as_they_are(tmp_path: Path, write: Write, kind: pa.DataType, values: list[Any]) -> None:
    first, second = pa.array(values, kind), pa.array(values[::-1], kind)
    dataset = write(tmp_path, [pa.record_batch({"x": first}), pa.record_batch({"x": second})])
    expected = first.to_pylist() + second.to_pylist()
    assert shuffled(dataset) == (kind, expected, expected[::-1])


@pytest.mark.parametrize(
    ("write", "name"),
    [
        *[pytest.param(write_arrow, name, id=f"arrow-{name}") for name in MADE_PLAIN],
        # Parquet has no such encoding.
        *[pytest.param(write_parquet, name, id=f"parquet-{name}") for name in MADE_PLAIN if "run-end" not in name],
    ],
)
def test_layouts_are_made_plain(tmp_path: Path, write: Write, name: str) -> None:
    first, second, plain = MADE_PLAIN[name]
    dataset = write(tmp_path, [pa.record_batch({"x": first}), pa.record_batch({"x": second})])
    expected = first.to_pylist() + second.to_pylist()
    assert dataset.schema.field("x").type == plain
    assert shuffled(dataset) == (plain, expected, expected[::-1])
    for start in range(min(len(first), len(second)) + 1):
        read = opened_data.values(dataset, "x", offset=start)
        assert read == first.to_pylist()[start:] + second.to_pylist()[start:]


@FORMATS
@pytest.mark.parametrize(("kind", "values"), EXTENSIONS, ids=[str(kind) for kind, _ in EXTENSIONS])
def test_extension_types_stay(tmp_path: Path, write: Write, kind: pa.DataType, values: list[Any]) -> None:
    array = extended(kind, values)
    dataset = write(tmp_path, [pa.record_batch({"x": array})] * 2)
    expected = array.to_pylist() * 2
    assert shuffled(dataset) == (kind, expected, expected[::-1])


def test_a_type_whose_rows_cannot_be_gathered_is_refused_when_the_dataset_is_opened(tmp_path: Path) -> None:
    union = pa.UnionArray.from_sparse(
        pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"], pa.string_view())]
    )
    error = opened_data.refused(
        lambda: write_arrow(tmp_path, [pa.record_batch({"x": union})]),
        r"column 'x' of .*, whose rows cannot be put in another order",
    )
    assert error.file == str(tmp_path / "a.arrow")
    assert error.hint


LONG = "x" * 10_000
SHARED = {
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1] * 500), [LONG, "a"]),
    "dictionary of views": pa.DictionaryArray.from_arrays(
        pa.array([0, 1] * 500), pa.array([LONG, "a"], pa.string_view())
    ),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([500, 1000], pa.int32()), [LONG, "a"]),
    "list views": pa.ListViewArray.from_arrays(
        pa.array([0] * 1000, pa.int32()), pa.array([1000] * 1000, pa.int32()), pa.array(np.zeros(1000))
    ),
    "dictionary in lists": pa.ListArray.from_arrays(
        pa.array(range(0, 1001, 10)), pa.DictionaryArray.from_arrays(pa.array([0, 1] * 500), [LONG, "a"])
    ),
}


@pytest.mark.parametrize("array", SHARED.values(), ids=SHARED)
def test_values_that_many_rows_share_are_made_plain_a_few_rows_at_a_time(array: pa.Array) -> None:
    schema = pa.schema({"x": plain_type(array.type)})
    batches = list(plain_batches(pa.record_batch({"x": array}), schema, batch_bytes=200_000))
    assert [value for batch in batches for value in batch.column("x").to_pylist()] == array.to_pylist()
    assert max(batch.nbytes for batch in batches) < 250_000
    assert len(batches) < 4 * sum(batch.nbytes for batch in batches) / 200_000


def test_a_run_of_billions_of_rows_is_made_plain_bit_by_bit() -> None:
    rows = 4_000_000_000
    array = pa.RunEndEncodedArray.from_arrays(pa.array([rows], pa.int64()), pa.array([1.5]))
    batches = plain_batches(pa.record_batch({"x": array}), pa.schema({"x": pa.float64()}), batch_bytes=4 << 20)
    assert next(batches).num_rows == next(batches).num_rows == 65_536


def test_batches_of_plain_types_are_not_copied() -> None:
    batch = pa.record_batch({"a": [1, 2], "b": ["x", "y"]})
    (found,) = plain_batches(batch, pa.schema({"b": pa.string(), "a": pa.int64()}), batch_bytes=1)
    assert [buffer.address for buffer in found.column("a").buffers() if buffer] == [
        buffer.address for buffer in batch.column("a").buffers() if buffer
    ]


def test_words_are_the_same_in_files_that_store_them_differently(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for name, words in {"a": pa.array(WORDS), "b": encoded(WORDS), "c": pa.array(WORDS, pa.string_view())}.items():
        pq.write_table(pa.table({"x": words}), folder / f"{name}.parquet")
    assert shuffled(opened(ParquetSource, folder)) == (pa.string(), WORDS * 3, WORDS[::-1] * 3)
