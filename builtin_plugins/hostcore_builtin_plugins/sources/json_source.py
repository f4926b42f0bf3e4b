"""The data source ``json``: lines of JSON (NDJSON), or one array of objects, local or anywhere that fsspec reaches.

A file is converted to Parquet once. Types are those of the job, or the narrowest that fit all values of a column.

Arrow's reader is fast, and does not check its input: a top-level ``null``, or a hundred thousand brackets, crash the
process. So it gets only what orjson has parsed before.
"""

import io
import itertools
import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import attrs
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from hostcore_builtin_plugins.sources.file_dataset import job_pointer, one_line, shortened
from hostcore_builtin_plugins.sources.file_source import ALLOW_NULLS, STORAGE_OPTIONS, FileSource
from hostcore_builtin_plugins.sources.files import DataFile
from hostcore_builtin_plugins.sources.text_files import TextFormat
from hostcore_builtin_plugins.sources.text_input import (
    BLOCK_BYTES,
    CODECS,
    MARK,
    RECORD_BYTES,
    open_text,
    require_utf8,
    text_error,
    too_long,
)
from hostcore_builtin_plugins.sources.text_types import (
    SCALARS,
    TypesDiffer,
    is_deeper,
    joined_json,
    joined_json_fields,
    json_type,
    named_types,
    storable,
    wire_type,
)
from hostcore_hookspecs import DataContext, InvalidData, Uri

#: An array, at most: its text is in memory as a whole.
_ARRAY_BYTES: Final = 256_000_000
#: Types are walked through level by level, by functions that call themselves.
_MOST_LEVELS: Final = 32
_CHANGED: Final = re.compile(r"Column\(/(.*)\) changed from (\w+) to (\w+)")
_TWICE: Final = re.compile(r"Column\(/(.*)\) was specified twice")
_TYPE_HINT: Final = "a key has values of one type, or null: correct the file"
_OBJECTS_HINT: Final = "a file has one object on each line, or one array of objects"
_TOO_DEEP: Final = f"values are nested deeper than {_MOST_LEVELS} levels"
_SPACES: Final = re.compile(r"[ \t\r\n]*")
_LINE_ENDS: Final = re.compile(r"[\r\n]+")
#: Elements of an array that are parsed at once.
_ELEMENTS: Final = 16_384


@attrs.frozen(kw_only=True)
class JsonLayout:
    """Layout of JSON files."""

    types: Mapping[str, str] = attrs.field(
        factory=dict,
        metadata={
            "help": 'Types of columns: `{"vector": "fixed_size_list<float32>[128]"}`.',
            "default": "the narrowest type that fits all values",
        },
    )


class JsonSource(FileSource):
    """Opens JSON files as a dataset."""

    @attrs.frozen(kw_only=True)
    class Settings(JsonLayout):
        """The files, and the way to read them."""

        paths: tuple[Uri, ...] | Uri = attrs.field(
            metadata={
                "help": "Files, folders (searched for `*.jsonl`, `*.ndjson`, `*.json`, also packed: `.gz`, `.bz2`, "
                "`.zst`), globs and URIs."
            }
        )
        storage_options: Mapping[str, Any] = STORAGE_OPTIONS
        allow_nulls: bool = ALLOW_NULLS

    def __init__(self, *, settings: Settings) -> None:
        super().__init__(settings=settings)
        check_json_layout(settings)

    def file_format(self, ctx: DataContext) -> "JsonFormat":
        """See :class:`FileSource`."""
        return JsonFormat(self.settings, cache_dir=ctx.cache_dir, pointer=job_pointer(ctx))


def check_json_layout(layout: JsonLayout) -> None:
    """Raise :class:`InvalidSettings` for settings that make no sense."""
    named_types(layout.types, SCALARS, lists=True)


class JsonFormat(TextFormat):
    """JSON files."""

    suffixes = tuple(f"{name}{ending}" for name in (".jsonl", ".ndjson", ".json") for ending in ("", *CODECS))
    format_name = "a JSON file"
    fills_in = True

    def __init__(self, layout: JsonLayout, *, cache_dir: str, pointer: str) -> None:
        super().__init__(named_types(layout.types, SCALARS, lists=True), cache_dir=cache_dir, pointer=pointer)

    @property
    def settings(self) -> Mapping[str, Any]:
        """See :class:`TextFormat`."""
        return {"json": {name: str(kind) for name, kind in self.types.items()}}

    def infer(self, file: DataFile) -> pa.Schema:
        """See :class:`TextFormat`."""
        schema: pa.Schema | None = None
        for block in self._blocks(file):
            try:
                schema = self._look_at(block.text, schema)
            except (pa.ArrowInvalid, TypesDiffer) as error:
                raise self._fault(file, block, schema) from error
        if schema is not None and not schema.names:
            raise InvalidData(f"the records of {file.name} have no columns", file=file.name)
        return schema or pa.schema([])

    def tables(self, file: DataFile, schema: pa.Schema) -> Iterator[pa.Table]:
        """See :class:`TextFormat`."""
        for block in self._blocks(file):
            yield _read(block.text, pa.schema([(field.name, storable(field.type)) for field in schema]))

    def joined(self, one: pa.Field, other: pa.Field) -> pa.Field:
        """See :class:`TextFormat`."""
        return pa.field(one.name, joined_json(one.name, one.type, other.type))

    def _blocks(self, file: DataFile) -> Iterator["JsonRecords"]:
        """All records, each of which is one object."""
        with open_text(file, self.format_name) as text:
            for block in _blocks(file, text):
                _require_objects(file, block)
                yield block

    def _look_at(self, text: bytes, known: pa.Schema | None) -> pa.Schema:
        """The columns of some objects and of those before.

        :raises TypesDiffer: A key has values of types that do not fit.
        :raises pa.ArrowInvalid: So within the text; or a value has not the type that the job declares for its column.
        """
        found = _parse(text, None).schema
        if is_deeper(found, _MOST_LEVELS):
            raise pa.ArrowInvalid(_TOO_DEEP)
        fields = [pa.field(field.name, self.types.get(field.name, json_type(field.type))) for field in found]
        joined = pa.schema(joined_json_fields("", list(known or ()), fields))
        declared = [field for field in fields if field.name in self.types]
        if declared:
            _read(text, pa.schema(declared))
        return joined

    def _fault(self, file: DataFile, block: "JsonRecords", known: pa.Schema | None) -> InvalidData:
        """Return the error about the first record that does not fit to those before."""
        error: Exception = pa.ArrowInvalid("the records cannot be read together")

        def fails(number: int) -> bool:
            nonlocal error
            try:
                self._look_at(JsonRecords(block.records[: number + 1], ()).text, known)
            except (pa.ArrowInvalid, TypesDiffer) as found:
                error = found
                return True
            return False

        number = bisect_left(range(len(block.records) - 1), True, key=fails)
        fails(number)
        return self._record_error(file, f"{block.unit} {block.numbers[number]}", block.records[number], error)

    def _record_error(self, file: DataFile, place: str, record: bytes, error: Exception) -> InvalidData:
        message, hint = one_line(str(error)), "correct the file"
        if changed := _CHANGED.search(message):
            path, before, after = changed.groups()
            return text_error(
                file, place, f"column {_path(path)!r} is of type {after}, and {before} before", _TYPE_HINT
            )
        if twice := _TWICE.search(message):
            return text_error(file, place, f"key {_path(twice[1])!r} is there twice", "an object has each key once")
        if isinstance(error, TypesDiffer):
            return text_error(file, place, message, _TYPE_HINT)
        for name, value in orjson.loads(record).items():
            if name in self.types:
                try:
                    _read(record, pa.schema([(name, self.types[name])]))
                except pa.ArrowInvalid:
                    shown = shortened(orjson.dumps(value).decode())
                    message = f"column {name!r} has {shown}, which is no {self.types[name]}"
                    hint = "correct the value, or tell another type in 'types'"
        return text_error(file, place, message, hint)


@attrs.frozen
class JsonRecords:
    """Records that are parsed at once."""

    #: One line of text each, without its end.
    records: Sequence[bytes]
    #: The number of each in its file.
    numbers: Sequence[int]
    #: Its name in messages.
    unit: str = "line"

    @property
    def text(self) -> bytes:
        """All of them."""
        return b"\n".join(self.records) + b"\n"


def _read(text: bytes, schema: pa.Schema) -> pa.Table:
    """Some columns of objects, with their types."""
    table = _parse(text, pa.schema([(field.name, wire_type(field.type)) for field in schema]))
    columns = [
        column if column.type == kind else pc.cast(column, kind)
        for column, kind in zip(table.columns, schema.types, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _parse(text: bytes, schema: pa.Schema | None) -> pa.Table:
    """All objects of a text, in one piece. Without a schema, Arrow finds all columns and their types."""
    return pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(block_size=len(text) + 1, use_threads=False),
        parse_options=pj.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="infer" if schema is None else "ignore"
        ),
    )


def _blocks(file: DataFile, text: io.BufferedReader) -> Iterator[JsonRecords]:
    """The elements of an array, if the text is one; else its lines. Each should be an object."""
    if text.peek(len(MARK)).startswith(MARK):
        text.read(len(MARK))
    first, is_empty = 1, True
    while begin := text.read(BLOCK_BYTES):
        if is_empty and begin.lstrip().startswith(b"["):
            yield from _elements(file, begin + text.read(_ARRAY_BYTES + 1 - len(begin)))
            return
        end = text.readline(RECORD_BYTES + 1)
        if len(end) > RECORD_BYTES:
            raise too_long(file, first + begin.count(b"\n"))
        lines = (begin + end).split(b"\n")
        numbers = [number for number, line in enumerate(lines) if line and not line.isspace()]
        if numbers:
            yield JsonRecords([lines[number] for number in numbers], [first + number for number in numbers])
            is_empty = False
        first += len(lines) - 1


def _elements(file: DataFile, text: bytes) -> Iterator[JsonRecords]:
    """The elements of a text that is one array."""
    if len(text) > _ARRAY_BYTES:
        message = f"{file.name} is one array of more than {_ARRAY_BYTES // 1_000_000} MB, which is the limit"
        hint = "write one object on each line (JSON lines): jq -c '.[]' array.json > lines.jsonl"
        raise InvalidData(message, file=file.name, hint=hint)
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        require_utf8(file, 1, text)
        message = f"the array is not JSON: {error.msg} at character {error.colno} of the line"
        raise text_error(file, f"line {error.lineno}", message, _syntax_hint(text)) from error
    first, elements = 1, _texts_of_elements(text.decode())
    while part := [*itertools.islice(elements, _ELEMENTS)]:
        yield JsonRecords(part, range(first, first + len(part)), "element")
        first += len(part)


def _texts_of_elements(text: str) -> Iterator[bytes]:
    """The text of each element of an array of JSON, in one line."""
    decoder, end = json.JSONDecoder(), text.index("[") + 1
    while text[begin := _next(text, end)] != "]":
        _, end = decoder.raw_decode(text, begin)
        yield _LINE_ENDS.sub(" ", text[begin:end]).encode()
        end = _next(text, end)
        end += text[end] == ","


def _next(text: str, begin: int) -> int:
    """Return the place of the next character that is no space."""
    found = _SPACES.match(text, begin)
    return found.end() if found else begin


def _require_objects(file: DataFile, block: JsonRecords) -> None:
    """Raise the error about the first record that is not one object of JSON."""
    with suppress(orjson.JSONDecodeError):
        if all(type(value) is dict for value in map(orjson.loads, block.records)):
            return
    for number, record in zip(block.numbers, block.records, strict=True):
        require_utf8(file, number, record)
        place, shown = f"{block.unit} {number}", shortened(record.decode())
        try:
            value = orjson.loads(record)
        except orjson.JSONDecodeError as error:
            message = f"{shown} is not JSON: {error.msg} at character {error.pos + 1}"
            raise text_error(file, place, message, _syntax_hint(record)) from error
        if not isinstance(value, dict):
            raise text_error(file, place, f"{shown} is not an object", _OBJECTS_HINT)


def _syntax_hint(text: bytes) -> str:
    if b"NaN" in text or b"Infinity" in text:
        return "JSON has no NaN and no Infinity: write null"
    return _OBJECTS_HINT


def _path(path: str) -> str:
    """A path of Arrow's as messages have it: ``meta.id``, ``tags[]``."""
    return path.replace("/[]", "[]").replace("/", ".")
