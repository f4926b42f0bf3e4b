"""The shards of a dataset of files, under names that outlive the place of the files.

A shard of a file has the file's path as its name, and size and time as its version: a copy elsewhere is other data. A
source that knows more about the contents of its files gives names and version here, so that a run is resumed with the
same data in another place.
"""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from hostcore_builtin_plugins.sources.file_dataset import FileDataset
from hostcore_hookspecs import Shard


class RenamedShards:
    """A dataset of files whose shards have other names and versions.

    :param read: The dataset of the files.
    :param names: What the files are called in the shards' ids, by their names.
    :param version: Of all shards; it changes whenever the content of any file does.
    """

    def __init__(self, read: FileDataset, *, names: Mapping[str, str], version: str) -> None:
        self.schema: pa.Schema = read.schema
        self.allow_nulls = read.allow_nulls
        self._read = read
        self._shards = {}
        for shard in read.shards():
            file, _, number = shard.id.rpartition("#")
            renamed = Shard(id=f"{names[file]}#{number}", num_rows=shard.num_rows, version=version)
            self._shards[renamed.id] = (renamed, shard)

    def shards(self) -> Sequence[Shard]:
        """All shards, in the order of the files."""
        return [renamed for renamed, _ in self._shards.values()]

    def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
        """Read a shard. See :class:`hostcore_hookspecs.Dataset`."""
        _, own = self._shards[shard.id]
        return self._read.read_shard(own, columns, offset)
