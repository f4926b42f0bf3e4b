"""The data source ``shards``: an index that lists files of Parquet, Arrow, CSV or JSON, with their importance.

An index is a JSON object::

    {"name": "flights", "records": [{"shard": "jan.parquet", "samples": 1200, "importance": 2.5}]}

``shard`` starts at the folder of the index and does not leave it. ``samples`` is the number of rows. ``importance`` may
be missing; what is no finite number above 0 counts as missing, too, and then ``samples`` stands in for it. Other keys
are for others.
"""

import json
import math
import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from hostcore_builtin_plugins.sources.arrow import ArrowFormat
from hostcore_builtin_plugins.sources.csv_source import CsvFormat, CsvLayout, check_csv_layout
from hostcore_builtin_plugins.sources.data_files import find_below, find_file
from hostcore_builtin_plugins.sources.file_dataset import FileDataset, FileFormat, job_pointer, shortened
from hostcore_builtin_plugins.sources.file_source import ALLOW_NULLS, STORAGE_OPTIONS
from hostcore_builtin_plugins.sources.files import DataFile
from hostcore_builtin_plugins.sources.json_source import JsonFormat, JsonLayout, check_json_layout
from hostcore_builtin_plugins.sources.parquet import ParquetFormat
from hostcore_builtin_plugins.stores.errors import data_errors
from hostcore_hookspecs import DataContext, InvalidData, InvalidSettings, Uri

#: An index of a million shards is smaller.
_MOST_BYTES = 256 << 20


@attrs.frozen(kw_only=True)
class _ShardRecord:
    """One shard of the dataset."""

    #: A path below the folder of the index, without ``.`` and ``..``.
    shard: str
    #: Rows.
    samples: int
    #: None: there is none that counts.
    importance: float | None

    @property
    def weight(self) -> float:
        """Key of the order of shards."""
        return self.samples if self.importance is None else self.importance


class ShardsSource:
    """Opens the files of an index as a dataset, the most important ones first."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """The index, and the way to read its shards."""

        index: Uri = attrs.field(metadata={"help": "The index: a JSON file, or the URI of one."})
        csv: CsvLayout = attrs.field(factory=CsvLayout, metadata={"help": "How the shards in CSV are written."})
        json: JsonLayout = attrs.field(factory=JsonLayout, metadata={"help": "What the shards in JSON have in them."})
        storage_options: Mapping[str, Any] = STORAGE_OPTIONS
        allow_nulls: bool = ALLOW_NULLS

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
        records = _by_importance(_read_index(index, pointer=pointer))
        formats = self._formats(index, records, ctx)
        files = find_below(index, [record.shard for record in records], pointer=pointer)
        format_of = dict(zip(files, formats, strict=True))
        data = FileDataset(files, format_of.__getitem__, dataset=dataset, ctx=ctx, allow_nulls=settings.allow_nulls)
        _require_samples(index, records, files, data.rows_by_file(), pointer)
        return data

    def _formats(self, index: DataFile, records: Sequence[_ShardRecord], ctx: DataContext) -> list[FileFormat]:
        """The format of each shard, by the ending of its name."""
        pointer = job_pointer(ctx)
        formats: Sequence[FileFormat] = (
            ParquetFormat(),
            ArrowFormat(),
            CsvFormat(self._settings.csv, cache_dir=ctx.cache_dir, pointer=f"{pointer}/csv"),
            JsonFormat(self._settings.json, cache_dir=ctx.cache_dir, pointer=f"{pointer}/json"),
        )
        found = []
        for record in records:
            own = next((one for one in formats if record.shard.endswith(one.suffixes)), None)
            if own is None:
                endings = ", ".join(ending for one in formats for ending in one.suffixes)
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
    records: Sequence[_ShardRecord],
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


def _read_index(file: DataFile, *, pointer: str) -> tuple[_ShardRecord, ...]:
    """Read an index.

    :param pointer: Where the job names it.
    :return: The shards in the order of the index.
    :raises InvalidData: If it is not an index, has no record, or names a shard twice.
    """
    index = _Index(file, pointer)
    records = tuple(index.record(i, found) for i, found in enumerate(index.records()))
    places: dict[str, int] = {}
    for i, record in enumerate(records):
        if record.shard in places:
            message = f"names {record.shard} again, which is /records/{places[record.shard]} already"
            raise index.error(i, "shard", message, "a dataset has each file once")
        places[record.shard] = i
    return records


def _by_importance(records: Sequence[_ShardRecord]) -> tuple[_ShardRecord, ...]:
    """The most important shards first; those of one weight in the order of the index."""
    return tuple(sorted(records, key=lambda record: -record.weight))


class _Index:
    """An index that is being read."""

    def __init__(self, file: DataFile, pointer: str) -> None:
        self._file = file
        self._pointer = pointer

    def records(self) -> list[Any]:
        """Return the content of ``records``."""
        hint = 'an index is {"records": [{"shard": "a.parquet", "samples": 100, "importance": 1.0}]}'
        try:
            with self._file.open() as source, data_errors(self._file.name, self._pointer):
                text = source.read(_MOST_BYTES + 1)
            if len(text) > _MOST_BYTES:
                raise self._invalid(f"{self._file.name} is larger than {_MOST_BYTES >> 20} MiB", "is it the index?")
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self._invalid(f"{self._file.name} is not JSON: {error}", hint) from error
        records = found.get("records") if isinstance(found, dict) else None
        if not isinstance(records, list):
            raise self._invalid(f"{self._file.name} has no list of 'records'", hint)
        if not records:
            raise self._invalid(f"{self._file.name} has no records: the dataset has no shards", None)
        return records

    def record(self, index: int, found: Any) -> _ShardRecord:
        """One of them, checked."""
        if not isinstance(found, dict):
            raise self.error(index, "", "is not an object", None)
        return _ShardRecord(
            shard=self._shard(index, found.get("shard")),
            samples=self._samples(index, found.get("samples")),
            importance=self._importance(index, found.get("importance")),
        )

    def error(self, index: int, key: str, message: str, hint: str | None) -> InvalidData:
        """The error about a key of a record."""
        place = f"/records/{index}/{key}".rstrip("/")
        return self._invalid(f"{self._file.name}: {place} {message}", hint)

    def _shard(self, index: int, found: Any) -> str:
        if not isinstance(found, str) or not found.strip("/.") or "\0" in found:
            raise self.error(index, "shard", f"is {_shown(found)}, not a path", None)
        path = posixpath.normpath(found)
        if path.startswith(("/", "../")) or "://" in found:
            hint = "shards lie beside their index or in folders there, so that they move together"
            raise self.error(index, "shard", f"is {_shown(found)}, which is not below the folder of the index", hint)
        return path

    def _samples(self, index: int, found: Any) -> int:
        if not isinstance(found, int) or isinstance(found, bool) or found < 0:
            raise self.error(index, "samples", f"is {_shown(found)}, not a number of rows", None)
        return found

    def _importance(self, index: int, found: Any) -> float | None:
        if isinstance(found, bool) or not (found is None or isinstance(found, int | float)):
            raise self.error(index, "importance", f"is {_shown(found)}, not a number", None)
        return found if found is not None and 0 < found < math.inf else None

    def _invalid(self, message: str, hint: str | None) -> InvalidData:
        return InvalidData(message, pointer=self._pointer, file=self._file.name, hint=hint)


def _shown(value: Any) -> str:
    return "missing" if value is None else shortened(json.dumps(value))
