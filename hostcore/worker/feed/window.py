"""Memory of a shuffle window: measured on the first shard, and limited while it is read."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import attrs

from hostcore.worker.feed.order import in_file_order
from hostcore.worker.feed.readahead import AHEAD_BYTES
from hostcore.worker.feed.reading import range_reader
from hostcore_hookspecs.errors import InvalidData

if TYPE_CHECKING:
    from hostcore_hookspecs.data_source import Dataset, Shard

#: Later rows may be larger than those of the first shard: so many times as large.
_GROWTH: Final = 4


@attrs.frozen(kw_only=True)
class WindowLimit:
    """Memory limit of a window."""

    #: ``dataset.window_bytes``, to which windows are sized by the rows of the first shard.
    window_bytes: int
    #: Where the job has the settings of the dataset.
    pointer: str

    def check_row(self, row_bytes: int, lanes: int) -> None:
        """Refuse rows of which a window cannot hold enough.

        :raises InvalidData: Naming the setting.
        """
        if row_bytes > self.window_bytes:
            raise InvalidData(
                f"one row takes {row_bytes:,} bytes, more than a whole shuffle window may ({self.window_bytes:,})",
                pointer=f"{self.pointer}/window_bytes",
                hint="raise dataset.window_bytes, or turn dataset.shuffle off",
            )
        self.check(row_bytes * lanes, lanes, lanes)

    def check(self, size: int, rows: int, lanes: int) -> None:
        """Refuse a window that takes too much.

        :param size: What has been read of it, in bytes.
        :param rows: How many rows that is.
        :param lanes: The lanes of the order; a window has a row of each.
        :raises InvalidData: Naming the settings.
        """
        if size <= _GROWTH * self.window_bytes:
            return
        fitting = max(1, self.window_bytes * rows // size)
        setting = "shuffle_window" if fitting >= lanes else "lanes"
        raise InvalidData(
            f"{rows:,} rows of a shuffle window take {size:,} bytes, more than {_GROWTH} times what all of it was to "
            f"take ({self.window_bytes:,})",
            pointer=f"{self.pointer}/{setting}",
            hint=f"set dataset.{setting} to {fitting} or less, or raise dataset.window_bytes if there is memory for it",
        )


def measure_row(dataset: "Dataset", shards: "Sequence[Shard]", columns: Sequence[str] | None) -> int:
    """The bytes of a decoded row, by those of the first of some shards.

    Measured, because the metadata of a Parquet file can have 195 KB for rows that decode to 400 MB.
    """
    first = in_file_order([shard.num_rows for shard in shards], 0)[:1]
    sample = next(range_reader(dataset, shards, columns)(first))
    return max(1, sample.nbytes // int(sample.batch.num_rows))


def window_memory(window_bytes: int, readahead: int) -> int:
    """About what windows of this size take.

    One as it is read and one in use; read ahead, also those that lie ready.
    """
    if not readahead:
        return 2 * window_bytes
    return 2 * window_bytes + min(readahead * window_bytes, max(AHEAD_BYTES, window_bytes))
