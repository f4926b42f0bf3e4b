"""The types of columns of text: those that a job declares by name, and those that fit all values that were seen."""

import difflib
import re
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from hostcore_hookspecs import InvalidSettings

_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_TIMESTAMPS = {
    f"timestamp[{unit}{zone}]": pa.timestamp(unit, "UTC" if zone else None)
    for zone in ("", ", tz=UTC")
    for unit in ("s", "ms", "us", "ns")
}
#: Types that both formats have.
SCALARS: Mapping[str, pa.DataType] = {
    **{name: pa.type_for_alias(name) for name in ("bool", *_INTEGERS, "float32", "float64")},
    **{name: pa.type_for_alias(name) for name in ("string", "large_string", "binary", "date32")},
    **_TIMESTAMPS,
}
#: Types that only CSV has.
TIMES: Mapping[str, pa.DataType] = {
    name: pa.type_for_alias(name) for name in ("time32[s]", "time32[ms]", "time64[us]", "time64[ns]")
}

_LIST = re.compile(r"(?:(list)|fixed_size_list)<(.+)>(?:\[([1-9]\d{0,8})\])?")
#: Lists in lists, at most.
_MOST_LISTS = 8
#: 0 and 1 are numbers: a column must not be one or the other by what else is in it.
TRUE, FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
#: The types of CSV: a column has the first that fits all its values.
CSV_KINDS: Sequence[pa.DataType] = (
    *(pa.null(), pa.int64(), pa.bool_(), pa.date32(), pa.time32("s")),
    *(pa.timestamp(unit, zone) for unit in ("s", "ns") for zone in (None, "UTC")),
    *(pa.float64(), pa.string()),
)
#: Arrow goes through all values even if the first one does not fit.
_FIRST_VALUES = 16
_TIME = r"^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?$"
#: Of a column of CSV: names of all types that fit its values.
_FITTING = b"hostcore.fitting"


def named_types(types: Mapping[str, str], scalars: Mapping[str, pa.DataType], *, lists: bool) -> dict[str, pa.DataType]:
    """The types that a job declares for columns.

    :param types: Names of types by names of columns.
    :param scalars: Those there are.
    :param lists: Whether there are ``list<T>`` and ``fixed_size_list<T>[n]`` as well.
    :raises InvalidSettings: If there is no type of such a name.
    """
    found = {}
    for column, name in types.items():
        kind = _named_type(name.strip(), scalars, _MOST_LISTS if lists else 0)
        if kind is None:
            close = difflib.get_close_matches(name, scalars, n=2)
            nested = (", list<T>", ", fixed_size_list<T>[n]") if lists else ()
            hint = f"did you mean {' or '.join(close)}? " if close else ""
            raise InvalidSettings(
                f"/types/{escaped(column)}",
                f"{name!r} is not the name of a type",
                hint=f"{hint}there are {', '.join(name for name in scalars if 'tz=' not in name)}{''.join(nested)}",
            )
        found[column] = kind
    return found


def escaped(key: str) -> str:
    """A key as part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def _named_type(name: str, scalars: Mapping[str, pa.DataType], lists: int) -> pa.DataType | None:
    if name in scalars:
        return scalars[name]
    found = _LIST.fullmatch(name) if lists else None
    if found is None or bool(found[1]) == bool(found[3]):
        return None
    values = _named_type(found[2].strip(), scalars, lists - 1)
    return values and pa.list_(values, int(found[3]) if found[3] else -1)


def csv_kinds(values: pa.StringArray, kinds_left: Sequence[pa.DataType]) -> Sequence[pa.DataType]:
    """Return the types, of those that are left, that fit some more values as well.

    :param values: Fields of CSV without those that mean null.
    """
    first = values.slice(0, _FIRST_VALUES)
    return [kind for kind in kinds_left if _fits(first, kind) and _fits(values, kind)]


def _fits(values: pa.StringArray, kind: pa.DataType) -> bool:
    if kind == pa.string():
        return True
    if not len(values) or kinds.is_null(kind):
        return not len(values)
    if kinds.is_boolean(kind):
        return bool(pc.all(pc.is_in(values, pa.array([*TRUE, *FALSE]))).as_py())
    # Arrow's reader of CSV trims all values but timestamps.
    values = values if kinds.is_timestamp(kind) else pc.ascii_trim(values, " \t")
    if kinds.is_time(kind):
        return bool(pc.all(pc.match_substring_regex(values, _TIME)).as_py())
    try:
        pc.cast(values, kind)
    except pa.ArrowInvalid:
        return False
    return True


def csv_field(name: str, kinds_left: Sequence[pa.DataType]) -> pa.Field:
    """Return a column of the first of the types that fit its values; the others are kept for :func:`joined_csv`."""
    return pa.field(name, kinds_left[0], metadata={_FITTING: "\n".join(map(str, kinds_left))})


def joined_csv(one: pa.Field, other: pa.Field) -> pa.Field:
    """Return a column of two files with the first type that fits the values of both.

    :raises TypesDiffer: If that is strings, and in one of them it is not.
    """
    if not (one.metadata and other.metadata):  # the job declares the type
        return one
    fitting = [set(field.metadata[_FITTING].decode().split("\n")) for field in (one, other)]
    joined = csv_field(one.name, [kind for kind in CSV_KINDS if str(kind) in fitting[0] & fitting[1]])
    if joined.type == pa.string() and not {one.type, other.type} <= {pa.string(), pa.null()}:
        raise TypesDiffer(one.name, one.type, other.type)
    return joined


class TypesDiffer(Exception):
    """Raised when no type fits the values of two: in JSON itself, a string is no number.

    :param column: The column, or a path into it: ``meta.id``, ``tags[]``.
    """

    def __init__(self, column: str, one: pa.DataType, other: pa.DataType) -> None:
        super().__init__(f"column {column!r} is {other}, and {one} before")


def joined_json(column: str, one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type that fits the values of two types of JSON.

    null fits into everything, and int64 into float64; lists and objects fit if what is in them does, and an object
    need not have all keys.

    :raises TypesDiffer: If there is none.
    """
    if one == other or kinds.is_null(other):
        return one
    if kinds.is_null(one):
        return other
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if kinds.is_list(one) and kinds.is_list(other):
        return pa.list_(joined_json(f"{column}[]", one.value_type, other.value_type))
    if kinds.is_struct(one) and kinds.is_struct(other):
        return pa.struct(joined_json_fields(f"{column}.", list(one), list(other)))
    raise TypesDiffer(column, one, other)


def joined_json_fields(prefix: str, one: Sequence[pa.Field], other: Sequence[pa.Field]) -> list[pa.Field]:
    """The fields of both, in the order in which they appeared, with types that fit.

    :param prefix: What stands before their names in messages.
    :raises TypesDiffer: If no type fits a field of both.
    """
    joined = {field.name: field.type for field in one}
    for field in other:
        known = joined.get(field.name, pa.null())
        joined[field.name] = joined_json(f"{prefix}{field.name}", known, field.type)
    return [pa.field(name, kind) for name, kind in joined.items()]


def json_type(kind: pa.DataType) -> pa.DataType:
    """The type of JSON values: Arrow's reader takes strings for timestamps if all of them look like it."""
    if kinds.is_timestamp(kind):
        return pa.string()
    if kinds.is_list(kind):
        return pa.list_(json_type(kind.value_type))
    if kinds.is_struct(kind):
        return pa.struct([pa.field(field.name, json_type(field.type)) for field in kind])
    return kind


def wire_type(kind: pa.DataType) -> pa.DataType:
    """The type with which Arrow's reader of JSON reads a column that is cast to a type afterwards."""
    if kinds.is_date32(kind):
        return pa.string()
    if kinds.is_list(kind) or kinds.is_fixed_size_list(kind):
        return pa.list_(wire_type(kind.value_type))
    return kind


def storable(kind: pa.DataType) -> pa.DataType:
    """Return the type with which Parquet stores values of a type.

    There, a struct has a field at least. Where no value is known, texts are: in CSV, those that mean null; and Arrow
    fails at nulls in lists.
    """
    if kinds.is_null(kind):
        return pa.string()
    if kinds.is_list(kind):
        return pa.list_(storable(kind.value_type))
    if kinds.is_struct(kind):
        fields = [pa.field(field.name, storable(field.type)) for field in kind]
        return pa.struct(fields or [pa.field("", pa.string())])
    return kind


def retyped(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return stored values with a type: that of their file, or of all files together."""
    if values.type == kind:
        return values
    if kinds.is_string(values.type) and not kinds.is_large_string(kind):
        return pa.nulls(len(values), kind)  # no value of the file was known
    if kinds.is_list(kind):
        items = retyped(values.values, kind.value_type)
        return pa.ListArray.from_arrays(_offsets(values), items, type=kind)
    if kinds.is_struct(kind):
        known = {field.name: values.field(place) for place, field in enumerate(values.type)}
        columns = [
            retyped(known[field.name], field.type) if field.name in known else pa.nulls(len(values), field.type)
            for field in kind
        ]
        if not columns:
            return pa.array([None if is_null else {} for is_null in values.is_null().to_pylist()], kind)
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=values.is_null())
    return values.cast(kind, safe=False)  # numbers beyond 2^53 are rounded, as text would be


def _offsets(lists: pa.ListArray) -> pa.Array:
    """Return the offsets of lists, null where a list is null."""
    is_null = pa.concat_arrays([lists.is_null(), pa.array([False])])
    return pc.if_else(is_null, pa.scalar(None, pa.int32()), lists.offsets)


def is_deeper(schema: pa.Schema, most: int) -> bool:
    """Return True if columns are nested in more levels than these; a number is one."""
    level = schema.types
    for _ in range(most):
        level = [kind.field(i).type for kind in level for i in range(kind.num_fields)]
    return bool(level)
