"""Reading runs of rows from a dataset, with a check of what comes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import attrs
import numpy as np
import pyarrow as pa

from hostcore.worker.feed.order import RowRange
from hostcore_hookspecs.errors import InvalidData

if TYPE_CHECKING:
    from hostcore_hookspecs.data_source import Dataset, Shard


@attrs.frozen(kw_only=True)
class Rows:
    """Consecutive rows, as a source delivered them."""

    #: The number of the first one, counted through all shards in file order.
    first: int
    batch: pa.RecordBatch
    #: What they take in memory.
    nbytes: int

    def part(self, start: int, stop: int) -> "Rows":
        """Some of them; each is taken to be as large as the others."""
        rows = stop - start
        return Rows(
            first=self.first + start,
            batch=self.batch.slice(start, rows),
            nbytes=self.nbytes * rows // self.batch.num_rows,
        )


ReadRanges = Callable[[Iterable[RowRange]], Iterator[Rows]]


class ReadingStopped(Exception):
    """Raised by a reader between two pieces of data, when these are not wanted any more."""


def never() -> bool:
    """Without a stop request."""
    return False


def range_reader(
    dataset: "Dataset",
    shards: "Sequence[Shard]",
    columns: Sequence[str] | None,
    unwanted: Callable[[], bool] = never,
    first_row: int = 0,
) -> ReadRanges:
    """A function that reads runs of rows from a dataset, one after the other, and checks what comes.

    It raises :class:`InvalidData` for a null in a numeric column and for a shard with fewer rows than it promised;
    :class:`ReadingStopped` when the rows are not wanted any more.

    :param unwanted: Whether to stop; asked before every piece that the source reads.
    :param first_row: The number of the first row of the shards.
    """
    allow_nulls = getattr(dataset, "allow_nulls", False)
    measure: Callable[[pa.RecordBatch], int] | None = None
    starts = np.cumsum([first_row, *(shard.num_rows for shard in shards)]).tolist()

    def read(ranges: Iterable[RowRange]) -> Iterator[Rows]:
        nonlocal measure
        for part in ranges:
            shard, left = shards[part.shard], part.rows
            end = starts[part.shard] + part.start + part.rows
            for batch in dataset.read_shard(shard, columns, part.start):
                if unwanted():
                    raise ReadingStopped
                if not batch.num_rows:
                    continue
                if not allow_nulls:
                    _refuse_nulls(batch, shard)
                measure = measure or _measure_of(batch.schema)
                rows = Rows(first=end - left, batch=batch, nbytes=measure(batch))
                yield rows if batch.num_rows <= left else rows.part(0, left)
                left -= min(left, batch.num_rows)
                if not left:
                    break
            if left:
                raise InvalidData(
                    f"shard {shard.id} ended {left:,} rows early: it has fewer than the {shard.num_rows:,} it promised",
                    hint="the data changed while it was read, or the data source counts wrongly",
                )

    return read


def _measure_of(schema: pa.Schema) -> Callable[[pa.RecordBatch], int]:
    """Return a measure of batches' memory: by their rows, but for columns whose rows are not all of one size.

    ``RecordBatch.nbytes`` would take 2 µs a column.
    """
    bits = sum(kind.bit_width for kind in schema.types if pa.types.is_primitive(kind))
    varying = [place for place, kind in enumerate(schema.types) if not pa.types.is_primitive(kind)]
    return lambda batch: batch.num_rows * bits // 8 + sum(batch.column(place).nbytes for place in varying)


def _refuse_nulls(batch: pa.RecordBatch, shard: "Shard") -> None:
    for field, column in zip(batch.schema, batch.columns, strict=True):
        for name, count in _missing_numbers(field.name, column):
            raise InvalidData(
                f"column {name!r} has {count:,} nulls in {shard.id}, and a number cannot be missing",
                pointer="/dataset",
                hint="fill or drop them when the data is made, leave the column out of dataset.columns, "
                "or set dataset.allow_nulls if the data source has it and the trainer copes",
            )


def _missing_numbers(name: str, column: pa.Array) -> Iterator[tuple[str, int]]:
    """The columns of numbers that have nulls, and how many; also in structs and lists. A missing list is no number."""
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        yield from _missing_numbers(name, column.storage)
    elif pa.types.is_struct(kind):
        for field, values in zip(kind, column.flatten(), strict=True):  # a missing struct's fields are missing
            yield from _missing_numbers(f"{name}.{field.name}", values)
    elif pa.types.is_fixed_size_list(kind):
        if column.null_count and _is_numeric(kind):
            yield name, column.null_count
        yield from _missing_numbers(name, column.flatten())
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _missing_numbers(name, column.flatten())
    elif column.null_count and _is_numeric(kind):
        yield name, column.null_count


def _is_numeric(kind: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(kind):
        return _is_numeric(kind.value_type)
    kinds = pa.types
    return any(is_kind(kind) for is_kind in (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_decimal))
