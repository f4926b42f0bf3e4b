"""A dataset whose library reads rows by their number: cut into shards of even size, each read from any row on.

Parquet can only be read a row group at a time, so its shards are what its writer made of it. A library that seeks to
any row leaves the size of a shard to us: small enough that a shuffle draws from many places, large enough that
opening a reader does not count.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import pyarrow as pa

from hostcore_builtin_plugins.sources.columns import choose_columns
from hostcore_builtin_plugins.sources.file_dataset import job_pointer, one_line
from hostcore_builtin_plugins.sources.layouts import plain_batches
from hostcore_builtin_plugins.sources.row_budget import MOST_ROWS, TARGET_BYTES
from hostcore_hookspecs import DataContext, InvalidData, Shard

#: Data of few rows has at least so many in a shard. Data of many has about so many shards, until one has ``MOST_ROWS``:
#: a shuffle draws from 24 places and wants four shards for each, and to begin a reader of Lance takes 2 ms.
_FEWEST_ROWS: Final = 1_024
_SHARDS: Final = 96
#: What columns that are stored as dictionaries or runs may take in a batch, as plain values.
_PLAIN_BYTES: Final = 4 << 20


@attrs.frozen(kw_only=True)
class RowPart:
    """Rows that the library counts from 0: a fragment of a table, or all of a dataset."""

    #: Stable and unique within the dataset.
    id: str
    num_rows: int
    #: Changes whenever the content does.
    version: str


@attrs.frozen(kw_only=True)
class Piece:
    """The rows of a shard."""

    part: int
    start: int


class RowReader(ABC):
    """Reads rows of a part by their numbers. Readers of several threads share it."""

    #: How messages name the data.
    name: str

    @abstractmethod
    def schema(self) -> pa.Schema:
        """All columns."""

    @abstractmethod
    def parts(self) -> Sequence[RowPart]:
        """All parts, in the order of the data."""

    @abstractmethod
    def read(self, part: int, columns: Sequence[str], start: int, num_rows: int) -> Iterator[pa.RecordBatch]:
        """Read rows of a part, in order.

        :param part: Its place in :meth:`parts`.
        :param columns: At least one, in any order.
        """


class IndexedDataset:
    """A dataset of rows that are read by their numbers.

    :param reader: Of the library.
    :param dataset: The job's settings of the dataset: its ``columns`` are read here.
    :param ctx: About the run.
    :param allow_nulls: Whether nulls in numeric columns are let through.
    :raises InvalidData: If a column is missing, or there are no rows.
    """

    def __init__(self, reader: RowReader, *, dataset: Mapping[str, Any], ctx: DataContext, allow_nulls: bool) -> None:
        self.allow_nulls = allow_nulls
        self._reader = reader
        pointer, columns = job_pointer(ctx), dataset.get("columns") or ()
        self.schema = choose_columns(reader.schema(), columns, pointer=f"{pointer}/columns", file=reader.name)
        parts = reader.parts()
        total = sum(part.num_rows for part in parts)
        if not total:
            raise InvalidData(f"{reader.name} has no rows", pointer=pointer, file=reader.name)
        rows = min(MOST_ROWS, max(_FEWEST_ROWS, -(-total // _SHARDS)))
        self._pieces: dict[str, Piece] = {}
        shards = []
        for place, part in enumerate(parts):
            for number, start in enumerate(range(0, part.num_rows, rows)):
                num_rows = min(rows, part.num_rows - start)
                shard = Shard(id=f"{part.id}#{number}", num_rows=num_rows, version=part.version)
                self._pieces[shard.id] = Piece(part=place, start=start)
                shards.append(shard)
        self._shards = tuple(shards)

    def shards(self) -> Sequence[Shard]:
        """All shards, in the order of the data."""
        return self._shards

    def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
        """Read a shard. See :class:`hostcore_hookspecs.Dataset`.

        :raises InvalidData: If the library cannot, or has another number of rows than before.
        """
        piece, left = self._pieces[shard.id], shard.num_rows - offset
        if not left:
            return
        schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        try:
            for batch in self._reader.read(piece.part, schema.names, piece.start + offset, left):
                left -= batch.num_rows
                yield from plain_batches(batch, schema, batch_bytes=_PLAIN_BYTES)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, ValueError, RuntimeError) as error:
            raise self._unreadable(shard, str(error)) from error
        if left:
            raise self._unreadable(shard, f"{shard.num_rows - left} rows instead of {shard.num_rows}")

    def _unreadable(self, shard: Shard, what: str) -> InvalidData:
        return InvalidData(
            f"the rows {shard.id} of {self._reader.name} cannot be read: {one_line(what)}",
            file=self._reader.name,
            hint="most likely its files are damaged, or were removed while the run was reading them",
        )


def rows_at_once(row_bytes: float) -> int:
    """Return the number of rows to read at once, for batches of about 2 MiB."""
    return max(1, min(MOST_ROWS, int(TARGET_BYTES / max(row_bytes, 1))))
