"""Steps that are made again in parts, for batches that are not all alike, and for ranks whose batches differ."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
import torch
from thread_ranks import Room, ThreadRank, together

from hostcore.worker.feed.splitting import Splitting
from hostcore.worker.progress import TrainingProgress
from hostcore.worker.ranks.outcome import DistributedError
from hostcore_hookspecs import Job, StepContext

#: A rank that nobody is beside.
ALONE = ThreadRank(0, 1, Room(1))


class Rank:
    """One rank that makes steps of a trainer for which parts of ``fits`` rows are small enough."""

    def __init__(self, fits: int, ranks: Any = ALONE) -> None:
        self.fits = fits
        self.progress = TrainingProgress(10, 100)
        self.seen: list[Any] = []
        self._ctx = StepContext(job=Job(), device=torch.device("cpu"), run_state=self.progress.state)
        self._splitting = Splitting(ranks=ranks, progress=self.progress, recorded=[], emit=lambda *_, **__: None)
        self._prepare_batch, self._train_step = self._splitting.around(self.prepare_batch, self.train_step)

    def step(self, raw_batch: Any) -> Sequence[int]:
        """The rows of the parts of which the step is made."""
        self._ctx.batch_index = 0
        self._train_step(self._prepare_batch(raw_batch, None, self._ctx), None, self._ctx)
        rows: Sequence[int] = self.seen[-1]
        return rows

    def prepare_batch(self, raw_batch: Any, _state: Any, _ctx: Any) -> Any:
        return raw_batch.pop("x") if isinstance(raw_batch, dict) else raw_batch

    def train_step(self, prepared_batch: Any, _state: Any, _ctx: Any) -> None:
        parts = prepared_batch if isinstance(prepared_batch, tuple) else (prepared_batch,)
        self.seen.append([len(one) for one in parts])
        if self.fits and max(map(len, parts)) > self.fits:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        self._splitting.begin_update()


def rows(number: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"x": list(range(number))})


def test_a_batch_that_cannot_be_cut_is_trained_on_whole_once_others_are_taken_in_parts() -> None:
    rank = Rank(fits=6)
    assert rank.step(rows(10)) == [5, 5]
    assert rank.step([1, 2, 3]) == [3]
    assert rank.step({"x": [1, 2, 3], "length": 3}) == [3]
    assert rank.step(rows(0)) == [0]


def test_what_prepare_batch_takes_out_of_a_mapping_is_there_when_the_step_is_made_again() -> None:
    assert Rank(fits=3).step({"x": list(range(10)), "y": list(range(10))}) == [3, 3, 3, 1]


def run(fits: Sequence[int], batches: Sequence[Any]) -> tuple[list[Rank], list[BaseException | None]]:
    """A step of two ranks, and what each failed with."""
    ranks: dict[int, Rank] = {}

    def step(rank: ThreadRank) -> None:
        ranks[rank.rank] = Rank(fits[rank.rank], rank)
        ranks[rank.rank].step(batches[rank.rank])

    errors = together(2, step)
    return [ranks[0], ranks[1]], errors


def test_ranks_whose_batches_differ_take_parts_of_one_size() -> None:
    ranks, errors = run(fits=[0, 4], batches=[rows(10), rows(8)])
    assert errors == [None, None]
    assert [rank.progress.micro_batch_rows for rank in ranks] == [3, 3]
    assert [rank.seen[-1] for rank in ranks] == [[3, 3, 3, 1], [3, 3, 2]]


@pytest.mark.parametrize("other", [[1, 2, 3], rows(0)])
def test_all_ranks_give_up_when_the_batch_of_one_cannot_be_cut(other: Any) -> None:
    _, (error, elsewhere) = run(fits=[3, 0], batches=[rows(10), other])
    assert isinstance(error, torch.OutOfMemoryError)
    assert "the rows of such a batch are not known" in error.__notes__[0]
    assert isinstance(elsewhere, DistributedError)
