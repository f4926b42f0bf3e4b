"""The data source ``json``: lines of JSON (NDJSON), or one array of objects, local or anywhere that fsspec reaches.

About 2 MiB of text are a shard. Types are those that the job tells, or the narrowest that fit all values of a column.
"""

from collections.abc import Mapping
from typing import Any

import attrs
import pyarrow as pa

from hostcore_builtin_plugins.data_files import find_files
from hostcore_builtin_plugins.file_dataset import FileDataset, job_pointer
from hostcore_builtin_plugins.json_records import JsonArray, JsonLines, JsonReader
from hostcore_builtin_plugins.text_files import CODECS, TextFormat
from hostcore_builtin_plugins.text_index import IndexCache
from hostcore_builtin_plugins.text_types import SCALARS, joined_json, named_types
from hostcore_hookspecs import DataContext, InvalidSettings

JSON_SUFFIXES = tuple(f"{name}{ending}" for name in (".jsonl", ".ndjson", ".json") for ending in ("", *CODECS))


@attrs.frozen(kw_only=True)
class JsonLayout:
    """What JSON files have in them."""

    types: Mapping[str, str] = attrs.field(
        factory=dict,
        metadata={
            "help": 'Types of columns: `{"vector": "fixed_size_list<float32>[128]"}`.',
            "default": "the narrowest type that fits all values",
        },
    )


class JsonSource:
    """Opens JSON files as a dataset."""

    @attrs.frozen(kw_only=True)
    class Settings(JsonLayout):
        """What a job says about the files."""

        paths: tuple[str, ...] | str = attrs.field(
            metadata={
                "help": "Files, folders (searched for `*.jsonl`, `*.ndjson`, `*.json`, also packed: `.gz`, `.bz2`, "
                "`.zst`), globs and URIs."
            }
        )
        storage_options: Mapping[str, Any] = attrs.field(
            factory=dict, metadata={"help": "For the file systems of URIs, as fsspec takes them."}
        )
        allow_nulls: bool = attrs.field(default=False, metadata={"help": "Let nulls in numeric columns through."})

    def __init__(self, *, settings: Settings) -> None:
        if not settings.paths:
            raise InvalidSettings("/paths", "names no file")
        check_json_layout(settings)
        self._settings = settings

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> FileDataset:
        """Find the files, and look through those that are new."""
        files = find_files(
            self._settings.paths,
            suffixes=JSON_SUFFIXES,
            storage_options=self._settings.storage_options,
            pointer=f"{job_pointer(ctx)}/paths",
        )
        json = JsonFormat(self._settings, cache=IndexCache(ctx.cache_dir), pointer=job_pointer(ctx))
        return FileDataset(files, lambda _: json, dataset=dataset, ctx=ctx, allow_nulls=self._settings.allow_nulls)


def check_json_layout(layout: JsonLayout) -> None:
    """Raise :class:`InvalidSettings` for settings that make no sense."""
    named_types(layout.types, SCALARS, lists=True)


class JsonFormat(TextFormat):
    """JSON files, in which a record is an object."""

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
