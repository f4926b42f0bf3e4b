"""Which columns of its files a dataset has."""

import difflib
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as kinds

from hostcore_builtin_plugins.sources.files import DataFile
from hostcore_builtin_plugins.sources.layouts import plain_type
from hostcore_hookspecs import InvalidData


def choose_columns(schema: pa.Schema, columns: Sequence[str], *, pointer: str, file: str | None = None) -> pa.Schema:
    """The requested columns in the requested order, or all, with the types that they have in batches.

    Names and types only: the metadata of columns may differ from file to file.

    :param schema: All columns that there are.
    :param pointer: Where the job has ``columns``.
    :param file: The file that has them, if it is one.
    :raises InvalidData: If a column is missing, or there twice, or of a type that rows cannot be gathered of.
    """
    owner = file or "the data"
    for i, name in enumerate(columns):
        if name not in schema.names:
            hint = closest_column(name, schema.names)
            raise InvalidData(f"{owner} has no column {name!r}", pointer=f"{pointer}/{i}", file=file, hint=hint)
    chosen = list(columns) or schema.names
    ambiguous = next((name for name in chosen if schema.get_field_index(name) == -1), None)
    if ambiguous is not None:
        raise InvalidData(f"{owner} has several columns called {ambiguous!r}", pointer=pointer, file=file)
    repeated = next((name for name, count in Counter(chosen).items() if count > 1), None)
    if repeated is not None:
        raise InvalidData(f"column {repeated!r} is named twice", pointer=pointer, hint="name each column once")
    for name in chosen:
        _require_gatherable(schema.field(name), owner, pointer, file)
    return pa.schema([pa.field(name, plain_type(schema.field(name).type)) for name in chosen])


def require_partitions(file: DataFile, schema: pa.Schema, columns: Sequence[str], *, pointer: str) -> None:
    """Refuse a file without a column that the names of its folders have, unless the job reads others alone.

    :param columns: Those that the job names.
    :param pointer: Where the job has its dataset.
    :raises InvalidData: With the folder.
    """
    for folder in file.partitions:
        name = folder.partition("=")[0]
        if name not in schema.names and (not columns or name in columns):
            raise InvalidData(
                f"{file.name} lies in a folder {folder}, and has no column {name!r} itself",
                pointer=pointer,
                file=file.name,
                hint=f"no columns are read out of the names of folders ({name}=…): write {name!r} into the files, "
                "or name the columns that are in them in 'columns'",
            )


def with_typed_nulls(schemas: Sequence[pa.Schema]) -> list[pa.Schema]:
    """Give columns that have nothing but nulls in some files the type that they have in others, also inside lists."""
    known: dict[str, pa.DataType] = {}
    for field in (field for schema in schemas for field in schema):
        known[field.name] = _with_values(known.get(field.name, pa.null()), plain_type(field.type))
    return [
        pa.schema([field.with_type(_with_values(field.type, known[field.name])) for field in schema], schema.metadata)
        for schema in schemas
    ]


def _with_values(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if kinds.is_null(one):
        return other
    if kinds.is_list(one) and kinds.is_list(other):
        return pa.list_(_with_values(one.value_type, other.value_type))
    return one


def require_same_columns(
    first: DataFile, chosen: pa.Schema, schema: pa.Schema, file: DataFile, *, exact: bool, hint: str
) -> None:
    """Raise :class:`InvalidData` with the first difference between a file and the first one of the dataset.

    :param chosen: The columns of the first file that are read.
    :param schema: All columns of the other file. Their order does not matter.
    :param exact: Whether it may have no columns beyond those.
    :param hint: What to do about a difference.
    """
    difference = None
    for field in chosen:
        if schema.get_field_index(field.name) == -1:
            often = "several times" if field.name in schema.names else "not"
            difference = f"column {field.name!r} is in {first.name} and {often} in {file.name}"
        elif (other := plain_type(schema.field(field.name).type)) != field.type:
            difference = f"column {field.name!r} is {field.type} in {first.name} and {other} in {file.name}"
            if kinds.is_null(other) or kinds.is_null(field.type):
                hint = f"{field.name!r} has nothing but nulls where it is null: set dataset.allow_nulls, {hint}"
        if difference:
            break
    extra = [name for name in schema.names if name not in chosen.names] if exact and not difference else []
    if extra:
        difference = f"column {extra[0]!r} is in {file.name} and not in {first.name}"
    if difference:
        raise InvalidData(
            f"the files of the dataset differ: {difference}",
            file=file.name,
            hint=hint,
        )


def _require_gatherable(field: pa.Field, owner: str, pointer: str, file: str | None) -> None:
    """Refuse a type now that would fail in the middle of a shuffled run."""
    rows = pa.RecordBatch.from_arrays([pa.nulls(0, plain_type(field.type))], names=[field.name])
    try:
        pa.concat_batches([rows, rows]).take(pa.nulls(0, pa.int64()))
    except pa.ArrowNotImplementedError as error:
        raise InvalidData(
            f"column {field.name!r} of {owner} is {field.type}, whose rows cannot be put in another order",
            pointer=pointer,
            file=file,
            hint="write the column as another type, or leave it out of 'columns'",
        ) from error


def closest_column(name: str, names: Sequence[str]) -> str:
    """Return the hint about a missing column: the existing ones."""
    listed = ", ".join(names[:40]) + (", …" if len(names) > 40 else "")
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return (f"did you mean {' or '.join(map(repr, close))}? " if close else "") + f"its columns are: {listed}"
