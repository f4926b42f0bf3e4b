"""The data source ``csv``: CSV files as in RFC 4180, in UTF-8, local or anywhere that fsspec reaches.

About 2 MiB of text are a shard. Types are those that the job tells, or the narrowest that fit all values of a column.
"""

from collections.abc import Mapping
from typing import Any

import attrs
import pyarrow as pa

from hostcore_builtin_plugins.csv_rows import CsvLayout, CsvReader, fields_of
from hostcore_builtin_plugins.data_files import find_files
from hostcore_builtin_plugins.file_dataset import FileDataset, job_pointer
from hostcore_builtin_plugins.text_files import CODECS, TextFormat
from hostcore_builtin_plugins.text_index import IndexCache
from hostcore_builtin_plugins.text_records import TextTrouble, require_utf8, row_ends
from hostcore_builtin_plugins.text_types import SCALARS, TIMES, TypesDiffer, is_text, joined_csv, named_types
from hostcore_hookspecs import DataContext, InvalidSettings

CSV_SUFFIXES = (".csv", *(f".csv{ending}" for ending in CODECS))


class CsvSource:
    """Opens CSV files as a dataset."""

    @attrs.frozen(kw_only=True)
    class Settings(CsvLayout):
        """What a job says about the files."""

        paths: tuple[str, ...] | str = attrs.field(
            metadata={
                "help": "Files, folders (searched for `*.csv`, also packed: `.gz`, `.bz2`, `.zst`), globs and URIs."
            }
        )
        storage_options: Mapping[str, Any] = attrs.field(
            factory=dict, metadata={"help": "For the file systems of URIs, as fsspec takes them."}
        )
        allow_nulls: bool = attrs.field(default=False, metadata={"help": "Let nulls in numeric columns through."})

    def __init__(self, *, settings: Settings) -> None:
        if not settings.paths:
            raise InvalidSettings("/paths", "names no file")
        check_csv_layout(settings)
        self._settings = settings

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> FileDataset:
        """Find the files, and look through those that are new."""
        files = find_files(
            self._settings.paths,
            suffixes=CSV_SUFFIXES,
            storage_options=self._settings.storage_options,
            pointer=f"{job_pointer(ctx)}/paths",
        )
        csv = CsvFormat(self._settings, cache=IndexCache(ctx.cache_dir), pointer=job_pointer(ctx))
        return FileDataset(files, lambda _: csv, dataset=dataset, ctx=ctx, allow_nulls=self._settings.allow_nulls)


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
