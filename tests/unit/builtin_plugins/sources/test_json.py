import gzip
import json
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from hostcore_builtin_plugins.sources.file_dataset import FileDataset
from hostcore_builtin_plugins.sources.json_source import JsonSource
from hostcore_builtin_plugins.sources.text_records import element_ends
from hostcore_hookspecs import DataContext, InvalidData, InvalidSettings

Open = Callable[..., FileDataset]


@pytest.fixture
def open_json(tmp_path: Path) -> Open:
    """``open_json(b'{"a": 1}\\n', columns=["a"], types={"a": "int8"})``: one file, or several by name."""

    def open_files(files: bytes | Mapping[str, bytes], *, columns: Sequence[str] = (), **settings: Any) -> FileDataset:
        folder = tmp_path / "data"
        folder.mkdir(exist_ok=True)
        for name, content in (files if isinstance(files, Mapping) else {"a.jsonl": files}).items():
            (folder / name).write_bytes(content)
        source = JsonSource(settings=JsonSource.Settings(paths=str(folder), **settings))
        return source.open_dataset({"columns": list(columns)}, DataContext())

    return open_files


def rows(dataset: FileDataset) -> list[dict[str, Any]]:
    """All rows, read backwards so that every shard is sought; each shard has the rows that it promised."""
    parts: list[dict[str, Any]] = []
    for shard in reversed(dataset.shards()):
        found = [row for batch in dataset.read_shard(shard, None, 0) for row in batch.to_pylist()]
        assert len(found) == shard.num_rows
        parts[:0] = found
    return parts


def error(open_json: Open, *arguments: Any, **settings: Any) -> InvalidData:
    with pytest.raises(InvalidData) as raised:
        open_json(*arguments, **settings)
    assert raised.value.hint
    return raised.value


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


TEXTS = ["", "word", 'a "quote"', "back\\", '\\"', "[{,]}", "two\nlines", "größer \U0001f600", "2020-01-01", "\t", "{"]


def random_value(dice: random.Random, kind: Any) -> Any:
    """A value of a type: ``int``, ``float``, ``str``, ``bool``, ``[type]``, or ``{"key": type}`` with keys left out."""
    if dice.random() < 0.1:
        return None
    if isinstance(kind, list):
        return [random_value(dice, kind[0]) for _ in range(dice.choice([0, 1, 3]))]
    if isinstance(kind, dict):
        return {key: random_value(dice, inner) for key, inner in kind.items() if dice.random() < 0.8}
    return {
        int: lambda: dice.randint(-(10**12), 10**12),
        float: lambda: dice.choice([dice.randint(-5, 5), dice.random()]),
        str: lambda: dice.choice(TEXTS),
        bool: lambda: dice.random() < 0.5,
    }[kind]()


def random_type(dice: random.Random, depth: int = 0) -> Any:
    kind = dice.choice([int, float, str, bool, list, dict] if depth < 3 else [int, str])
    if kind is list:
        return [random_type(dice, depth + 1)]
    return {f"k{i}": random_type(dice, depth + 1) for i in range(2)} if kind is dict else kind


def same(one: Any, other: Any) -> bool:
    """Whether values are equal where a key that is missing is a key that is null."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(same(one.get(key), other.get(key)) for key in one.keys() | other.keys())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@pytest.mark.parametrize("seed", range(15))
def test_lines_and_arrays_have_the_same_rows_wherever_they_are_cut(
    open_json: Open, cut_finely: Callable[..., None], seed: int
) -> None:
    dice = random.Random(seed)
    kind = {f"c{i}": random_type(dice) for i in range(dice.randint(1, 4))}
    values = [random_value(dice, kind) or {} for _ in range(dice.randint(5, 40))] + [{"c0": None}]
    ascii_only = dice.random() < 0.5
    written = [json.dumps(value, ensure_ascii=ascii_only) for value in values]
    texts = {
        "lines": "\n".join(written) + dice.choice(["", "\n", "\r\n\r\n"]),
        "array": json.dumps(values, ensure_ascii=ascii_only, indent=dice.choice([None, 2])) + dice.choice(["", " \n"]),
        "loose": "\ufeff  [ " + dice.choice([" , ", ",\n"]).join(written) + "\n]",
    }
    schemas = []
    for name, text in texts.items():
        for num_bytes, num_rows in ((1 << 16, 65_536), (dice.randint(1, 60), dice.randint(1, 9))):
            cut_finely(num_bytes, num_rows)
            dataset = open_json(text.encode())
            assert same(rows(dataset), values), f"{name}, seed {seed}"
            schemas.append(dataset.schema)
    assert all(schema.equals(schemas[0]) for schema in schemas), f"seed {seed}"


@pytest.mark.parametrize("seed", range(10))
def test_elements_of_an_array_end_where_a_decoder_says(seed: int) -> None:
    dice = random.Random(seed)
    elements = [json.dumps(random_value(dice, random_type(dice))) for _ in range(20)]
    ends, text = [], ""
    for element in elements:
        text += element + dice.choice(["", " "]) + ","
        ends.append(len(text))
    for cut in range(0, len(text), 7):
        found = element_ends(text[:cut].encode()).tolist()
        assert found == [end for end in ends if end <= cut], f"seed {seed}"
    closed = text[:-1] + "]"
    assert element_ends(f"{closed} , ], {{".encode()).tolist() == ends, f"seed {seed}"


def test_missing_keys_are_null_and_columns_come_as_they_appear(
    open_json: Open, cut_finely: Callable[..., None]
) -> None:
    cut_finely(1)
    dataset = open_json(lines({"b": 1}, {"a": "x"}, {"c": {"k": [1]}, "b": 2.5}, {"c": {"m": True}}))
    assert dataset.schema.names == ["b", "a", "c"]
    assert rows(dataset) == [
        {"b": 1.0, "a": None, "c": None},
        {"b": None, "a": "x", "c": None},
        {"b": 2.5, "a": None, "c": {"k": [1], "m": None}},
        {"b": None, "a": None, "c": {"k": None, "m": True}},
    ]


def test_strings_stay_strings_even_if_all_of_them_look_like_dates(open_json: Open) -> None:
    dataset = open_json(lines({"a": "2020-01-01", "b": [{"c": "2020-01-01T00:00:00Z"}]}))
    assert dataset.schema.types == [pa.string(), pa.list_(pa.struct([("c", pa.string())]))]


def test_declared_types_are_used(open_json: Open) -> None:
    types = {
        "v": "fixed_size_list<float32>[2]",
        "w": "list<int8>",
        "d": "date32",
        "t": "timestamp[ms]",
        "n": "uint8",
        "s": "large_string",
    }
    dataset = open_json(
        lines({"n": 7, "v": [1, 2.5], "w": [], "d": "2020-02-29", "t": "2020-01-01", "s": "x"}), types=types
    )
    assert dataset.schema.field("v").type == pa.list_(pa.float32(), 2)
    assert dataset.schema.names == ["n", "v", "w", "d", "t", "s"]
    assert rows(dataset) == [
        {"n": 7, "v": [1, 2.5], "w": [], "d": date(2020, 2, 29), "t": datetime(2020, 1, 1), "s": "x"}
    ]


@pytest.mark.parametrize(
    ("kind", "good", "bad", "shown"),
    [
        ("int8", 1, 300, "300"),
        ("int64", 1, 1.5, "1.5"),
        ("bool", True, None, None),
        ("date32", "2020-01-01", "soon", '"soon"'),
        ("timestamp[s]", "2020-01-01", "soon", '"soon"'),
        ("fixed_size_list<float32>[2]", [1, 2], [1, 2, 3], "[1,2,3]"),
    ],
)
def test_the_first_value_that_does_not_fit_is_named(
    open_json: Open, cut_finely: Callable[..., None], kind: str, good: Any, bad: Any, shown: str | None
) -> None:
    content = lines(*[{"a": good}] * 30, {"a": bad}, *[{"a": good}] * 30)
    for num_bytes in (1 << 16, 20):
        cut_finely(num_bytes)
        if shown is None:
            assert rows(open_json(content, types={"a": kind}))[30] == {"a": None}
            continue
        found = error(open_json, content, types={"a": kind})
        assert f"a.jsonl, line 31: column 'a' has {shown}, which is no " in found.message


@pytest.mark.parametrize("is_array", [False, True])
@pytest.mark.parametrize(
    ("before", "after", "column"), [(1, "x", "a"), ([1], ["x"], "a[]"), ({"b": 1}, {"b": []}, "a.b")]
)
def test_a_key_with_values_of_two_types_is_refused(
    open_json: Open, cut_finely: Callable[..., None], is_array: bool, before: Any, after: Any, column: str
) -> None:
    objects = [{"a": before}] * 20 + [{"a": after}] + [{"a": before}] * 5
    content = lines(*objects)
    if is_array:
        content = b"[" + content.replace(b"\n", b",\n").removesuffix(b",\n") + b"]"
    for num_bytes in (1 << 16, 20):
        cut_finely(num_bytes)
        found = error(open_json, content)
        assert f"a.jsonl, line 21: column '{column}' " in found.message


@pytest.mark.parametrize("content", [b"", b"\n \n", b"[]", b" [\n]\n", b"\xef\xbb\xbf"])
def test_files_without_rows_are_as_good_as_not_there(open_json: Open, content: bytes) -> None:
    assert rows(open_json({"a.jsonl": content, "b.jsonl": b'{"a":1}'})) == [{"a": 1}]
    with pytest.raises(InvalidData, match="has no rows"):
        open_json({"a.jsonl": content, "b.jsonl": content})


DEEP = 100_000


@pytest.mark.parametrize(
    ("content", "says", "hints"),
    [
        (b"null\n{}", "line 2: null is not an object", "one object on each line"),
        (b'{"a":1} null\n', 'line 2: {"a":1} null is not JSON', "one object on each line"),
        (b'{"a":1}{"a":2}\n', "is not JSON", "one object on each line"),
        (b'{\n  "a": 1\n}\n', "line 2: { is not JSON", "one object on each line"),
        (b"hello\n", "line 2: hello is not JSON", "one object on each line"),
        (b"[1, 2]\n", "line 2: [1, 2] is not an object", "one object on each line"),
        (b'{"a":NaN}\n', "line 2: ", "write null"),
        (b'{"a":"\xe4"}\n', "line 2: byte 7 of the line (0xe4) is not UTF-8", "iconv"),
        (b'{"a":1,"a":2}\n', "line 2: key 'a' is there twice", "once"),
        (b'{"a":' + b"[" * 40 + b"]" * 40 + b"}\n", "line 2: values are nested deeper than 32 levels", ""),
        (b'{"a":' + b"[" * DEEP + b"]" * DEEP + b"}\n", "line 2: ", ""),
        (b'{"a":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}\n", "line 2: ", ""),
        (b'{"a":"\\ud800"}\n', "line 2: ", ""),
    ],
)
def test_lines_that_are_no_objects_are_refused(
    open_json: Open, cut_finely: Callable[..., None], content: bytes, says: str, hints: str
) -> None:
    for num_bytes in (1 << 20, 24 + len(content) // 50):
        cut_finely(num_bytes)
        found = error(open_json, b'{"a":null}\n' + content)
        assert says in found.message
        assert len(found.message) < 400
        assert hints in (found.hint or "")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'[{"a":1},\n{"a":2}', "line 2: the array does not end"),
        (b'[{"a":1},\n', "line 2: the array does not end"),
        (b"[", "line 1: the array does not end"),
        (b'[{"a":1},\n]', "line 2: an element of the array is missing"),
        (b'[{"a":1},\n,{"a":1}]', "line 2: an element of the array is missing"),
        (b'[{"a":1}\n{"a":2}]', 'line 1: {"a":1} {"a":2} is not JSON'),
        (b'[{"a":1}]\n{"a":2}', "line 2: something comes after the array"),
        (b'[{"a":1}]\n]', "line 2: something comes after the array"),
        (b"[[1]]", "line 1: [1] is not an object"),
        (b'[null, {"a":1}]', "line 1: null is not an object"),
        (b'[{"a":1},\n{"a":"}]', "line 2: "),
        (b'[{"a":1},\n{"a":1}},{"a":1}]', "line 2: "),
    ],
)
def test_arrays_that_are_not_of_objects_are_refused(
    open_json: Open, cut_finely: Callable[..., None], content: bytes, says: str
) -> None:
    for num_bytes in (1 << 16, 3):
        cut_finely(num_bytes)
        assert says in error(open_json, content).message


def test_objects_without_keys_are_refused(open_json: Open) -> None:
    with pytest.raises(InvalidData, match="have no columns"):
        open_json(b"{}\n{}\n")


def test_types_of_several_files_are_joined(open_json: Open) -> None:
    files = {"a.jsonl": lines({"x": 1, "m": {"p": 1}}), "b.jsonl": lines({"m": {"q": "z"}, "x": 0.5})}
    dataset = open_json(files)
    assert dataset.schema.field("x").type == pa.float64()
    assert rows(dataset) == [{"x": 1.0, "m": {"p": 1, "q": None}}, {"x": 0.5, "m": {"p": None, "q": "z"}}]


def test_a_declared_column_need_not_be_in_every_file(open_json: Open) -> None:
    files = {"a.jsonl": lines({"x": 1}), "b.jsonl": lines({"x": 2, "note": "new"})}
    assert [row["note"] for row in rows(open_json(files, types={"note": "string"}))] == [None, "new"]
    found = error(open_json, files, types={"nota": "string"})
    assert found.pointer == "/dataset/types/nota"
    assert "did you mean 'note'?" in (found.hint or "")


def test_a_packed_file_is_one_shard(open_json: Open, cut_finely: Callable[..., None]) -> None:
    cut_finely(50)
    values = [{"n": n} for n in range(200)]
    for content in (lines(*values), json.dumps(values, indent=1).encode()):
        dataset = open_json({"a.jsonl.gz": gzip.compress(content)})
        assert [shard.num_rows for shard in dataset.shards()] == [200]
        batches = dataset.read_shard(dataset.shards()[0], None, 150)
        assert [row["n"] for batch in batches for row in batch.to_pylist()] == list(range(150, 200))


@pytest.mark.parametrize(
    ("settings", "pointer"),
    [
        ({"types": {"a": "int7"}}, "/types/a"),
        ({"types": {"a": "list<int7>"}}, "/types/a"),
        ({"types": {"a": "list<int8>[2]"}}, "/types/a"),
        ({"types": {"a": "fixed_size_list<int8>"}}, "/types/a"),
        ({"types": {"a": "fixed_size_list<int8>[0]"}}, "/types/a"),
        ({"types": {"a": "time32[s]"}}, "/types/a"),
        ({"types": {"a": "list<" * 5000 + "int8" + ">" * 5000}}, "/types/a"),
    ],
)
def test_settings_that_make_no_sense_are_refused(open_json: Open, settings: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidSettings) as raised:
        open_json(b'{"a":1}\n', **settings)
    assert raised.value.pointer == pointer
