"""The types that columns have in batches, whatever layout a file keeps their values in.

A dictionary, run ends and views are ways to store values, and a file may mix them: the same word has another index in
the next row group. So a batch has the plain type of the same values:

============================================  ==================================
in the file                                   in a batch
============================================  ==================================
``dictionary<V>``, ``run_end_encoded<V>``     ``V``
``string_view``, ``binary_view``              ``string``, ``binary``
``list_view<V>``, ``large_list_view<V>``      ``list<V>``, ``large_list<V>``
============================================  ==================================

and so at any depth. Inside lists, maps and structs, whether a null may come is not part of the type either.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

#: Rows made plain at once, at most. A run can have billions.
_MOST_ROWS = 65_536
#: What a string or a list takes besides its content.
_OVERHEAD = 8


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type that a column of a type has in batches."""
    if kinds.is_dictionary(kind) or kinds.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if kinds.is_string_view(kind):
        return pa.string()
    if kinds.is_binary_view(kind):
        return pa.binary()
    if kinds.is_list(kind) or kinds.is_list_view(kind):
        return pa.list_(plain_type(kind.value_type))
    if kinds.is_large_list(kind) or kinds.is_large_list_view(kind):
        return pa.large_list(plain_type(kind.value_type))
    if kinds.is_fixed_size_list(kind):
        return pa.list_(plain_type(kind.value_type), kind.list_size)
    if kinds.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type), keys_sorted=kind.keys_sorted)
    if kinds.is_struct(kind):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in kind])
    if isinstance(kind, pa.BaseExtensionType):
        # Few extension types can be made over another storage type; such a column has its storage's.
        storage = plain_type(kind.storage_type)
        return kind if storage == kind.storage_type else storage
    return kind


def plain_batches(batch: pa.RecordBatch, schema: pa.Schema, *, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """The columns of a schema, with its types, cut into as many batches as it takes.

    A thousand rows that share one value of a megabyte are small in the file, and a gigabyte as plain values.

    :param schema: Some of the batch's columns, in any order, with their plain types.
    :param batch_bytes: What the columns that have to be made plain may take in one of the resulting batches, unless a
        single row takes more.
    """
    if batch.schema.equals(schema):
        yield batch.replace_schema_metadata(schema.metadata)
        return
    columns = [batch.column(name) for name in schema.names]
    if all(column.type == field.type for column, field in zip(columns, schema, strict=True)):
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
        return
    for start in range(0, batch.num_rows, _MOST_ROWS):
        for part in _halved([column.slice(start, _MOST_ROWS) for column in columns], schema, batch_bytes):
            arrays = [plain_array(array, field.type) for array, field in zip(part, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def plain_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same values with the plain type of the array's type."""
    found = array.type
    if found == kind:
        return array
    if kinds.is_null(found):  # nothing but nulls in this file
        return pa.nulls(len(array), kind)
    if isinstance(found, pa.BaseExtensionType):
        return plain_array(array.storage, kind)
    if kinds.is_run_end_encoded(found):
        return plain_array(pc.run_end_decode(array), kind)
    if kinds.is_dictionary(found):
        return plain_array(array.dictionary, kind).take(array.indices)
    mask = array.is_null() if array.null_count else None
    if kinds.is_struct(found):
        fields = [plain_array(array.field(i), kind.field(i).type) for i in range(found.num_fields)]
        # Without fields there is nothing to tell the number of rows from.
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=mask) if fields else array.cast(kind)
    if kinds.is_fixed_size_list(found):
        values = array.values.slice(array.offset * found.list_size, len(array) * found.list_size)
        return pa.FixedSizeListArray.from_arrays(plain_array(values, kind.value_type), type=kind, mask=mask)
    if kinds.is_map(found):
        offsets, entries = _lists(array)
        keys, items = plain_array(entries.field(0), kind.key_type), plain_array(entries.field(1), kind.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=mask)
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        offsets, values = _lists(array)
        build = pa.ListArray if kinds.is_list(kind) else pa.LargeListArray
        return build.from_arrays(offsets, plain_array(values, kind.value_type), type=kind, mask=mask)
    return array.cast(kind)


def _lists(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the begins and ends of a column's lists, counted from 0, and their values; a map's are structs."""
    kind = array.type
    if kinds.is_list_view(kind) or kinds.is_large_list_view(kind):
        lengths = pc.list_value_length(array).fill_null(0)
        zero = pa.array([0], lengths.type)
        return pa.concat_arrays([zero, pc.cumulative_sum_checked(lengths)]), array.flatten()
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    values = (
        pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        if kinds.is_map(kind)
        else (array.values)
    )
    return pc.subtract(array.offsets, array.offsets[0]), values.slice(first, last - first)


def _halved(columns: Sequence[pa.Array], schema: pa.Schema, most_bytes: int) -> Iterator[Sequence[pa.Array]]:
    """Cut columns in halves, and these again, until each part has few bytes as plain values."""
    encoded = [column for column, field in zip(columns, schema, strict=True) if column.type != field.type]
    rows = len(columns[0])
    if rows < 2 or sum(map(_plain_bytes, encoded)) <= most_bytes:
        yield columns
        return
    for start, length in ((0, rows // 2), (rows // 2, rows - rows // 2)):
        yield from _halved([column.slice(start, length) for column in columns], schema, most_bytes)


def _plain_bytes(array: pa.Array) -> int:
    """About how much memory the values of an array take once they are plain.

    Found without making them plain: in all layouts but the plain ones, many rows can share one large value.
    """
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_bytes(array.storage)
    if kinds.is_dictionary(kind):
        return _sum(_value_bytes(array.dictionary).take(array.indices))
    if kinds.is_run_end_encoded(kind):
        runs = pa.RunEndEncodedArray.from_arrays(array.run_ends, _value_bytes(array.values))
        return _sum(pc.run_end_decode(runs.slice(array.offset, len(array))))
    if kinds.is_string_view(kind) or kinds.is_binary_view(kind):
        return _OVERHEAD * len(array) + _sum(_view_lengths(array))
    if kinds.is_list_view(kind) or kinds.is_large_list_view(kind):
        values = array.values
        return _OVERHEAD * len(array) + _sum(pc.list_value_length(array)) * _plain_bytes(values) // max(1, len(values))
    if kinds.is_struct(kind):
        return sum(_plain_bytes(array.field(i)) for i in range(kind.num_fields))
    if kinds.is_map(kind):
        return _plain_bytes(_lists(array)[1])
    if kinds.is_nested(kind) and not kinds.is_union(kind):
        return _OVERHEAD * len(array) + _plain_bytes(array.flatten())
    return int(array.nbytes)


def _value_bytes(values: pa.Array) -> pa.Array:
    """Return the bytes that each value takes; for lists and structs, the average."""
    kind = values.type
    if kinds.is_string_view(kind) or kinds.is_binary_view(kind):
        return pc.add(_view_lengths(values), _OVERHEAD)
    if kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_binary(kind) or kinds.is_large_binary(kind):
        return pc.add(pc.binary_length(values).cast(pa.int64()), _OVERHEAD)
    average = _plain_bytes(values) // max(1, len(values)) + 1
    return pa.repeat(pa.scalar(average, pa.int64()), len(values))


def _view_lengths(views: pa.Array) -> pa.Array:
    """The lengths of strings, of which a view has 16 bytes: first the length, as an ``int32``."""
    words = pa.Array.from_buffers(pa.int32(), 4 * (views.offset + len(views)), [None, views.buffers()[1]])
    lengths = pc.list_element(pa.FixedSizeListArray.from_arrays(words, 4).slice(views.offset), 0)
    return pc.if_else(views.is_valid(), lengths, 0).cast(pa.int64())


def _sum(numbers: pa.Array) -> int:
    return int(pc.sum(numbers).as_py() or 0)
