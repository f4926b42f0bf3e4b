"""The data source ``json``: lines of JSON (NDJSON), or one array of objects, local or anywhere that fsspec reaches.

About 2 MiB of text are a shard. Types are those of the job, or the narrowest that fit all values of a column.

Arrow's reader is fast, and does not check its input: a top-level ``null``, or a hundred thousand brackets, crash the
process. So it gets only what orjson has parsed before, and what has not changed since.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import attrs
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from hostcore_builtin_plugins.sources.file_dataset import job_pointer, one_line, shortened
from hostcore_builtin_plugins.sources.file_source import ALLOW_NULLS, STORAGE_OPTIONS, FileSource
from hostcore_builtin_plugins.sources.text_files import CODECS, TextFormat
from hostcore_builtin_plugins.sources.text_index import IndexCache
from hostcore_builtin_plugins.sources.text_records import Offsets, TextTrouble, element_ends, first_failing, line_ends
from hostcore_builtin_plugins.sources.text_types import (
    SCALARS,
    TypesDiffer,
    is_deeper,
    joined_json,
    joined_json_fields,
    json_type,
    named_types,
    wire_type,
)
from hostcore_hookspecs import DataContext, Uri

#: Types are walked through level by level, by functions that call themselves.
_MOST_LEVELS = 32
_CHANGED = re.compile(r"Column\(/(.*)\) changed from (\w+) to (\w+)")
_TWICE = re.compile(r"Column\(/(.*)\) was specified twice")
_TYPE_HINT = "a key has values of one type, or null: correct the file"


class JsonReader(ABC):
    """Reads objects. See :class:`hostcore_builtin_plugins.sources.text_scan.TextReader`.

    :param types: Of the columns whose types the job declares.
    """

    records: str
    #: Whether an object may go over several lines.
    _many_lines = False

    def __init__(self, types: Mapping[str, pa.DataType]) -> None:
        self._types = types

    @abstractmethod
    def ends(self, text: bytes, *, at_end: bool) -> Offsets:
        """See :class:`TextReader`."""

    @abstractmethod
    def _objects(self, text: bytes, ends: Offsets) -> Iterator[tuple[int, bytes]]:
        """The text of each record that should be an object, and where it begins."""

    def _as_lines(self, text: bytes) -> bytes:
        """The text of records, of the same length, with white space alone between objects."""
        return text

    def infer(self, text: bytes, ends: Offsets, known: pa.Schema | None) -> tuple[pa.Schema, int]:
        """See :class:`TextReader`."""
        rows = 0
        for begin, content in self._objects(text, ends):
            _require_object(begin, content)
            rows += 1
        if not rows:
            return known or pa.schema([]), 0
        lines = self._as_lines(text)
        found = self._inferred(lines, ends, known)
        declared = pa.schema([(name, self._types[name]) for name in found.names if name in self._types])
        if declared.names:
            self._require_types(lines, ends, declared)
        return found, rows

    def read(self, text: bytes, schema: pa.Schema) -> pa.Table:
        """See :class:`TextReader`."""
        return self._read(self._as_lines(text), schema)

    def _read(self, lines: bytes, schema: pa.Schema) -> pa.Table:
        table = self._parse(lines, pa.schema([(field.name, wire_type(field.type)) for field in schema]))
        columns = [pc.cast(column, kind) for column, kind in zip(table.columns, schema.types, strict=True)]
        return pa.Table.from_arrays(columns, schema=schema)

    def _parse(self, lines: bytes, schema: pa.Schema | None) -> pa.Table:
        """All objects of a text, in one piece. Without a schema, Arrow finds all columns and their types."""
        if not lines.endswith(b"\n"):
            lines += b"\n"  # otherwise the last line would be a piece of its own
        return pj.read_json(
            pa.BufferReader(lines),
            read_options=pj.ReadOptions(block_size=len(lines) + 1, use_threads=False),
            parse_options=pj.ParseOptions(
                explicit_schema=schema,
                unexpected_field_behavior="infer" if schema is None else "ignore",
                newlines_in_values=self._many_lines,
            ),
        )

    def _inferred(self, lines: bytes, ends: Offsets, known: pa.Schema | None) -> pa.Schema:
        """The columns of some objects and of those before.

        :raises TextTrouble: If a key has values of several types, or if values are nested too deep.
        """

        def infer(part: bytes) -> pa.Schema:
            found = self._parse(part, None).schema
            if is_deeper(found, _MOST_LEVELS):
                raise pa.ArrowInvalid(f"values are nested deeper than {_MOST_LEVELS} levels")
            fields = [pa.field(field.name, self._types.get(field.name, json_type(field.type))) for field in found]
            return pa.schema(joined_json_fields("", list(known or ()), fields))

        try:
            return infer(lines)
        except (pa.ArrowInvalid, TypesDiffer):
            _, begin, error = _first_failing(lines, ends, infer)
            message, hint = one_line(str(error)), "correct the file"
            if changed := _CHANGED.search(message):
                path, before, after = changed.groups()
                message, hint = f"column {_path(path)!r} is of type {after}, and {before} before", _TYPE_HINT
            elif twice := _TWICE.search(message):
                message, hint = f"key {_path(twice[1])!r} is there twice", "an object has each key once"
            elif isinstance(error, TypesDiffer):
                hint = _TYPE_HINT
            raise TextTrouble(begin, message, hint) from error

    def _require_types(self, lines: bytes, ends: Offsets, declared: pa.Schema) -> None:
        """Raise :class:`TextTrouble` about the first value that does not have its declared type."""
        try:
            self._read(lines, declared)
            return
        except pa.ArrowInvalid:
            record, begin, error = _first_failing(lines, ends, lambda part: self._read(part, declared))
        values = orjson.loads(record)
        for field in declared:
            try:
                self._read(record, pa.schema([field]))
            except pa.ArrowInvalid:
                shown = shortened(orjson.dumps(values.get(field.name)).decode())
                message = f"column {field.name!r} has {shown}, which is no {field.type}"
                raise TextTrouble(begin, message, "correct the value, or tell another type in 'types'") from error
        raise TextTrouble(begin, one_line(str(error)), _TYPE_HINT) from error


class JsonLines(JsonReader):
    """An object on each line; empty lines do not count."""

    records = "lines"

    def ends(self, text: bytes, *, at_end: bool) -> Offsets:  # noqa: ARG002 - a newline always ends a line
        """See :class:`TextReader`."""
        return line_ends(text)

    def _objects(self, text: bytes, ends: Offsets) -> Iterator[tuple[int, bytes]]:
        for begin, end in pairwise([0, *ends.tolist()]):
            content = text[begin:end]
            if not content.isspace():
                yield begin, content


class JsonArray(JsonReader):
    """The elements of one array."""

    records = "array"
    _many_lines = True

    def __init__(self, types: Mapping[str, pa.DataType]) -> None:
        super().__init__(types)
        self._is_empty = True
        self._is_closed = False

    def ends(self, text: bytes, *, at_end: bool) -> Offsets:
        """See :class:`TextReader`."""
        if self._is_closed:
            return np.array([len(text)])
        ends = element_ends(text)
        if at_end and not (len(ends) and text[ends[-1] - 1 : ends[-1]] == b"]"):
            raise TextTrouble(len(text), "the array does not end", "the file may be truncated: copy or write it again")
        return ends

    def _objects(self, text: bytes, ends: Offsets) -> Iterator[tuple[int, bytes]]:
        for begin, end in pairwise([0, *ends.tolist()]):
            content = text[begin:end]
            first = begin + len(content) - len(content.lstrip())
            if self._is_closed:
                if first < end:
                    raise TextTrouble(
                        first, "something comes after the array", "a file has one array, or objects alone"
                    )
                continue
            element = content[:-1].strip()
            self._is_closed = content.endswith(b"]")
            if not element and not (self._is_closed and self._is_empty):
                raise TextTrouble(first, "an element of the array is missing", "take the comma away")
            if element:
                yield first, element
            self._is_empty = False

    def _as_lines(self, text: bytes) -> bytes:
        lines = bytearray(text)
        np.frombuffer(lines, np.uint8)[element_ends(text) - 1] = ord("\n")
        return bytes(lines)


def _require_object(begin: int, content: bytes) -> None:
    """Raise :class:`TextTrouble` if a record is not one object of JSON.

    :param begin: Where the record is in its text.
    """
    hint = "a file has one object on each line, or one array of objects"
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        if b"NaN" in content or b"Infinity" in content:
            hint = "JSON has no NaN and no Infinity: write null"
        shown = shortened(content.decode())
        raise TextTrouble(begin, f"{shown} is not JSON: {error.msg} at character {error.pos + 1}", hint) from error
    if not isinstance(value, dict):
        raise TextTrouble(begin, f"{shortened(content.decode())} is not an object", hint)


def _first_failing(lines: bytes, ends: Offsets, look: Callable[[bytes], object]) -> tuple[bytes, int, Exception]:
    """The first record at which a text is refused: its text, where it begins, and why.

    :param look: Reads a text from its beginning, and fails for all longer ones as well, once it fails.
    """
    error: Exception = pa.ArrowInvalid("the records cannot be read together")

    def fails(end: int) -> bool:
        nonlocal error
        try:
            look(lines[:end])
        except (pa.ArrowInvalid, TypesDiffer) as found:
            error = found
            return True
        return False

    number = first_failing(ends, fails)
    fails(int(ends[number]))
    begin = int(ends[number - 1]) if number else 0
    record = lines[begin : int(ends[number])]
    return record, begin + len(record) - len(record.lstrip()), error


def _path(path: str) -> str:
    """A path of Arrow's as messages have it: ``meta.id``, ``tags[]``."""
    return path.replace("/[]", "[]").replace("/", ".")


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
        return JsonFormat(self.settings, cache=IndexCache(ctx.cache_dir), pointer=job_pointer(ctx))


def check_json_layout(layout: JsonLayout) -> None:
    """Raise :class:`InvalidSettings` for settings that make no sense."""
    named_types(layout.types, SCALARS, lists=True)


class JsonFormat(TextFormat):
    """JSON files, in which a record is an object."""

    suffixes = tuple(f"{name}{ending}" for name in (".jsonl", ".ndjson", ".json") for ending in ("", *CODECS))
    format_name = "a JSON file"
    fills_in = True

    def __init__(self, layout: JsonLayout, *, cache: IndexCache, pointer: str) -> None:
        super().__init__(named_types(layout.types, SCALARS, lists=True), cache=cache, pointer=pointer)

    @property
    def settings(self) -> Mapping[str, Any]:
        """See :class:`TextFormat`."""
        return {"json": {name: str(kind) for name, kind in self.types.items()}}

    def start(self, text: bytes, *, at_end: bool) -> tuple[JsonReader, int] | None:
        """See :class:`TextFormat`. A bracket begins an array; else every line is an object."""
        begin = len(text) - len(text.lstrip())
        if begin == len(text):
            return (JsonLines(self.types), 0) if at_end else None
        return (JsonArray(self.types), begin + 1) if text[begin : begin + 1] == b"[" else (JsonLines(self.types), 0)

    def reader(self, records: str, columns: pa.Schema) -> JsonReader:  # noqa: ARG002 - objects name their columns
        """See :class:`TextFormat`."""
        return JsonArray(self.types) if records == JsonArray.records else JsonLines(self.types)

    def joined(self, one: pa.Field, other: pa.Field) -> pa.Field:
        """See :class:`TextFormat`."""
        return pa.field(one.name, joined_json(one.name, one.type, other.type))
