"""Sizes of the columns of a Parquet file, with those of its dictionaries."""

from collections.abc import Iterator, Mapping, Sequence

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as kinds

from hostcore_builtin_plugins.sources.row_budget import MOST_ROWS, ColumnSize

#: Encodings of strings whose pages take as much as the strings.
_WRITTEN_OUT = frozenset({"PLAIN", "RLE", "BIT_PACKED", "DELTA_LENGTH_BYTE_ARRAY"})
#: Encodings of strings whose pages hold places in a dictionary.
_DICTIONARIES = frozenset({"PLAIN_DICTIONARY", "RLE_DICTIONARY"})
_OFFSET_BYTES = 4
#: Old writers leave the header of a dictionary page out of a column's size.
_HEADER_BYTES = 100
#: A dictionary is not looked into if its rows take more than this in the file. To read it may take as long as to read
#: the rows, and few of such rows at once are enough.
_LARGE_ROW = 512


@attrs.frozen(kw_only=True)
class LeafColumn:
    """A column as Parquet stores it: of numbers or strings, which may be in lists or structs."""

    #: Counts from 0, in the file.
    index: int
    kind: pa.DataType


@attrs.frozen(kw_only=True)
class Footer:
    """The metadata at the end of a file."""

    metadata: pq.FileMetaData
    schema: pa.Schema
    #: Of each column.
    leaves: Mapping[str, Sequence[LeafColumn]]

    @classmethod
    def of(cls, metadata: pq.FileMetaData) -> "Footer":
        """Find the leaves; Parquet has them in the order of the schema."""
        schema: pa.Schema = metadata.schema.to_arrow_schema()
        index, leaves = 0, {}
        for field in schema:
            found = [LeafColumn(index=index + i, kind=kind) for i, kind in enumerate(_leaf_types(field.type))]
            leaves[field.name] = found
            index += len(found)
        return cls(metadata=metadata, schema=schema, leaves=leaves)

    def byte_ranges(self, group: int, columns: Sequence[str]) -> list[tuple[int, int]]:
        """Return the byte ranges of the pages of some columns of a row group."""
        row_group = self.metadata.row_group(group)
        ranges = []
        for chunk in (row_group.column(leaf.index) for name in columns for leaf in self.leaves[name]):
            pages = [chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset]
            ranges.append((min(pages), min(pages) + chunk.total_compressed_size + _HEADER_BYTES))
        return ranges


def column_sizes(
    source: pa.NativeFile, footer: Footer, group: int, columns: Sequence[str], longest: dict[str, int]
) -> dict[str, ColumnSize]:
    """Return the sizes of columns of a row group, as known before they are decoded.

    :param source: The file. Dictionaries of strings are read from it, if there are any.
    :param longest: The longest string in the dictionary of each leaf of the row group, as far as it is known. What is
        missing is added.
    """
    row_group = footer.metadata.row_group(group)
    sizes, uneven = {}, {}
    for name in columns:
        row_bytes = _width(footer.schema.field(name).type)
        if row_bytes is None:
            uneven[name] = [(leaf.kind, row_group.column(leaf.index)) for leaf in footer.leaves[name]]
        else:
            sizes[name] = ColumnSize(num_bytes=row_bytes * row_group.num_rows, is_even=True)
    large = _LARGE_ROW * row_group.num_rows
    paths = [
        chunk.path_in_schema
        for leaves in uneven.values()
        for kind, chunk in leaves
        if _is_in_dictionary(kind, chunk) and chunk.total_uncompressed_size <= large
    ]
    if missing := [path for path in paths if path not in longest]:
        longest.update(_longest_strings(source, footer.metadata, group, missing))
    return sizes | {name: _uneven_size(leaves, row_group.num_rows, longest) for name, leaves in uneven.items()}


def _uneven_size(
    leaves: Sequence[tuple[pa.DataType, pq.ColumnChunkMetaData]], num_rows: int, longest: Mapping[str, int]
) -> ColumnSize:
    """The size of a column whose rows differ in size."""
    num_bytes, longest_row = float(_OFFSET_BYTES * num_rows), 0.0
    for kind, chunk in leaves:
        value_bytes = _width(kind)
        if _is_null(chunk):
            continue
        if chunk.path_in_schema in longest:
            longest_row += longest[chunk.path_in_schema] * chunk.num_values / num_rows
        elif value_bytes is not None:
            num_bytes += value_bytes * chunk.num_values
        elif _WRITTEN_OUT.issuperset(chunk.encodings):
            num_bytes += chunk.total_uncompressed_size
        else:
            return ColumnSize(num_bytes=None)
    if longest_row:
        return ColumnSize(num_bytes=None, longest_row=longest_row)
    # Where the type says dictionary, every batch has the whole of it, which must not be taken for the rows' own size.
    return ColumnSize(num_bytes=num_bytes, is_even=any(kinds.is_dictionary(kind) for kind, _ in leaves))


def _leaf_types(kind: pa.DataType) -> Iterator[pa.DataType]:
    if isinstance(kind, pa.BaseExtensionType):
        yield from _leaf_types(kind.storage_type)
    elif kinds.is_nested(kind):
        for i in range(kind.num_fields):
            yield from _leaf_types(kind.field(i).type)
    else:
        yield kind


def _width(kind: pa.DataType) -> float | None:
    """Return the bytes that a value takes in memory; None if that differs from value to value."""
    if isinstance(kind, pa.BaseExtensionType):
        return _width(kind.storage_type)
    if kinds.is_fixed_size_list(kind):
        width = _width(kind.value_type)
        return None if width is None else width * kind.list_size
    if kinds.is_struct(kind):
        widths = [_width(field.type) for field in kind]
        return None if None in widths else sum(filter(None, widths))
    if kinds.is_null(kind):
        return 0
    try:
        return float(kind.bit_width) / 8
    except ValueError:
        return None


def _is_in_dictionary(kind: pa.DataType, chunk: pq.ColumnChunkMetaData) -> bool:
    """Return True if a leaf has strings, and pages of places in a dictionary."""
    return _width(kind) is None and not _DICTIONARIES.isdisjoint(chunk.encodings) and not _is_null(chunk)


def _is_null(chunk: pq.ColumnChunkMetaData) -> bool:
    """Return True if there is no value at all."""
    found = chunk.statistics
    return found is not None and found.has_null_count and found.null_count == chunk.num_values


def _longest_strings(
    source: pa.NativeFile, metadata: pq.FileMetaData, group: int, paths: Sequence[str]
) -> dict[str, int]:
    """The longest string in the dictionary of each of some leaves of a row group, in bytes."""
    longest = {}
    options = {"read_dictionary": list(paths), "buffer_size": 1 << 16, "pre_buffer": False}
    with pq.ParquetFile(source, metadata=metadata, **options) as parquet:
        for path in paths:
            longest[path] = 0
            rows = 1
            for batch in parquet.iter_batches(rows, row_groups=[group], columns=[path], use_threads=False):
                # The first value comes with the whole dictionary, but empty lists come without any.
                longest[path] = max(map(_longest, _dictionaries(batch.columns)), default=0)
                if longest[path]:
                    break
                rows = min(4 * rows, MOST_ROWS)
                parquet.reader.set_batch_size(rows)
    return longest


def _dictionaries(arrays: Sequence[pa.Array]) -> Iterator[pa.Array]:
    for array in arrays:
        if kinds.is_dictionary(array.type):
            yield array.dictionary
        elif kinds.is_struct(array.type):
            yield from _dictionaries(array.flatten())
        elif kinds.is_nested(array.type):
            yield from _dictionaries([array.values])


def _longest(strings: pa.Array) -> int:
    return int(pc.max(pc.binary_length(strings)).as_py() or 0)
