"""That the data can be opened, and that its batches have the columns and types that it promises."""

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hostcore_conformance.check import check
from hostcore_conformance.checks.data_source.stage import (
    dataset_section,
    first_unequal,
    open_example,
    read_batches,
    read_rows,
    require_small,
    rows_of,
    telling_shards,
    whole,
)
from hostcore_conformance.differences import in_words
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.data_source import Dataset
from hostcore_hookspecs.errors import HostcoreError

if TYPE_CHECKING:
    import pyarrow as pa

_NO_SUCH_COLUMN = "no_such_column"


@check("data_source.opens")
def opens(subject: Subject) -> None:
    """The example's data is opened.

    The source is constructed with the settings of its example, and open_dataset is called with the whole dataset
    section of a job, all paths absolute, and a DataContext whose cache_dir does not exist yet. It returns an object
    with schema (a pyarrow.Schema of at least one column), shards() and read_shard(shard, columns, offset). The section
    belongs to the job: it must be as it was afterwards.

    A source that needs files to open names them in its example: settings = { paths = ["tests/data"] } in
    [tool.hostcore.conformance.NAME]; relative paths start at the folder of that pyproject.toml.
    """
    import pyarrow as pa

    given = dataset_section(subject)
    before = copy.deepcopy(given)
    dataset = open_example(subject, section=given)
    changed = in_words(before, given, "dataset")
    if changed:
        raise ConformanceError(
            expected="open_dataset to leave the job's dataset as it is",
            got=f"{changed} (before, after)",
            fix="Copy what you change: dict(dataset).",
        )
    missing = [name for name in ("shards", "read_shard") if not callable(getattr(dataset, name, None))]
    if missing or not isinstance(getattr(dataset, "schema", None), pa.Schema) or not dataset.schema.names:
        found = getattr(dataset, "schema", None)
        kind = f"a schema with {len(found)} columns" if isinstance(found, pa.Schema) else f"the schema {found!r}"
        raise ConformanceError(
            expected="a dataset with the attribute schema and the methods shards and read_shard",
            got=f"a {type(dataset).__name__} with {kind}" + "".join(f", without {name}" for name in missing),
            fix="See hostcore_hookspecs.data_source.Dataset.",
        )


@check("data_source.schema", requires=("data_source.opens",))
def schema(subject: Subject) -> None:
    """Every batch has the schema that the dataset promises.

    All shards of the example are read. Every batch must be a pyarrow.RecordBatch with exactly the columns of
    dataset.schema, in that order and with those types. The host joins the batches of different shards, and plans memory
    by the schema, before it has read any.

    What usually breaks it: types that are inferred for each file or batch anew, so that a column without fractions
    comes as int64, or one without values as null. Find the types once, when the data is opened, and convert to them.
    """
    dataset = open_example(subject)
    require_small(subject)
    for shard in dataset.shards():
        for batch in read_batches(dataset, shard):
            _require_schema(batch.schema, dataset.schema, f"a batch of the shard {shard.id!r}")


def _require_schema(found: "pa.Schema", promised: "pa.Schema", what: str) -> None:
    if found.equals(promised, check_metadata=False):
        return
    if found.names != promised.names:
        got = f"the columns {found.names}"
        expected = f"the columns {promised.names}"
    else:
        name, other, own = next(
            (a.name, a, b) for a, b in zip(found, promised, strict=True) if not a.equals(b, check_metadata=False)
        )
        got = f"{name!r} as {_type(other)}"
        expected = f"{name!r} as {_type(own)}"
    raise ConformanceError(
        expected=f"{expected} in {what}, as in dataset.schema",
        got=got,
        fix="Make every batch with the schema of the dataset: pyarrow.RecordBatch.from_arrays(arrays, schema=schema).",
    )


def _type(field: "pa.Field") -> str:
    return f"{field.type}" + ("" if field.nullable else " not null")


@check("data_source.columns", requires=("data_source.schema", "data_source.num_rows"))
def columns(subject: Subject) -> None:
    """A job's columns are the ones that are read, in the order that the job names them.

    The data is opened with its columns in reverse, without the first, and with the last alone. Both the schema and the
    batches must follow, and the values be those of the whole. Read_shard is asked for these columns too; on a dataset
    that was opened with all of them, for a single one.

    What usually breaks it: columns are read in the order of the file, as readers of Parquet and Arrow like to do.
    """
    names = open_example(subject).schema.names
    choices = {tuple(reversed(names)), tuple(names[1:]), (names[-1],)} - {()}
    for chosen in sorted(choices, key=len):
        dataset = open_example(subject, columns=chosen)
        if dataset.schema.names != list(chosen):
            raise ConformanceError(
                expected=f"dataset.schema to have the job's columns, {list(chosen)}",
                got=f"{dataset.schema.names}",
                fix='Choose them in open_dataset: dataset.get("columns") or all, in that order.',
            )
        _require_columns(subject, dataset, chosen)
    _require_columns(subject, open_example(subject), (names[-1],))


def _require_columns(subject: Subject, dataset: Dataset, chosen: Sequence[str]) -> None:
    import pyarrow as pa

    promised = pa.schema([dataset.schema.field(name) for name in chosen])
    everything = open_example(subject)
    own = {shard.id: shard for shard in dataset.shards()}
    for shard in telling_shards(everything.shards())[:2]:
        if shard.id not in own:
            raise ConformanceError(
                expected=f"the same shards whatever the columns, {shard.id!r} among them",
                got=f"with the columns {list(chosen)} the shards {list(own)[:5]}",
                fix="Derive the ids from the data alone.",
            )
        expected = [row for batch in read_batches(everything, shard) for row in _rows_of_columns(batch, chosen)]
        found = []
        for batch in read_batches(dataset, own[shard.id], columns=tuple(chosen)):
            _require_schema(batch.schema, promised, f"a batch read with the columns {list(chosen)}")
            found += _rows_of_columns(batch, chosen)
        if found != expected:
            raise ConformanceError(
                expected=f"the values of the columns {list(chosen)} to be those of the whole",
                got=f"{first_unequal(expected, found)} in the shard {shard.id!r}",
                fix="Pick the columns by their names, not by their places.",
            )


def _rows_of_columns(batch: "pa.RecordBatch", chosen: Sequence[str]) -> list[str]:
    return rows_of(batch.select(list(chosen)))


@check("data_source.unknown_column", requires=("data_source.opens",))
def unknown_column(subject: Subject) -> None:
    """A column that is not in the data is refused by its name when the data is opened.

    The data is opened with columns = ["no_such_column"]. The host opens all data before the first step, so that a
    mistake in a job is reported at once, as one line; an error in the first read would come after the model is built,
    and a KeyError or a library's own exception would be shown as a defect of the source, with its traceback.

    Raise InvalidData (hostcore_hookspecs) from open_dataset, with the name, and the columns that there are as the hint.
    """
    try:
        open_example(subject, columns=(_NO_SUCH_COLUMN,))
    except HostcoreError as error:
        told = f"{error} {error.hint or ''}"
        if _NO_SUCH_COLUMN in told:
            return
        got = f"{type(error).__name__}: {told.strip()}"
    except Exception as error:  # noqa: BLE001 - reported with the exception to raise instead
        got = f"{type(error).__name__}: {error}"
    else:
        got = "no error"
    raise ConformanceError(
        expected=f'InvalidData from open_dataset about columns ["{_NO_SUCH_COLUMN}"], with that name',
        got=got,
        fix='Compare dataset.get("columns") with the columns that there are, and raise InvalidData(f"the data has no'
        ' column {name!r}", hint=…).',
    )


@check("data_source.nulls", requires=("data_source.schema",))
def nulls(subject: Subject) -> None:
    """Missing numbers are let through only where the dataset allows them.

    All shards of the example are read as the feed reads them: a null in a column of numbers is an error, unless the
    dataset has allow_nulls = True. A model would take a missing number for whatever lies in that memory. The attribute
    is a bool; most sources offer it as a setting of the same name, false by default.

    What usually breaks it: a source that cannot have nulls makes some, such as for empty cells of a table.
    """
    from hostcore.worker.feed.order import in_file_order
    from hostcore.worker.feed.reading import range_reader

    dataset = open_example(subject)
    require_small(subject)
    declared = getattr(dataset, "allow_nulls", False)
    if not isinstance(declared, bool):
        raise ConformanceError(
            expected="allow_nulls of the dataset to be True or False",
            got=f"{declared!r}",
            fix="Assign a bool.",
        )
    shards = [shard for shard in dataset.shards() if shard.num_rows]
    try:
        for _ in range_reader(dataset, shards, None)(in_file_order([shard.num_rows for shard in shards], 0)):
            pass
    except HostcoreError as error:
        raise ConformanceError(
            expected="no missing numbers, or allow_nulls = True on the dataset",
            got=str(error),
            fix="Fill or refuse them, or let users say allow_nulls, and set it on the dataset.",
        ) from error


@check("data_source.same_on_every_rank", requires=("data_source.num_rows",))
def same_on_every_rank(subject: Subject) -> None:
    """Every rank is given the whole dataset.

    The data is opened as rank 1 of 2. Shards and rows must be those that a single rank gets. The host gives each rank
    its share of the rows, on any number of ranks in the same order; a source that takes a share by ctx.rank as well
    loses rows without a word.
    """
    expected = whole(subject)
    dataset = open_example(subject, rank=1, world_size=2)
    shards = tuple(dataset.shards())
    if [(one.id, one.num_rows) for one in shards] != [(one.id, one.num_rows) for one in expected.shards]:
        raise ConformanceError(
            expected=f"{len(expected.shards)} shards with {len(expected.all_rows)} rows on rank 1 of 2, as on one rank",
            got=f"{len(shards)} shards with {sum(one.num_rows for one in shards)} rows",
            fix="List everything on every rank, whatever ctx.rank and ctx.world_size are; the host divides it.",
        )
    for shard, rows in zip(shards, expected.rows, strict=True):
        found = read_rows(dataset, shard)
        if found != rows:
            raise ConformanceError(
                expected=f"the rows of the shard {shard.id!r} on rank 1 of 2 to be those of one rank",
                got=first_unequal(rows, found),
                fix="Do not use ctx.rank when you read; the host divides the rows.",
            )
