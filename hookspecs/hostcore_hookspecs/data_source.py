"""The data source contract: one method, which opens a dataset of shards.

The host owns the order, batching, shuffling, resuming and read-ahead; a source only lists shards and reads them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import attrs

from hostcore_hookspecs.markers import hookspec

if TYPE_CHECKING:
    import pyarrow as pa

REQUIRED = ("open_dataset",)


@attrs.frozen(kw_only=True)
class Shard:
    """The unit of seeking: a Parquet row group, a record batch of an Arrow file, a line range."""

    #: Stable and unique within the dataset: ``train.parquet#3``.
    id: str
    #: Exact.
    num_rows: int
    #: Changes whenever the content does: size and time of modification, or the store's ETag.
    version: str = ""


@attrs.frozen(kw_only=True)
class MixtureStage:
    """Weights of a mixture's parts up to a step of the run."""

    #: The last step that they hold for, counted from 1.
    until: int
    #: One for each part: 0, or at least 1/65,536 of their sum.
    weights: tuple[float, ...]


@attrs.frozen(kw_only=True)
class Mixture:
    """Proportions in which the host draws the rows of a dataset from its parts: the shards, cut into stretches."""

    #: The parts, by name, as their shards follow each other.
    names: tuple[str, ...]
    #: Shards of each part, which have a row at least.
    shards: tuple[int, ...]
    #: Of each part, at least 1/65,536 of their sum, which need not be 1. They hold behind the last stage.
    weights: tuple[float, ...]
    stages: tuple[MixtureStage, ...] = ()
    #: What becomes of a part without further rows: another pass over it in another order (``repeat``: an epoch ends
    #: when each part was read once; ``stop``: when the first was), or the other parts share its place (``drop``).
    exhausted: Literal["repeat", "stop", "drop"] = "repeat"


class Dataset(Protocol):
    """An opened dataset.

    A source may also set ``allow_nulls = True`` on it: then nulls in numeric columns are let through. ``unit``, such as
    ``batches of an iterable``, names rows that stand for something else, which only what reads them can give again:
    ``hostcore verify`` reports that these were counted. With ``mixture``,
    a :class:`Mixture`, training draws rows from parts of the dataset in proportions.
    """

    @property
    def schema(self) -> "pa.Schema":
        """The columns of the batches, with their types: the job's ``columns``, in that order, or all."""

    def shards(self) -> Sequence[Shard]:
        """All shards, in file order."""

    def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> "Iterator[pa.RecordBatch]":
        """Read a shard.

        :param shard: One of :meth:`shards`.
        :param columns: The columns to read; None for all.
        :param offset: The row of the shard to start at.
        :return: Batches of any size that together are the rest of the shard, in order.
        """


@attrs.frozen(kw_only=True)
class DatasetPart:
    """Part of a mixture as the job has it under ``of``, opened by its own source."""

    name: str
    weight: float
    dataset: Dataset


@attrs.frozen(kw_only=True)
class DataContext:
    """Context of a data source, and of a trainer that brings its data."""

    seed: int = 0
    rank: int = 0
    world_size: int = 1
    #: A folder to keep downloads in, shared by runs; absolute, and not there before a data source makes it.
    cache_dir: str = ""
    #: ``train``, ``validation`` or ``test``.
    split: str = "train"
    #: The run directory, absolute: what a data source notes there, such as the version of a table, it finds when the
    #: run is resumed. Of this machine alone, if the machines of a run share no folder. Empty in a context made by hand.
    run_dir: str = ""
    #: What the job has under ``of`` beside the source, opened; empty for a source of its own data.
    parts: tuple[DatasetPart, ...] = ()


@hookspec(firstresult=True)
def open_dataset(dataset: Mapping[str, Any], ctx: DataContext) -> Dataset:
    """Called once per split and rank, before the trainer is set up.

    Settings of the source's own arrive in its constructor (``settings``), if it declares ``Settings``.

    :param dataset: The job's ``dataset`` (or ``validation``, ``test``) as given, by it or by its trainer; paths are
        absolute.
    :param ctx: About the run.
    :raises InvalidData: When the data is missing or does not fit the settings.
    :raises Exception: The job is invalid as well, with the exception and its place in the source's code.
    """
