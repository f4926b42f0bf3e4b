"""Number of rows of a Parquet row group to decode at once.

Decoded rows can be far larger than any size in the file's metadata: 195 KB of metadata and pages for 400 MB, where a
dictionary holds one long value for many rows. What is known before they are decoded:

- Numbers and other values of a fixed width: exactly how much they take.
- Strings in a dictionary: nothing, until the dictionary is read; then, how long the longest one is.
- Lists of numbers, and strings that are written out: how much they take together, and nothing about single rows.

For the first two, a number of rows follows that is never too large. For the third, it follows from what is left for the
rows that are left. If that is much more than they would take, were they like the rows before, then much larger ones are
still to come, at an unknown place: the more there is of that, the fewer rows are decoded at once.
"""

from collections.abc import Callable, Mapping

import attrs
import pyarrow as pa

#: Rows decoded at once, at most.
MOST_ROWS = 65_536
#: What rows decoded at once should take. The feed reads up to 24 row groups side by side.
TARGET_BYTES = 2 << 20
#: The same where all rows are of one size, so that there is nothing to be careful about: fewer pieces cost less time.
EVEN_TARGET_BYTES = 9 << 20
#: What the pieces of all row groups that are read side by side should take together.
TOGETHER_BYTES = 48 << 20
#: What they may take, should each have the longest string of its dictionary; and how much more than expected may be
#: left before fewer rows are decoded at once.
LIMIT_BYTES = 16 << 20

#: Rows decoded at once, at most, where nothing is known.
_BLIND_ROWS = 128
#: How many times the last number of rows.
_GROWTH = 4


@attrs.frozen(kw_only=True)
class ColumnSize:
    """Size of a column of a row group, as known before it is decoded."""

    #: What all its values take, decoded; None if that is not known, as for strings in dictionaries.
    num_bytes: float | None
    #: Whether every row takes the same.
    is_even: bool = False
    #: What a row takes if it has the longest string of the dictionary; None without one.
    longest_row: float | None = None

    @property
    def is_unknown(self) -> bool:
        """True if nothing at all is known."""
        return self.num_bytes is None and self.longest_row is None


class RowBudget:
    """Number of rows to decode next, in one pass through a row group.

    :param num_rows: Of the row group.
    :param sizes: Of the columns that are read, by name.
    :param open_groups: How many row groups are read side by side; asked before each time.
    """

    def __init__(
        self,
        num_rows: int,
        sizes: Mapping[str, ColumnSize],
        open_groups: Callable[[], int] = lambda: 1,
    ) -> None:
        self._open_groups = open_groups
        self._rows = 0
        self._rows_left = num_rows
        self._even_row = sum(size.num_bytes or 0 for size in sizes.values() if size.is_even) / num_rows
        self._uneven = [name for name, size in sizes.items() if not size.is_even]
        #: Those of which it is known what they take together; what they took so far, and what is left.
        self._shared = [name for name in self._uneven if sizes[name].num_bytes is not None]
        self._shared_bytes = 0.0
        self._shared_left = sum(sizes[name].num_bytes or 0 for name in self._shared)
        longest_row = self._even_row + sum(size.longest_row or 0 for size in sizes.values())
        is_blind = any(size.is_unknown for size in sizes.values())
        self._most_rows = min(_rows(LIMIT_BYTES, longest_row), _BLIND_ROWS if is_blind else MOST_ROWS)
        #: How many rows to decode next; at least 1.
        self.next_rows = min(self._safe_rows(), _rows(self._target(), longest_row))
        if is_blind or self._shared_left > LIMIT_BYTES:
            self.next_rows = 1  # the first rows may be the large ones

    def spend(self, batch: pa.RecordBatch) -> None:
        """Take account of rows that were decoded."""
        found = {name: batch.column(name).nbytes for name in self._uneven}
        shared = sum(found[name] for name in self._shared)
        self._rows += batch.num_rows
        self._rows_left -= batch.num_rows
        self._shared_bytes += shared
        self._shared_left = max(0, self._shared_left - shared)
        last_row = self._even_row + sum(found.values()) / batch.num_rows
        most = min(self._most_rows, self._safe_rows(), _GROWTH * self.next_rows)
        self.next_rows = min(most, _rows(self._target(), last_row))

    def _target(self) -> int:
        if self._uneven:
            return TARGET_BYTES
        return max(TARGET_BYTES, min(EVEN_TARGET_BYTES, TOGETHER_BYTES // max(1, self._open_groups())))

    def _safe_rows(self) -> int:
        """As many rows as are not too large by what is left for them."""
        row_left = self._shared_left / max(1, self._rows_left)
        row_before = self._shared_bytes / max(1, self._rows)
        excess = self._shared_left - self._rows_left * row_before
        caution = max(1, excess / LIMIT_BYTES)
        return _rows(self._target() / caution, self._even_row + row_left)


def _rows(num_bytes: float, row_bytes: float) -> int:
    return max(1, min(MOST_ROWS, int(num_bytes / max(row_bytes, 1))))
