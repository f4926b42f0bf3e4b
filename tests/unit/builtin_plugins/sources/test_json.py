"""The syntax of JSON, as lines and as an array, and the types that its keys have."""

import json
import random
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from opened_data import opened, refused, table

from hostcore_builtin_plugins.sources.json_source import JsonSource

Open = Callable[..., Any]


@pytest.fixture
def open_json(tmp_path: Path) -> Open:
    """``open_json(b'{"a": 1}\\n', columns=["a"], types={"a": "int8"})``: one file, or several by name."""

    def open_files(files: bytes | Mapping[str, bytes], **settings: Any) -> Any:
        folder = tmp_path / "data"
        folder.mkdir(exist_ok=True)
        for name, content in (files if isinstance(files, Mapping) else {"a.jsonl": files}).items():
            (folder / name).write_bytes(content)
        return opened(JsonSource, folder, **settings)

    return open_files


def rows(dataset: Any) -> list[dict[str, Any]]:
    return list(table(dataset).to_pylist())


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
    """Return True if values are equal where a key that is missing is a key that is null."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(same(one.get(key), other.get(key)) for key in one.keys() | other.keys())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@pytest.mark.parametrize("seed", range(6))
def test_lines_and_arrays_have_the_same_rows(open_json: Open, seed: int) -> None:
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
        dataset = open_json(text.encode())
        assert same(rows(dataset), values), f"{name}, seed {seed}"
        schemas.append(dataset.schema)
    assert all(schema.equals(schemas[0]) for schema in schemas), f"seed {seed}"


def test_objects_without_keys_are_values(open_json: Open) -> None:
    values = [{"a": {}, "b": [{}], "c": {"d": {}}}, {"a": None, "b": [], "c": None}]
    assert rows(open_json(lines(*values))) == values


def test_missing_keys_are_null_and_columns_come_as_they_appear(open_json: Open) -> None:
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


def test_declared_types_of_lists_are_used(open_json: Open) -> None:
    types = {"v": "fixed_size_list<float32>[2]", "w": "list<int8>", "s": "large_string"}
    dataset = open_json(lines({"v": [1, 2.5], "w": [], "s": "x"}), types=types)
    assert dataset.schema.types == [pa.list_(pa.float32(), 2), pa.list_(pa.int8()), pa.large_string()]
    assert rows(dataset) == [{"v": [1, 2.5], "w": [], "s": "x"}]


@pytest.mark.parametrize("is_array", [False, True])
@pytest.mark.parametrize(
    ("before", "after", "column"), [(1, "x", "a"), ([1], ["x"], "a[]"), ({"b": 1}, {"b": []}, "a.b")]
)
def test_a_key_with_values_of_two_types_is_refused(
    open_json: Open, is_array: bool, before: Any, after: Any, column: str
) -> None:
    text = "word " * 20
    for number in (20, 30_000):  # the second one in a later block
        content = lines(*[{"a": before, "t": text}] * number, {"a": after}, *[{"a": before}] * 5)
        if is_array:
            content = b"[" + content.replace(b"\n", b",\n").removesuffix(b",\n") + b"]"
        place = "element" if is_array else "line"
        error = refused(partial(open_json, content))
        assert f"a.jsonl, {place} {number + 1}: column '{column}' " in error.message


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
def test_lines_that_are_no_objects_are_refused(open_json: Open, content: bytes, says: str, hints: str) -> None:
    found = refused(lambda: open_json(b'{"a":null}\n' + content))
    assert says in found.message
    assert len(found.message) < 400
    assert hints in (found.hint or "")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'[{"a":1},\n{"a":2}', "line 2: the array is not JSON: unexpected end of data"),
        (b'[{"a":1},\n', "line 2: the array is not JSON"),
        (b"[", "line 1: the array is not JSON"),
        (b'[{"a":1},\n]', "line 1: the array is not JSON: trailing comma is not allowed"),
        (b'[{"a":1},\n,{"a":1}]', "line 2: the array is not JSON"),
        (b'[{"a":1}\n{"a":2}]', "line 2: the array is not JSON"),
        (b'[{"a":1}]\n{"a":2}', "line 2: the array is not JSON: unexpected content after document"),
        (b'[{"a":1}]\n]', "line 2: the array is not JSON"),
        (b"[[1]]", "element 1: [1] is not an object"),
        (b'[{"a":1}, null]', "element 2: null is not an object"),
        (b'[{"a":1},\n{"a":"}]', "line 2: the array is not JSON"),
        (b'[{"a":1},\n{"a":1}},{"a":1}]', "line 2: the array is not JSON"),
        (b'[{"a":1},\n{"a":NaN}]', "line 2: the array is not JSON"),
        (b'[{"a":1},\n{"a":"\xe4"}]', "line 2: byte 7 of the line (0xe4) is not UTF-8"),
        (b"[" * 100_000, "the array is not JSON"),
    ],
)
def test_arrays_that_are_not_of_objects_are_refused(open_json: Open, content: bytes, says: str) -> None:
    assert says in refused(lambda: open_json(content)).message


def test_an_array_has_a_limit_that_lines_do_not_have(open_json: Open) -> None:
    record = b'{"a":"' + b"x" * 1_000_000 + b'"}'
    found = refused(lambda: open_json(b"[" + b",\n".join([record] * 256) + b"]"))
    assert found.message.endswith("a.jsonl is one array of more than 256 MB, which is the limit")
    assert "JSON lines" in (found.hint or "")


def test_objects_without_keys_are_refused(open_json: Open) -> None:
    refused(lambda: open_json(b"{}\n{}\n"), "have no columns")


def test_types_of_several_files_are_joined(open_json: Open) -> None:
    files = {"a.jsonl": lines({"x": 1, "m": {"p": 1}}), "b.jsonl": lines({"m": {"q": "z"}, "x": 0.5})}
    dataset = open_json(files)
    assert dataset.schema.field("x").type == pa.float64()
    assert rows(dataset) == [{"x": 1.0, "m": {"p": 1, "q": None}}, {"x": 0.5, "m": {"p": None, "q": "z"}}]


def test_a_declared_column_need_not_be_in_every_file(open_json: Open) -> None:
    files = {"a.jsonl": lines({"x": 1}), "b.jsonl": lines({"x": 2, "note": "new"})}
    assert [row["note"] for row in rows(open_json(files, types={"note": "string"}))] == [None, "new"]
    found = refused(lambda: open_json(files, types={"nota": "string"}))
    assert found.pointer == "/dataset/types/nota"
    assert "did you mean 'note'?" in (found.hint or "")


CHAT = {"messages": [{"role": "user", "name": None}, {"role": "assistant", "name": None}]}


@pytest.mark.parametrize("record", [CHAT, {"q": [None, None]}, {"q": [[None], None, []], "s": {"deep": [{"a": None}]}}])
def test_nulls_alone_in_lists_and_objects_are_nulls(open_json: Open, record: dict[str, Any]) -> None:
    assert rows(open_json(lines(record) * 3, allow_nulls=True)) == [record] * 3


@pytest.mark.parametrize(("record", "value"), [(CHAT, '"x"'), (CHAT, "1"), ({"q": [None, None]}, '{"a": [1.5]}')])
def test_nulls_alone_have_the_type_that_another_file_knows(open_json: Open, record: dict[str, Any], value: str) -> None:
    other = json.loads(json.dumps(record).replace("null", value))
    assert rows(open_json({"1.jsonl": lines(record), "2.jsonl": lines(other)}, allow_nulls=True)) == [record, other]


def test_a_key_is_there_once_in_the_objects_of_an_array_too(open_json: Open) -> None:
    found = refused(lambda: open_json(b'[{"a": 1},\n {"a": 1, "a": 2}]'))
    assert "element 2" in found.message
    assert "twice" in found.message
