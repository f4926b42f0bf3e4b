"""The data source ``lance``: one version of a Lance table. Any row is read without those before it."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import pyarrow as pa

from hostcore_builtin_plugins.extras import require
from hostcore_builtin_plugins.sources.file_dataset import job_pointer, one_line
from hostcore_hookspecs import DataContext, InvalidData, InvalidSettings
from hostcore_sources.indexed_rows import IndexedDataset, RowPart, RowReader, rows_at_once
from hostcore_sources.table_version import TableSettings, version_of_run

if TYPE_CHECKING:
    from lance import LanceDataset, LanceFragment

#: Batches that Lance decodes ahead of a reader. The feed reads up to 24 places side by side, and itself reads ahead.
_READAHEAD: Final = 2
#: Values in memory may take so many times what they take in the file.
_COMPRESSION: Final = 4
_SHOWN_VERSIONS: Final = 5


class LanceSource:
    """Opens a Lance table as a dataset."""

    @attrs.frozen(kw_only=True)
    class Settings(TableSettings):
        """Table and version."""

        tag: str = attrs.field(
            default="", metadata={"help": "In place of `version`: the tag of one, looked up when the run begins."}
        )

    def __init__(self, *, settings: Settings) -> None:
        settings.check()
        if settings.tag and settings.version is not None:
            raise InvalidSettings("/tag", "there is a version already: give one of both")
        require("lance", extra="lance")
        self._settings = settings

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> IndexedDataset:
        """Open the version of the run."""
        settings, pointer = self._settings, job_pointer(ctx)
        newest = _open(settings, pointer)
        version = settings.version
        if version is None:
            asked = {"source": "lance", "table": settings.location, "tag": settings.tag}
            version = version_of_run(ctx, asked, lambda: _chosen(newest, settings, pointer))
        reader = LanceReader(_at_version(newest, version, settings, pointer), settings.location)
        return IndexedDataset(reader, dataset=dataset, ctx=ctx, allow_nulls=settings.allow_nulls)


class LanceReader(RowReader):
    """Reads a version of a table. Its fragments are the parts: rows that were written together."""

    def __init__(self, table: "LanceDataset", name: str) -> None:
        self.name = name
        self._table = table
        self._fragments: Sequence[LanceFragment] = table.get_fragments()

    def schema(self) -> pa.Schema:
        """See :class:`RowReader`."""
        return self._table.schema

    def parts(self) -> Sequence[RowPart]:
        """See :class:`RowReader`."""
        return [
            RowPart(
                id=f"fragment-{fragment.fragment_id}",
                num_rows=fragment.count_rows(),
                version=f"{self._table.version}-{_digest(fragment)}",
            )
            for fragment in self._fragments
        ]

    def read(self, part: int, columns: Sequence[str], start: int, num_rows: int) -> Iterator[pa.RecordBatch]:
        """See :class:`RowReader`."""
        fragment = self._fragments[part]
        stored = sum(file.file_size_bytes or 0 for file in fragment.data_files())
        scanner = fragment.scanner(
            columns=list(columns),
            offset=start,
            limit=num_rows,
            batch_size=rows_at_once(_COMPRESSION * stored / max(1, fragment.physical_rows)),
            batch_readahead=_READAHEAD,
        )
        yield from scanner.to_batches()


def _digest(fragment: "LanceFragment") -> str:
    """Return a digest of a fragment's rows: of its files, whose names Lance never gives twice, and of deleted rows."""
    deleted = fragment.deletion_file()
    files = [file.path for file in fragment.data_files()]
    return hashlib.sha256(repr([files, deleted, fragment.num_deletions]).encode()).hexdigest()[:16]


def _open(settings: TableSettings, pointer: str) -> "LanceDataset":
    import lance

    name = settings.location
    if settings.path is not None and not settings.path.is_dir():
        what = "is a file, and a Lance table is a folder" if settings.path.exists() else "does not exist"
        raise InvalidData(f"{name} {what}", pointer=f"{pointer}/path", file=name)
    try:
        return lance.dataset(name, storage_options=dict(settings.storage_options) or None)
    except (ValueError, OSError) as error:
        raise InvalidData(
            f"{name} is not a Lance table: {_plain(error)}",
            pointer=f"{pointer}/{settings.key}",
            file=name,
            hint="a Lance table is a folder with _versions and data in it; lance.write_dataset makes one",
        ) from error


def _chosen(newest: "LanceDataset", settings: "LanceSource.Settings", pointer: str) -> int:
    """The version that the job's tag has now, or the newest."""
    if not settings.tag:
        return int(newest.version)
    tags = newest.tags.list()
    if settings.tag not in tags:
        known = ", ".join(sorted(tags))
        raise InvalidData(
            f"{settings.location} has no tag {settings.tag!r}",
            pointer=f"{pointer}/tag",
            file=settings.location,
            hint=f"its tags are {known}" if known else "it has no tags",
        )
    return int(tags[settings.tag]["version"])


def _at_version(newest: "LanceDataset", version: int, settings: TableSettings, pointer: str) -> "LanceDataset":
    if version == newest.version:
        return newest
    try:
        return newest.checkout_version(version)
    except (ValueError, OSError) as error:
        versions = [one["version"] for one in newest.versions()]
        listed = ", ".join(map(str, versions[-_SHOWN_VERSIONS:]))
        raise InvalidData(
            f"version {version} of {settings.location} is not there, or not any more",
            pointer=f"{pointer}/version",
            file=settings.location,
            hint=f"the newest versions are {listed}; cleanup_old_versions removes old ones, but not those with a tag",
        ) from error


def _plain(error: Exception) -> str:
    """A message of Lance, without the places in its sources."""
    return one_line(str(error)).split(", /", 1)[0].rstrip()
