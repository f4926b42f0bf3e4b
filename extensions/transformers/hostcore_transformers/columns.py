"""Columns that tasks read: their types and their values."""

from collections.abc import Callable
from typing import Any, Final

import attrs
import pyarrow as pa

from hostcore_hookspecs import InvalidData


@attrs.frozen
class Column:
    """Types that a column may have."""

    is_right: Callable[[pa.DataType], bool]
    #: What the column has to be, as the end of a sentence.
    expected: str


def values_of(rows: pa.RecordBatch, column: str) -> list[Any]:
    """Return the values of a column.

    :raises InvalidData: When one is missing.
    """
    values: list[Any] = rows.column(column).to_pylist()
    if None in values:
        raise InvalidData(f'row {values.index(None)} of a batch has nothing in "{column}"', hint="leave such rows out")
    return values


def is_text(kind: pa.DataType) -> bool:
    """Return whether values are strings, of a dictionary or not."""
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(one(plain) for one in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def is_file(kind: pa.DataType) -> bool:
    """Return whether values are the contents of files, or structs of these as ``datasets`` has them."""
    if pa.types.is_struct(kind):
        return any(one.name == "bytes" and is_file(one.type) for one in kind)
    return any(one(kind) for one in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view))


def is_list(kind: pa.DataType) -> bool:
    """Return whether values are lists, of a fixed length or not."""
    return any(one(kind) for one in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


TEXT: Final = Column(is_text, "texts are strings")
CONVERSATION: Final = Column(
    lambda kind: is_text(kind) or is_list(kind), "conversations are lists of structs, or JSON text"
)
