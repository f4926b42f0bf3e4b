"""The index of a dataset that is kept as shards: which files it has, how many samples each, and how important it is.

It is a JSON object::

    {"name": "flights", "records": [{"shard": "jan.parquet", "samples": 1200, "importance": 2.5}]}

``shard`` starts at the folder of the index and does not leave it. ``samples`` is the number of rows. ``importance`` may
be missing; what is no finite number above 0 counts as missing, too, and then ``samples`` stands in for it. Other keys
are for others.
"""

import json
import math
import posixpath
from collections.abc import Sequence
from typing import Any

import attrs

from hostcore_builtin_plugins.sources.file_dataset import shortened
from hostcore_builtin_plugins.sources.stores import DataFile, data_errors
from hostcore_hookspecs import InvalidData

#: An index of a million shards is smaller.
_MOST_BYTES = 256 << 20


@attrs.frozen(kw_only=True)
class ShardRecord:
    """One shard of the dataset."""

    #: A path below the folder of the index, without ``.`` and ``..``.
    shard: str
    #: Rows.
    samples: int
    #: None: there is none that counts.
    importance: float | None

    @property
    def weight(self) -> float:
        """What shards are ordered by."""
        return self.samples if self.importance is None else self.importance


def read_manifest(file: DataFile, *, pointer: str) -> tuple[ShardRecord, ...]:
    """Read an index.

    :param pointer: Where the job names it.
    :return: The shards in the order of the index.
    :raises InvalidData: If it is not an index, has no record, or names a shard twice.
    """
    manifest = _Manifest(file, pointer)
    records = tuple(manifest.record(i, found) for i, found in enumerate(manifest.records()))
    places: dict[str, int] = {}
    for i, record in enumerate(records):
        if record.shard in places:
            message = f"names {record.shard} again, which is /records/{places[record.shard]} already"
            raise manifest.error(i, "shard", message, "a dataset has each file once")
        places[record.shard] = i
    return records


def by_importance(records: Sequence[ShardRecord]) -> tuple[ShardRecord, ...]:
    """The most important shards first; those of one weight in the order of the index."""
    return tuple(sorted(records, key=lambda record: -record.weight))


class _Manifest:
    """An index that is being read."""

    def __init__(self, file: DataFile, pointer: str) -> None:
        self._file = file
        self._pointer = pointer

    def records(self) -> list[Any]:
        """What stands in ``records``."""
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

    def record(self, index: int, found: Any) -> ShardRecord:
        """One of them, checked."""
        if not isinstance(found, dict):
            raise self.error(index, "", "is not an object", None)
        return ShardRecord(
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
