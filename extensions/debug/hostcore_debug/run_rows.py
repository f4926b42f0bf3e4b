"""The rows of each step of a run, from the order of its data alone."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import pyarrow as pa

from hostcore.checkpoints.find import committed
from hostcore.plugins.hooks import Hooks
from hostcore.plugins.installed import discover
from hostcore.plugins.load import load_component
from hostcore.plugins.resolve import select
from hostcore.runs.directory import RunDirectory
from hostcore.runs.record import RunRecord
from hostcore.verification.checkpoint_checks import host_state
from hostcore.worker.feed.feed import DatasetFeed
from hostcore.worker.feed.hash_range import HashRange, with_hash_range
from hostcore.worker.feed.order import Indices
from hostcore.worker.loading import Sources
from hostcore.worker.ranks.rank_info import RankInfo
from hostcore_hookspecs import InvalidData
from hostcore_hookspecs.data_source import Shard

if TYPE_CHECKING:
    from hostcore_hookspecs.data_source import Dataset


@attrs.frozen(kw_only=True, order=True)
class RowPlace:
    """A row's place in the data."""

    #: The name of the file, or of the table, as the data source calls it.
    file: str
    #: The part of the file that is read at once, from 0: of Parquet the row group.
    row_group: int
    #: In the file, from 0.
    row: int

    def __str__(self) -> str:
        """``train.parquet:4711``, as command lines name it."""
        return f"{self.file}:{self.row}"


@attrs.frozen(kw_only=True)
class RowVisit:
    """A step that trained on a row."""

    step: int
    epoch: int
    rank: int


class NoRows(InvalidData):
    """A run that trains on no rows of a dataset."""


class RunRows:
    """The training data of a run, and the rows of its steps.

    :raises NoRows: The run trains on none.
    :raises InvalidData: Its data is missing or has changed.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self.record = record = RunRecord.read(directory.record)
        spec = record.spec(with_data=True)
        if spec.dataset is None:
            raise NoRows(f"the run {directory.run_id!r} trains on no rows: its job has no dataset")
        plugins = discover() if record.brought else record.selectable()  # the plan has no sources of a trainer's data
        selected = [one for one in select(spec, plugins, room="worker") if "#train" in one.use]
        components = [
            with_hash_range(
                load_component(one, job_dir=spec.job_dir, run_dir=None, import_paths=spec.import_paths), spec
            )
            for one in selected
        ]
        ranks = RankInfo(world_size=max(1, record.world_size))
        opened = Sources(spec, Hooks(components), components, ranks, str(directory.path)).training()
        if opened is None or not isinstance(opened[1], DatasetFeed):
            raise NoRows(f"the run {directory.run_id!r} trains on mock batches, which have no rows")
        self._dataset: Dataset = opened[1].dataset
        self._columns = opened[1].columns
        self._layout = opened[1].layout
        self._ranks = ranks.world_size
        self._check_unchanged(directory, opened[1])
        self._shards = list(self._dataset.shards())
        self._starts = np.array([0, *accumulate(one.num_rows for one in self._shards)])
        self._names = [_file_and_group(one.id, number) for number, one in enumerate(self._shards)]
        before: dict[str, int] = defaultdict(int)
        #: By shard: the rows of its file before it.
        self._rows_before = []
        for (file, _), shard in zip(self._names, self._shards, strict=True):
            self._rows_before.append(before[file])
            before[file] += self._whole(shard)
        self._rows_of = dict(before)

    @property
    def steps_per_epoch(self) -> int:
        """Steps of an epoch."""
        return self._layout.rows_per_epoch // self._layout.rows_per_step

    @property
    def unit(self) -> str:
        """Things that a row stands for, such as batches of an iterable; empty where it is a row."""
        return str(getattr(self._dataset, "unit", ""))

    def numbers(self, step: int, rank: int | None = None) -> Indices:
        """Return the numbers of a step's rows, counted through all data, in the order of the batch.

        :param step: From 1.
        :param rank: Of this rank alone; None: of all.
        :return: int64 of shape (rows,).
        """
        epoch, place = divmod((step - 1) * self._layout.rows_per_step, self._layout.rows_per_epoch)
        found = list(self._layout.row_numbers(epoch, place, place + self._layout.rows_per_step))
        positions = np.concatenate([one for one, _ in found])
        numbers = np.concatenate([one for _, one in found])
        in_order = np.argsort(positions)
        positions, numbers = positions[in_order], numbers[in_order]
        return numbers if rank is None else numbers[positions % self._ranks == rank]

    def places_of(self, numbers: Sequence[int]) -> list[RowPlace]:
        """Return the places of rows, by their numbers."""
        return [self._place(number) for number in numbers]

    def lines(self, places: Sequence[RowPlace]) -> list[tuple[str, int, int]]:
        """Return places as people read them: files below the folder of the job by their paths from there."""
        folder = f"{self.record.job_dir.rstrip('/')}/"
        return [(one.file.removeprefix(folder), one.row_group, one.row) for one in places]

    def check_rank(self, rank: int | None) -> None:
        """Check that the run has a rank.

        :raises InvalidData: It has not.
        """
        if rank is not None and rank >= self._ranks:
            raise InvalidData(f"the run has no rank {rank}: it has {self._ranks}, counted from 0")

    def _place(self, number: int) -> RowPlace:
        shard = int(np.searchsorted(self._starts, number, side="right")) - 1
        file, group = self._names[shard]
        row = number - int(self._starts[shard])
        if isinstance(self._dataset, HashRange):
            row = int(self._dataset.rows_of(self._shards[shard].id)[row])
        return RowPlace(file=file, row_group=group, row=row + self._rows_before[shard])

    def _whole(self, shard: Shard) -> int:
        """Return the rows of a shard, with those that are held out."""
        return self._dataset.whole_rows(shard.id) if isinstance(self._dataset, HashRange) else shard.num_rows

    def number_of(self, file: str, row: int) -> int:
        """Return a row's number, counted through all data.

        :param file: Its name, or the end of exactly one name.
        :raises InvalidData: There is no such row.
        """
        named = [name for name in self._rows_of if name == file] or [
            name for name in self._rows_of if Path(name).match(file)
        ]
        if len(named) != 1:
            some = ", ".join(sorted(named or self._rows_of)[:5])
            count = "no file of the data is" if not named else f"{len(named)} files of the data are"
            raise InvalidData(f"{count} called {file!r}", hint=f"files are called: {some}")
        if not 0 <= row < self._rows_of[named[0]]:
            rows = self._rows_of[named[0]]
            raise InvalidData(f"{named[0]} has no row {row:,}: it has {rows:,}, counted from 0")
        for shard, (name, _) in enumerate(self._names):
            offset = row - self._rows_before[shard]
            if name == named[0] and 0 <= offset < self._whole(self._shards[shard]):
                if isinstance(self._dataset, HashRange):
                    kept = self._dataset.rows_of(self._shards[shard].id)
                    if offset not in kept:
                        raise NoRows(f"row {row:,} of {name} is held out: the run did not train on it")
                    offset = int(np.searchsorted(kept, offset))
                return int(self._starts[shard]) + offset
        raise AssertionError("a row within a file is in one of its shards")

    def visits(self, number: int, until: int) -> Iterator[RowVisit]:
        """Yield the steps that trained on a row, up to a step."""
        layout = self._layout
        for epoch in range(-(-until // self.steps_per_epoch)):
            for positions, numbers in layout.row_numbers(epoch, 0, layout.rows_per_epoch):
                for position in positions[numbers == number]:
                    step = epoch * self.steps_per_epoch + int(position) // layout.rows_per_step + 1
                    if step <= until:
                        yield RowVisit(step=step, epoch=epoch, rank=int(position) % self._ranks)

    def contents(self, numbers: Sequence[int]) -> pa.Table:
        """Read rows: their columns as the trainer gets them, behind ``file``, ``row_group`` and ``row``."""
        pieces: list[pa.Table] = [None] * len(numbers)
        by_shard: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for place, number in enumerate(numbers):
            shard = int(np.searchsorted(self._starts, number, side="right")) - 1
            by_shard[shard].append((place, int(number - self._starts[shard])))
        for shard, wanted in by_shard.items():
            for place, row in self._read(shard, wanted):
                pieces[place] = row
        found = [self._place(int(number)) for number in numbers]
        names = [("file", pa.string()), ("row_group", pa.int64()), ("row", pa.int64())]
        columns = {name: pa.array([getattr(one, name) for one in found], kind) for name, kind in names}
        rows = pa.concat_tables(pieces) if pieces else self._dataset.schema.empty_table()
        for name in rows.column_names:
            columns[name if name not in columns else f"{name}_"] = rows.column(name)
        return pa.table(columns)

    def _read(self, shard: int, wanted: Sequence[tuple[int, int]]) -> Iterator[tuple[int, pa.Table]]:
        first = min(row for _, row in wanted)
        last = max(row for _, row in wanted)
        batches, rows = [], 0
        for batch in self._dataset.read_shard(self._shards[shard], self._columns, first):
            batches.append(batch)
            rows += batch.num_rows
            if first + rows > last:
                break
        table = pa.Table.from_batches(batches)
        yield from ((place, table.slice(row - first, 1)) for place, row in wanted)

    def _check_unchanged(self, directory: RunDirectory, feed: DatasetFeed) -> None:
        """Compare the data with what the newest checkpoint was trained on.

        :raises InvalidData: It has changed.
        """
        records = committed(directory.checkpoints)
        if not records:
            return
        before: Any = host_state(directory.checkpoints / records[-1].folder_name)["data"]
        now = feed.identity()
        changed = [name for name in now if name in before and before[name] != now[name]]
        if changed:
            raise InvalidData(
                f"the data is not what the run was trained on: {', '.join(sorted(changed))} changed since then",
                pointer="/dataset",
                hint="bring the data back as it was: without it, the rows of a step are not known",
            )


def _file_and_group(shard: str, number: int) -> tuple[str, int]:
    """Return the file and the part of it that a shard's id names: ``train.parquet#3``."""
    file, mark, group = shard.rpartition("#")
    return (file, int(group)) if mark and group.isdecimal() else (shard, number)
