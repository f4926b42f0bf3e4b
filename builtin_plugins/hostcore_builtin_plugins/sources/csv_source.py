"""The data source ``csv``: CSV files as in RFC 4180, in UTF-8, local or anywhere that fsspec reaches.

A file is converted to Parquet once. Types are those of the job, or the narrowest that fit all values of a column.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from annotated_types import Ge

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
    CSV_KINDS,
    FALSE,
    SCALARS,
    TIMES,
    TRUE,
    csv_field,
    csv_kinds,
    joined_csv,
    named_types,
    storable,
)
from hostcore_hookspecs import DataContext, InvalidData, InvalidSettings, Uri

#: What a missing value looks like, unless the job says otherwise.
_NULLS = ("", "NA", "N/A", "NULL", "null", "NaN", "nan", "None")
#: The row and the column that Arrow's errors name; rows count from 1, lines that are passed over among them.
_ROW = re.compile(r"Row #(\d+)")
_COLUMN = re.compile(r"CSV column #(\d+)")
#: A file that ends before there is a row.
_NOTHING = re.compile("Empty CSV file|Could not skip")
_LINE_ENDS = re.compile(rb"\r\n|\r|\n")
_LINE_END = ord("\n")


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
        return CsvFormat(self.settings, cache_dir=ctx.cache_dir, pointer=job_pointer(ctx))


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
    """CSV files."""

    suffixes = (".csv", *(f".csv{ending}" for ending in CODECS))
    format_name = "a CSV file"

    def __init__(self, layout: CsvLayout, *, cache_dir: str, pointer: str) -> None:
        types = named_types(layout.types, {**SCALARS, **TIMES}, lists=False)
        super().__init__(types, cache_dir=cache_dir, pointer=pointer)
        self._layout = layout

    @property
    def settings(self) -> Mapping[str, Any]:
        """See :class:`TextFormat`."""
        layout = self._layout
        return {"csv": {key.name: _plain(getattr(layout, key.name)) for key in attrs.fields(CsvLayout)}}

    def infer(self, file: DataFile) -> pa.Schema:
        """See :class:`TextFormat`."""
        names, nulls = self._names(file), pa.array(self._layout.null_values, pa.string())
        kinds = {name: CSV_KINDS for name in names if name not in self.types}
        for batch in self._batches(file, {name: self.types.get(name, pa.string()) for name in names}):
            for name, left in kinds.items():
                if len(left) > 1:
                    values = batch.column(name).drop_null()
                    kinds[name] = csv_kinds(values.filter(pc.invert(pc.is_in(values, nulls))), left)
        return pa.schema(
            [csv_field(name, kinds[name]) if name in kinds else pa.field(name, self.types[name]) for name in names]
        )

    def tables(self, file: DataFile, schema: pa.Schema) -> Iterator[pa.Table]:
        """See :class:`TextFormat`."""
        for batch in self._batches(file, {field.name: storable(field.type) for field in schema}):
            yield pa.Table.from_batches([batch])

    def joined(self, one: pa.Field, other: pa.Field) -> pa.Field:
        """See :class:`TextFormat`. That numbers of one file are words in another is taken for a mistake."""
        return joined_csv(one, other)

    def _names(self, file: DataFile) -> Sequence[str]:
        """The columns of a file; none if it has not even a header."""
        if self._layout.column_names:
            return self._layout.column_names
        line, names = self._row(file, self._layout.skip_lines + 1)
        repeated = next((name for i, name in enumerate(names) if name in names[:i]), None)
        if repeated is not None:
            hint = "rename one; or name all columns in 'column_names', and set 'skip_lines' to pass over the header"
            raise text_error(file, f"line {line}", f"the header has several columns called {repeated!r}", hint)
        return names

    def _batches(self, file: DataFile, types: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
        """All rows, with the columns that have these types.

        :raises InvalidData: About the first row that cannot be read.
        """
        done = 0
        for block_bytes in (BLOCK_BYTES, RECORD_BYTES) if types else ():
            position = 0
            try:
                with open_text(file, self.format_name) as text:
                    checked = QuotedText(text, self._layout)
                    with self._reader(checked, block_bytes, types) as batches:  # it has a thread that reads ahead
                        for batch in batches:
                            position += batch.num_rows
                            if position > done:  # those before were in smaller blocks
                                yield batch.slice(batch.num_rows - (position - done))
                                done = position
                failure = ""
            except pa.ArrowInvalid as error:
                failure = str(error)  # without the blocks that the error holds
            if checked.fault:
                raise text_error(file, *checked.fault)
            if block_bytes != RECORD_BYTES and (_NOTHING.search(failure) or "straddling" in failure):
                continue
            if failure and not _NOTHING.search(failure):
                raise self._fault(file, types, failure)
            if checked.is_open:
                self._row(file, None)
            return

    def _reader(
        self, text: "QuotedText", block_bytes: int, types: Mapping[str, pa.DataType]
    ) -> pa.csv.CSVStreamingReader:
        layout = self._layout
        return pa.csv.open_csv(
            text,
            read_options=pa.csv.ReadOptions(
                column_names=layout.column_names or None,
                skip_rows=layout.skip_lines,
                block_size=block_bytes,
                use_threads=False,  # for the numbers of rows in errors
            ),
            parse_options=pa.csv.ParseOptions(
                delimiter=layout.delimiter, quote_char=layout.quote or False, newlines_in_values=True
            ),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict(types),
                null_values=list(layout.null_values),
                strings_can_be_null=layout.strings_can_be_null,
                true_values=list(TRUE),
                false_values=list(FALSE),
            ),
        )

    def _fault(self, file: DataFile, types: Mapping[str, pa.DataType], message: str) -> InvalidData:
        """Return the error about a row.

        :param message: Arrow's, which names no line.
        """
        number, column = _ROW.search(message), _COLUMN.search(message)
        line, row = self._row(file, int(number[1]) if number else None)
        if len(row) != len(types):
            hint = "fields with a delimiter or a line end in them need quotes; 'delimiter' and 'quote' say which"
            return text_error(file, f"line {line}", f"the row has {_count(len(row), 'field')}, not {len(types)}", hint)
        if column is None:
            return text_error(file, f"line {line}", one_line(message), "correct the file")
        name = list(types)[int(column[1])]
        hint = "correct the value, tell another type in 'types', or count it among 'null_values'"
        what = f"column {name!r} has {shortened(row[int(column[1])])!r}, which is no {types[name]}"
        return text_error(file, f"line {line}", what, hint)

    def _row(self, file: DataFile, number: int | None) -> tuple[int, Sequence[str]]:
        """Return the line where a row begins, and its fields.

        :param number: As Arrow counts; None: the last.
        :raises InvalidData: It, or what is before it, is no text.
        """
        last: tuple[int, Sequence[str]] = (1, ())
        for place, found in enumerate(self._rows(file), self._layout.skip_lines + 1):
            last = found
            if place == number:
                break
        return last

    def _rows(self, file: DataFile) -> Iterator[tuple[int, Sequence[str]]]:
        """All rows with their lines, by Python's own reader: it is slow, and knows lines."""
        quoting: Any = {"quotechar": self._layout.quote} if self._layout.quote else {"quoting": csv.QUOTE_NONE}
        csv.field_size_limit(max(RECORD_BYTES, csv.field_size_limit()))
        with open_text(file, self.format_name) as text:
            lines = CsvLines(file, text)
            for _ in range(self._layout.skip_lines):
                next(lines, None)
            lines.begin_record()
            record: Sequence[str] = ()
            line = 1
            for row in csv.reader(lines, delimiter=self._layout.delimiter, **quoting):
                line, record = lines.first, lines.begin_record()
                if row:
                    yield line, row
        try:
            list(csv.reader(record, delimiter=self._layout.delimiter, strict=True, **quoting))
        except csv.Error as error:
            if "end of data" in str(error):
                message = f"has a {self._layout.quote} that is never closed"
                hint = 'the file may be truncated; or set "quote": ""'
                raise text_error(file, f"line {line}", message, hint) from error


class CsvLines:
    """The lines of a text, with those of the record that is being read."""

    def __init__(self, file: DataFile, text: io.BufferedReader) -> None:
        self._file = file
        self._text = io.TextIOWrapper(text, encoding="utf-8-sig", errors="surrogateescape", newline="")
        self._record: list[str] = []
        self._length = 0
        #: The number of the record's first line.
        self.first = 1

    def __iter__(self) -> "CsvLines":
        return self

    def __next__(self) -> str:
        line = self._text.readline(RECORD_BYTES + 1)
        if not line:
            raise StopIteration
        self._record.append(line)
        self._length += len(line)
        if self._length > RECORD_BYTES:
            raise too_long(self._file, self.first)
        if not line.isascii():
            require_utf8(self._file, self.first + len(self._record) - 1, line.encode(errors="surrogateescape"))
        return line

    def begin_record(self) -> Sequence[str]:
        """Begin a record, and return the lines of the one before."""
        record, self._record = self._record, []
        self.first += len(record)
        self._length = 0
        return record


class QuotedText(io.RawIOBase):
    """A text whose quotes are checked while Arrow reads it, which takes stray ones for letters (RFC 4180 has none).

    A line end of two characters is never cut: Arrow would lose the second, within quotes.
    """

    def __init__(self, text: io.BufferedReader, layout: CsvLayout) -> None:
        self._text = text
        self._quote = layout.quote.encode()
        #: Characters that may stand before an opening quote and behind a closing quote; quotes are doubled.
        self._around = np.frombuffer(f"{layout.delimiter}{layout.quote}\r\n".encode(), np.uint8)
        self._lines_to_skip = layout.skip_lines
        self._held = b""
        #: The last byte that was checked: in front of a text there is as much as a line end.
        self._last = _LINE_END
        self._line = 1
        #: True inside of quotes.
        self.is_open = False
        #: Place, message and hint of the first stray quote.
        self.fault: tuple[str, str, str] | None = None

    def readable(self) -> bool:
        """See :class:`io.IOBase`."""
        return True

    def read(self, size: int = -1) -> bytes:
        """See :class:`io.RawIOBase`."""
        is_first = self._line == 1 and not self._held and self._last == _LINE_END
        found = self._held + self._text.read(size - len(self._held))
        self._held = b""
        if len(found) > 1 and found.endswith(b"\r") and self._text.peek(1).startswith(b"\n"):
            found, self._held = found[:-1], b"\r"
        if self._quote and self.fault is None and found:
            self._check(found[len(MARK) :] if is_first and found.startswith(MARK) else found)
        return found

    def _check(self, text: bytes) -> None:
        begin = 0
        while self._lines_to_skip:
            end = _LINE_ENDS.search(text, begin)
            if end is None:
                return
            begin, self._line, self._lines_to_skip = end.end(), self._line + 1, self._lines_to_skip - 1
        letters = np.frombuffer(text, np.uint8, offset=begin) if begin < len(text) else np.empty(0, np.uint8)
        if not len(letters):
            return
        quotes = np.flatnonzero(letters == self._quote[0])
        before = np.where(quotes > 0, letters[quotes - 1], self._last)
        following = self._held or self._text.peek(1)[:1] or b"\n"
        behind = np.where(quotes < len(letters) - 1, letters[np.minimum(quotes + 1, len(letters) - 1)], following[0])
        opens = np.arange(len(quotes)) % 2 == int(self.is_open)
        stray = np.flatnonzero(~np.isin(np.where(opens, before, behind), self._around))
        if len(stray):
            within = "that does not begin with one" if opens[stray[0]] else "in quotes, where it is doubled"
            message = f"has a {self._quote.decode()} within a field {within}"
            line = self._line + _line_ends(text, begin, begin + int(quotes[stray[0]]))
            self.fault = (
                f"line {line}",
                message,
                'correct the file; or set "quote": "", if there are none around fields',
            )
        self.is_open ^= bool(len(quotes) % 2)
        self._line += _line_ends(text, begin, len(text))
        self._last = int(letters[-1])


def _line_ends(text: bytes, begin: int, end: int) -> int:
    return text.count(b"\n", begin, end) + text.count(b"\r", begin, end) - text.count(b"\r\n", begin, end)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _plain(value: Any) -> Any:
    """A setting as plain JSON."""
    return dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value
