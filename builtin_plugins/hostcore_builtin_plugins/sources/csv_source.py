"""The data source ``csv``: CSV files as in RFC 4180, in UTF-8, local or anywhere that fsspec reaches.

About 2 MiB of text are a shard. Types are those of the job, or the narrowest that fit all values of a column.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import attrs
import pyarrow as pa
import pyarrow.csv as pc
from annotated_types import Ge

from hostcore_builtin_plugins.sources.file_dataset import job_pointer, one_line, shortened
from hostcore_builtin_plugins.sources.file_source import ALLOW_NULLS, STORAGE_OPTIONS, FileSource
from hostcore_builtin_plugins.sources.text_files import CODECS, TextFormat
from hostcore_builtin_plugins.sources.text_index import IndexCache
from hostcore_builtin_plugins.sources.text_records import Offsets, TextTrouble, first_failing, require_utf8, row_ends
from hostcore_builtin_plugins.sources.text_types import (
    SCALARS,
    TIMES,
    TypesDiffer,
    csv_field,
    is_text,
    joined_csv,
    named_types,
)
from hostcore_hookspecs import DataContext, InvalidSettings, Uri

#: What a missing value looks like, unless the job says otherwise.
_NULLS = ("", "NA", "N/A", "NULL", "null", "NaN", "nan", "None")
#: 0 and 1 are numbers: a column must not be one or the other by what else is in it.
_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")


@attrs.frozen(kw_only=True)
class CsvLayout:
    """Layout of CSV files."""

    delimiter: str = attrs.field(default=",", metadata={"help": "What stands between fields: one ASCII character."})
    quote: str = attrs.field(
        default='"', metadata={"help": 'What stands around fields with delimiters or line ends in them; `""`: nothing.'}
    )
    skip_lines: Annotated[int, Ge(0)] = attrs.field(
        default=0, metadata={"help": "Lines to pass over at the beginning of each file."}
    )
    column_names: tuple[str, ...] = attrs.field(
        default=(),
        metadata={"help": "The columns of files without a header line.", "default": "each file's first line"},
    )
    types: Mapping[str, str] = attrs.field(
        factory=dict,
        metadata={
            "help": 'Types of columns: `{"label": "int64"}`.',
            "default": "the narrowest type that fits all values",
        },
    )
    null_values: tuple[str, ...] = attrs.field(
        default=_NULLS, metadata={"help": "Fields that mean a missing value, in columns other than strings."}
    )
    strings_can_be_null: bool = attrs.field(default=False, metadata={"help": "Whether they mean that in strings, too."})


class CsvReader:
    """Reads rows of a file with known columns. See :class:`hostcore_builtin_plugins.sources.text_scan.TextReader`."""

    records = "rows"

    def __init__(self, layout: CsvLayout, names: Sequence[str], types: Mapping[str, pa.DataType]) -> None:
        self._layout = layout
        self._names = list(names)
        self._types = {name: types[name] for name in self._names if name in types}

    def ends(self, text: bytes, *, at_end: bool) -> Offsets:
        """See :class:`TextReader`."""
        return row_ends(text, delimiter=self._layout.delimiter, quote=self._layout.quote, at_end=at_end)

    def infer(self, text: bytes, ends: Offsets, known: pa.Schema | None) -> tuple[pa.Schema, int]:
        """See :class:`TextReader`."""
        try:
            table = self._parse(text, self._types)
        except pa.ArrowInvalid as error:
            raise self._trouble(text, ends, error) from error
        hexadecimal = self._hexadecimal(text, table.schema)
        fields = [
            csv_field(name, column, has_hexadecimals=name in hexadecimal)
            for name, column in zip(self._names, table.columns, strict=True)
        ]
        if known is not None:
            fields = [joined_csv(before, field) for before, field in zip(known, fields, strict=True)]
        return pa.schema(fields), table.num_rows

    def read(self, text: bytes, schema: pa.Schema) -> pa.Table:
        """See :class:`TextReader`."""
        return self._parse(text, {field.name: field.type for field in schema}, schema.names)

    def _hexadecimal(self, text: bytes, found: pa.Schema) -> set[str]:
        """The columns of integers that are not all decimal, which is rare."""
        if b"0x" not in text and b"0X" not in text:
            return set()
        names = set()
        for name in (field.name for field in found if field.type == pa.int64()):
            try:
                self._parse(text, {name: pa.float64()}, [name])
            except pa.ArrowInvalid:
                names.add(name)
        return names

    def _parse(
        self,
        text: bytes,
        types: Mapping[str, pa.DataType],
        columns: Sequence[str] = (),
        *,
        invalid_row_handler: Callable[[pc.InvalidRow], str] | None = None,
    ) -> pa.Table:
        """All rows of a text, in one piece. Arrow finds the types of the columns that have none.

        :param columns: Those to read; none: all.
        """
        return pc.read_csv(
            pa.BufferReader(text),
            read_options=pc.ReadOptions(column_names=self._names, block_size=len(text) + 1, use_threads=False),
            parse_options=_parse_options(self._layout, invalid_row_handler),
            convert_options=pc.ConvertOptions(
                column_types=dict(types),
                include_columns=list(columns),
                null_values=list(self._layout.null_values),
                strings_can_be_null=self._layout.strings_can_be_null,
                true_values=list(_TRUE),
                false_values=list(_FALSE),
                check_utf8=False,  # the whole text is checked at once, which is faster
            ),
        )

    def _trouble(self, text: bytes, ends: Offsets, error: pa.ArrowInvalid) -> TextTrouble:
        """Return the error about the first row that cannot be read."""

        def fails(end: int) -> bool:
            try:
                self._parse(text[:end], self._types)
            except pa.ArrowInvalid:
                return True
            return False

        number = first_failing(ends, fails)
        begin, end = int(ends[number - 1]) if number else 0, int(ends[number])
        row = text[begin:end]
        counts: list[tuple[int, int]] = []

        def note(invalid: pc.InvalidRow) -> str:
            counts.append((invalid.actual_columns, invalid.expected_columns))
            return "skip"

        strings = self._parse(row, dict.fromkeys(self._names, pa.string()), invalid_row_handler=note)
        if counts:
            found, expected = counts[0]
            hint = "fields with a delimiter or a line end in them need quotes; 'delimiter' and 'quote' say which"
            return TextTrouble(begin, f"the row has {_count(found, 'field')}, not {expected}", hint)
        for name, kind in self._types.items():
            try:
                self._parse(row, {name: kind}, [name])
            except pa.ArrowInvalid:
                value = strings.column(name)[0].as_py()
                hint = "correct the value, tell another type in 'types', or count it among 'null_values'"
                return TextTrouble(begin, f"column {name!r} has {shortened(value)!r}, which is no {kind}", hint)
        return TextTrouble(begin, one_line(str(error)), "correct the file")


def _parse_options(layout: CsvLayout, invalid_row_handler: Any = None) -> pc.ParseOptions:
    return pc.ParseOptions(
        delimiter=layout.delimiter,
        quote_char=layout.quote or False,
        newlines_in_values=True,
        invalid_row_handler=invalid_row_handler,
    )


def fields_of(layout: CsvLayout, header: bytes) -> list[str]:
    """The fields of one row, of any number."""
    header = header.rstrip(b"\r\n") + b"\n"  # without its end it would be no row
    options = pc.ReadOptions(block_size=len(header) + 1, use_threads=False)
    found = pc.read_csv(pa.BufferReader(header), read_options=options, parse_options=_parse_options(layout))
    return list(found.column_names)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class CsvSource(FileSource):
    """Opens CSV files as a dataset."""

    @attrs.frozen(kw_only=True)
    class Settings(CsvLayout):
        """The files, and the way to read them."""

        paths: tuple[Uri, ...] | Uri = attrs.field(
            metadata={
                "help": "Files, folders (searched for `*.csv`, also packed: `.gz`, `.bz2`, `.zst`), globs and URIs."
            }
        )
        storage_options: Mapping[str, Any] = STORAGE_OPTIONS
        allow_nulls: bool = ALLOW_NULLS

    def __init__(self, *, settings: Settings) -> None:
        super().__init__(settings=settings)
        check_csv_layout(settings)

    def file_format(self, ctx: DataContext) -> "CsvFormat":
        """See :class:`FileSource`."""
        return CsvFormat(self.settings, cache=IndexCache(ctx.cache_dir), pointer=job_pointer(ctx))


def check_csv_layout(layout: CsvLayout) -> None:
    """Raise :class:`InvalidSettings` for settings that make no sense."""
    for key, value in (("delimiter", layout.delimiter), ("quote", layout.quote)):
        is_letter = len(value) == 1 and value.isascii() and value not in "\r\n\0"
        if not is_letter and not (key == "quote" and value == ""):
            raise InvalidSettings(f"/{key}", f"{value!r} is not one ASCII character", hint='a tab is "\\t" in JSON')
    if layout.delimiter == layout.quote:
        raise InvalidSettings("/quote", "is the delimiter, too")
    for i, name in enumerate(layout.column_names):
        if name in layout.column_names[:i]:
            raise InvalidSettings(f"/column_names/{i}", f"{name!r} is listed twice")
    named_types(layout.types, {**SCALARS, **TIMES}, lists=False)


class CsvFormat(TextFormat):
    """CSV files, in which a record is a row."""

    suffixes = (".csv", *(f".csv{ending}" for ending in CODECS))
    format_name = "a CSV file"

    def __init__(self, layout: CsvLayout, *, cache: IndexCache, pointer: str) -> None:
        types = named_types(layout.types, {**SCALARS, **TIMES}, lists=False)
        super().__init__(types, cache=cache, pointer=pointer)
        self._layout = layout

    @property
    def settings(self) -> Mapping[str, Any]:
        """See :class:`TextFormat`."""
        layout = self._layout
        return {"csv": {key.name: _plain(getattr(layout, key.name)) for key in attrs.fields(CsvLayout)}}

    def start(self, text: bytes, *, at_end: bool) -> tuple[CsvReader, int] | None:
        """See :class:`TextFormat`. Reads the header; empty lines before it do not count."""
        layout, begin = self._layout, 0
        if layout.skip_lines:
            skipped = row_ends(text, delimiter=layout.delimiter, quote="", at_end=at_end)[: layout.skip_lines]
            if len(skipped) < layout.skip_lines:
                return None
            begin = int(skipped[-1])
        if layout.column_names:
            return CsvReader(layout, layout.column_names, self.types), begin
        begin = len(text) - len(text[begin:].lstrip(b"\r\n"))
        ends = row_ends(text[begin:], delimiter=layout.delimiter, quote=layout.quote, at_end=at_end)
        if begin == len(text) or not (len(ends) or at_end):
            return None
        end = begin + int(ends[0]) if len(ends) else len(text)
        header = text[begin:end]
        require_utf8(header)
        names = fields_of(layout, header)
        repeated = next((name for i, name in enumerate(names) if name in names[:i]), None)
        if repeated is not None:
            hint = "rename one; or name all columns in 'column_names', and set 'skip_lines' to pass over the header"
            raise TextTrouble(begin, f"the header has several columns called {repeated!r}", hint)
        return CsvReader(layout, names, self.types), end

    def reader(self, records: str, columns: pa.Schema) -> CsvReader:  # noqa: ARG002 - CSV has one kind of records
        """See :class:`TextFormat`."""
        return CsvReader(self._layout, columns.names, self.types)

    def joined(self, one: pa.Field, other: pa.Field) -> pa.Field:
        """See :class:`TextFormat`. That numbers of one file are words in another is taken for a mistake."""
        field = joined_csv(one, other)
        if is_text(field.type) and not all(is_text(part.type) or pa.types.is_null(part.type) for part in (one, other)):
            raise TypesDiffer(one.name, one.type, other.type)
        return field


def _plain(value: Any) -> Any:
    """A setting as plain JSON."""
    return dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value
