"""The example's data, opened as the host opens it, and its rows as text, so that they can be compared."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.data_source import DataContext, Dataset, Shard

if TYPE_CHECKING:
    import pyarrow as pa

#: An example is small; a larger one would take minutes.
_MOST_ROWS: Final = 100_000
#: Batches without rows that are put up with, in one shard.
_MOST_EMPTY: Final = 1_000


@attrs.frozen(kw_only=True)
class Whole:
    """All data of the example."""

    shards: tuple[Shard, ...]
    #: The rows of each shard, as text.
    rows: tuple[list[str], ...]

    @property
    def all_rows(self) -> list[str]:
        """The rows of all shards, in order."""
        return [row for rows in self.rows for row in rows]


def example_settings(subject: Subject) -> dict[str, Any]:
    """The settings of the example with absolute paths, as a job's ``dataset`` has them."""
    from hostcore.job.paths import with_absolute_paths

    settings: dict[str, Any] = with_absolute_paths({"dataset": subject.settings}, subject.example.folder)["dataset"]
    return settings


def dataset_section(
    subject: Subject, *, settings: Mapping[str, Any] | None = None, columns: Sequence[str] = ()
) -> dict[str, Any]:
    """The ``dataset`` of a job that uses the example, as ``open_dataset`` gets it.

    :param settings: In place of those of the example; paths are absolute.
    :param columns: The job's ``columns``.
    """
    from hostcore.job.sections import DatasetSpec

    given = example_settings(subject) if settings is None else settings
    return DatasetSpec(settings=given, source=subject.qualified_name, columns=tuple(columns)).to_json()


def open_example(
    subject: Subject,
    *,
    settings: Mapping[str, Any] | None = None,
    section: Mapping[str, Any] | None = None,
    columns: Sequence[str] = (),
    rank: int = 0,
    world_size: int = 1,
) -> Dataset:
    """Open the data as the host does: a new component, the whole ``dataset`` of a job, a context.

    :param settings: In place of those of the example; paths are absolute.
    :param section: The job's ``dataset``, if it is not to be made of the others.
    :param columns: The job's ``columns``.
    """
    component = subject.component(example_settings(subject) if settings is None else settings)
    given = dataset_section(subject, settings=settings, columns=columns) if section is None else section
    cache = subject.shared("data_source.cache", lambda: subject.folder() / "cache")  # not there yet, as for a new user
    ctx = DataContext(cache_dir=str(cache), rank=rank, world_size=world_size)
    dataset: Dataset = subject.calls(component)["open_dataset"](given, ctx)
    return dataset


def read_batches(
    dataset: Dataset, shard: Shard, *, columns: Sequence[str] | None = None, offset: int = 0
) -> "Iterator[pa.RecordBatch]":
    """The batches of a shard, as they come; ends early when there are more rows than there can be.

    :raises ConformanceError: What comes is no RecordBatch, or nothing but empty ones comes.
    """
    import pyarrow as pa

    rows, empty = 0, 0
    for batch in dataset.read_shard(shard, columns, offset):
        if not isinstance(batch, pa.RecordBatch):
            raise ConformanceError(
                expected="read_shard to yield pyarrow.RecordBatch",
                got=f"a {type(batch).__module__}.{type(batch).__qualname__} from the shard {shard.id!r}",
                fix="Convert it: a Table has to_batches(), rows go into pyarrow.RecordBatch.from_pylist(rows, schema).",
            )
        rows += batch.num_rows
        empty += not batch.num_rows
        if empty > _MOST_EMPTY:
            raise ConformanceError(
                expected=f"the rows of the shard {shard.id!r}",
                got=f"more than {_MOST_EMPTY} batches without rows from read_shard",
                fix="End the iterator when there is no more to read.",
            )
        yield batch
        if rows > shard.num_rows:
            return


def rows_of(batch: "pa.RecordBatch") -> list[str]:
    """The rows of a batch as text: equal where the values are, NaN included."""
    names = batch.schema.names
    columns = [column.to_pylist() for column in batch.columns]
    return [
        ", ".join(f"{name}={value!r}" for name, value in zip(names, row, strict=True))
        for row in zip(*columns, strict=True)
    ]


def read_rows(dataset: Dataset, shard: Shard, *, columns: Sequence[str] | None = None, offset: int = 0) -> list[str]:
    """The rows of a shard from an offset on, as text."""
    return [row for batch in read_batches(dataset, shard, columns=columns, offset=offset) for row in rows_of(batch)]


def whole(subject: Subject) -> Whole:
    """All rows of the example, read once in a session.

    :raises NotApplicable: The example is too large for a check.
    """

    def read() -> Whole:
        dataset = open_example(subject)
        shards = tuple(dataset.shards())
        return Whole(shards=shards, rows=tuple(read_rows(dataset, shard) for shard in shards))

    require_small(subject)
    return subject.shared("data_source.whole", read)


def require_small(subject: Subject) -> None:
    """See that all of the example can be read in a moment.

    :raises NotApplicable: It cannot.
    """
    rows = subject.shared(
        "data_source.num_rows", lambda: sum(shard.num_rows for shard in open_example(subject).shards())
    )
    if rows > _MOST_ROWS:
        raise NotApplicable(f"the example has {rows:,} rows; give one of at most {_MOST_ROWS:,}", wants_example=True)


def telling_shards(shards: Sequence[Shard]) -> list[Shard]:
    """A few shards that stand for all: the first two, one in the middle, the last, and the largest."""
    filled = [shard for shard in shards if shard.num_rows]
    if len(filled) <= 5:
        return filled
    largest = max(range(len(filled)), key=lambda place: filled[place].num_rows)
    return [filled[place] for place in sorted({0, 1, len(filled) // 2, len(filled) - 1, largest})]


def first_unequal(expected: Sequence[str], found: Sequence[str]) -> str:
    """In words, where two lists of rows differ: for ``got``."""
    place = next((i for i, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), None)
    if place is None:
        return f"{len(found):,} rows instead of {len(expected):,}"
    return f"at row {place} ({shown(found[place])}) instead of ({shown(expected[place])})"


def shown(row: str) -> str:
    """A row as part of a sentence."""
    return row if len(row) <= 100 else f"{row[:99]}…"
