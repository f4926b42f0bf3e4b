"""The data source ``indices``: the numbers of rows, for datasets that are read by index."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import attrs
import pyarrow as pa
from annotated_types import Ge

from hostcore_hookspecs import DataContext, InvalidData, Shard

#: The one column.
INDEX: Final = "index"
#: Metadata of the schema, which mark these batches.
MARK: Final = {b"hostcore.lightning": b"indices"}
SCHEMA: Final = pa.schema([pa.field(INDEX, pa.int64())], metadata=MARK)

#: 64 KiB of numbers. A larger dataset has several shards, so that it is shuffled across its whole length.
_SHARD_ROWS: Final = 8_192


class IndicesSource:
    """Opens a dataset whose rows are their own numbers, from 0."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """Number of rows, and what they are."""

        rows: Annotated[int, Ge(1)] = attrs.field(metadata={"help": "The length of the dataset that is read by index."})
        unit: str = attrs.field(default="", metadata={"help": "What the numbers are of, if not of rows."})

    def __init__(self, *, settings: Settings) -> None:
        self._settings = settings

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> "Indices":
        """Nothing is opened.

        :raises InvalidData: The job asks for another column.
        """
        for place, name in enumerate(dataset.get("columns") or ()):
            if name != INDEX:
                section = "dataset" if ctx.split == "train" else ctx.split
                raise InvalidData(
                    f"the data has no column {name!r}", pointer=f"/{section}/columns/{place}", hint=f"it has {INDEX!r}"
                )
        return Indices(self._settings.rows, self._settings.unit)


class Indices:
    """The numbers from 0 up to a number of rows, as the int64 column ``index``."""

    schema = SCHEMA

    def __init__(self, rows: int, unit: str = "") -> None:
        self.unit = unit
        starts = range(0, rows, _SHARD_ROWS)
        self._shards = [
            Shard(id=f"indices#{one}", num_rows=min(_SHARD_ROWS, rows - one), version="1") for one in starts
        ]

    def shards(self) -> Sequence[Shard]:
        """All shards, in order."""
        return self._shards

    def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - there is one
        """The rest of a shard. See :class:`hostcore_hookspecs.Dataset`."""
        start = int(shard.id.partition("#")[2])
        numbers = pa.array(range(start + offset, start + shard.num_rows), pa.int64())
        yield pa.RecordBatch.from_arrays([numbers], schema=SCHEMA)
