"""The data source ``mock``: generated rows, for smoke runs of a trainer whose data is elsewhere."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from annotated_types import Ge

from hostcore_builtin_plugins.sources.columns import choose_columns
from hostcore_builtin_plugins.sources.file_dataset import job_pointer
from hostcore_hookspecs import DataContext, InvalidSettings, Shard

_BATCH_ROWS = 65_536
_TYPES = {"float32": pa.float32(), "int64": pa.int64(), "string": pa.string()}


def _default_types() -> Mapping[str, Literal["float32", "int64", "string"]]:
    return {"x": "float32", "y": "float32"}


class MockSource:
    """Opens a dataset of generated rows."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """Number and content of the rows."""

        num_rows: Annotated[int, Ge(1)] = attrs.field(default=1024, metadata={"help": "Rows, over all shards."})
        num_shards: Annotated[int, Ge(1)] = attrs.field(default=8, metadata={"help": "Shards; they decide the lanes."})
        types: Mapping[str, Literal["float32", "int64", "string"]] = attrs.field(
            factory=_default_types,
            metadata={
                "help": "The columns with their types. `float32` is uniform in [0, 1), `int64` in 0 to 1023, "
                "`string` is such as `x-17`."
            },
        )
        seed: Annotated[int, Ge(0)] = attrs.field(default=0, metadata={"help": "Decides the values."})

    def __init__(self, *, settings: Settings) -> None:
        if not settings.types:
            raise InvalidSettings("/types", "names no column")
        self._settings = settings

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> "MockDataset":
        """Nothing is opened: each value follows from the seed, its column and its row."""
        schema = pa.schema([pa.field(name, _TYPES[type_name]) for name, type_name in self._settings.types.items()])
        columns = dataset.get("columns") or ()
        return MockDataset(self._settings, choose_columns(schema, columns, pointer=f"{job_pointer(ctx)}/columns"))


class MockDataset:
    """Generated rows."""

    def __init__(self, settings: MockSource.Settings, schema: pa.Schema) -> None:
        self.schema = schema
        self._settings = settings
        rows, shards = settings.num_rows, settings.num_shards
        starts = [i * rows // shards for i in range(shards + 1)]
        self._starts = {f"mock#{i}": start for i, start in enumerate(starts)}
        self._shards = tuple(
            Shard(id=f"mock#{i}", num_rows=end - start, version=str(settings.seed))
            for i, (start, end) in enumerate(pairwise(starts))
            if end > start
        )

    def shards(self) -> Sequence[Shard]:
        """All shards, of sizes that differ by one row at most."""
        return self._shards

    def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
        """Generate the rest of a shard. See :class:`hostcore_hookspecs.Dataset`."""
        schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        start, end = self._starts[shard.id] + offset, self._starts[shard.id] + shard.num_rows
        for first in range(start, end, _BATCH_ROWS):
            rows = range(first, min(first + _BATCH_ROWS, end))
            arrays = [_values(self._settings.seed, field, rows) for field in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _values(seed: int, field: pa.Field, rows: range) -> pa.Array:
    bits = _random_bits(seed, field.name, rows)
    if field.type == pa.float32():
        fraction = pc.shift_right(bits, pa.scalar(40, pa.uint64()))  # 24 bits are what a float32 holds
        return pc.multiply(fraction.cast(pa.float32()), pa.scalar(2.0**-24, pa.float32()))
    number = pc.shift_right(bits, pa.scalar(54, pa.uint64())).cast(pa.int64())
    if field.type == pa.string():
        return pc.binary_join_element_wise(pa.scalar(field.name), number.cast(pa.string()), "-")
    return number


def _random_bits(seed: int, column: str, rows: range) -> pa.Array:
    """64 random bits for each row: SplitMix64 (Steele, Lea and Flood, 2014), whose n-th output needs no others."""
    key = int.from_bytes(hashlib.blake2b(f"{seed}/{column}".encode(), digest_size=8).digest(), "little")
    bits = pc.add(_wrapping_product(pa.array(rows, pa.uint64()), 0x9E3779B97F4A7C15), pa.scalar(key, pa.uint64()))
    bits = _wrapping_product(_fold(bits, 30), 0xBF58476D1CE4E5B9)
    bits = _wrapping_product(_fold(bits, 27), 0x94D049BB133111EB)
    return _fold(bits, 31)


def _wrapping_product(bits: pa.Array, factor: int) -> pa.Array:
    return pc.multiply(bits, pa.scalar(factor, pa.uint64()))  # modulo 2**64, as ``multiply`` does unchecked


def _fold(bits: pa.Array, shift: int) -> pa.Array:
    return pc.bit_wise_xor(bits, pc.shift_right(bits, pa.scalar(shift, pa.uint64())))
