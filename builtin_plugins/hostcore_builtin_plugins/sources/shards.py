"""The data source ``shards``: an index that lists files of Parquet, Arrow, CSV or JSON, with their importance."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from hostcore_builtin_plugins.sources.arrow import ARROW_SUFFIXES, ArrowFormat
from hostcore_builtin_plugins.sources.csv_source import CSV_SUFFIXES, CsvFormat, CsvLayout, check_csv_layout
from hostcore_builtin_plugins.sources.data_files import find_below, find_file
from hostcore_builtin_plugins.sources.file_dataset import FileDataset, FileFormat, job_pointer
from hostcore_builtin_plugins.sources.json_source import JSON_SUFFIXES, JsonFormat, JsonLayout, check_json_layout
from hostcore_builtin_plugins.sources.parquet import PARQUET_SUFFIXES, ParquetFormat
from hostcore_builtin_plugins.sources.shard_manifest import ShardRecord, by_importance, read_manifest
from hostcore_builtin_plugins.sources.stores import DataFile
from hostcore_builtin_plugins.sources.text_index import IndexCache
from hostcore_hookspecs import DataContext, InvalidData, InvalidSettings


class ShardsSource:
    """Opens the files of an index as a dataset, the most important ones first."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """What a job says about the index."""

        index: str = attrs.field(metadata={"help": "The index: a JSON file, or the URI of one."})
        csv: CsvLayout = attrs.field(factory=CsvLayout, metadata={"help": "How the shards in CSV are written."})
        json: JsonLayout = attrs.field(factory=JsonLayout, metadata={"help": "What the shards in JSON have in them."})
        storage_options: Mapping[str, Any] = attrs.field(
            factory=dict, metadata={"help": "For the file system of a URI, as fsspec takes them."}
        )
        allow_nulls: bool = attrs.field(default=False, metadata={"help": "Let nulls in numeric columns through."})

    def __init__(self, *, settings: Settings) -> None:
        if not settings.index:
            raise InvalidSettings("/index", "names no file")
        _check("csv", check_csv_layout, settings.csv)
        _check("json", check_json_layout, settings.json)
        self._settings = settings

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> FileDataset:
        """Read the index, and open its shards."""
        settings, pointer = self._settings, f"{job_pointer(ctx)}/index"
        index = find_file(settings.index, storage_options=settings.storage_options, pointer=pointer)
        records = by_importance(read_manifest(index, pointer=pointer))
        formats = self._formats(index, records, ctx)
        files = find_below(index, [record.shard for record in records], pointer=pointer)
        format_of = dict(zip(files, formats, strict=True))
        data = FileDataset(files, format_of.__getitem__, dataset=dataset, ctx=ctx, allow_nulls=settings.allow_nulls)
        _require_samples(index, records, files, data.rows_by_file(), pointer)
        return data

    def _formats(self, index: DataFile, records: Sequence[ShardRecord], ctx: DataContext) -> list[FileFormat]:
        """The format of each shard, by the ending of its name."""
        cache, pointer = IndexCache(ctx.cache_dir), job_pointer(ctx)
        formats: dict[tuple[str, ...], FileFormat] = {
            PARQUET_SUFFIXES: ParquetFormat(),
            ARROW_SUFFIXES: ArrowFormat(),
            CSV_SUFFIXES: CsvFormat(self._settings.csv, cache=cache, pointer=f"{pointer}/csv"),
            JSON_SUFFIXES: JsonFormat(self._settings.json, cache=cache, pointer=f"{pointer}/json"),
        }
        found = []
        for record in records:
            own = next((one for endings, one in formats.items() if record.shard.endswith(endings)), None)
            if own is None:
                endings = ", ".join(ending for group in formats for ending in group)
                raise InvalidData(
                    f"{index.name} names {record.shard}, whose ending tells no format",
                    pointer=f"{pointer}/index",
                    file=index.name,
                    hint=f"shards end in {endings}",
                )
            found.append(own)
        return found


def _check(key: str, check: Callable[[Any], None], layout: Any) -> None:
    try:
        check(layout)
    except InvalidSettings as error:
        error.pointer = f"/{key}{error.pointer}"
        raise


def _require_samples(
    index: DataFile,
    records: Sequence[ShardRecord],
    files: Sequence[DataFile],
    rows: Mapping[str, int],
    pointer: str,
) -> None:
    """Refuse an index that is not about these files."""
    for record, file in zip(records, files, strict=True):
        found = rows.get(file.name, 0)
        if found != record.samples:
            raise InvalidData(
                f"{index.name} says that {record.shard} has {record.samples:,} samples, and it has {found:,} rows",
                pointer=pointer,
                file=file.name,
                hint="the index is older or newer than its shards: write it again",
            )
