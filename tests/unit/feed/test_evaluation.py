"""Validation and test data: every row once, on any number of ranks, in as many batches on each of them."""

from collections.abc import Callable

import attrs
import pytest

from hostcore.job.sections import DatasetSpec
from hostcore.worker.feed.evaluation import EvaluationFeed, evaluation_feed
from hostcore_hookspecs import InvalidData

SHAPES = [(1,), (10,), (3, 4, 5), (1, 0, 6, 2), (7, 7, 7)]


@pytest.fixture(params=[0, 2], ids=["read when asked for", "read ahead"])
def feed(request: pytest.FixtureRequest, memory: Callable) -> Callable[..., EvaluationFeed]:
    def make(rows: tuple[int, ...], *, batch_size: int = 3, rank: int = 0, world_size: int = 1) -> EvaluationFeed:
        spec = DatasetSpec(source="numbers", batch_size=batch_size, readahead=request.param)
        return evaluation_feed(memory(rows, piece=2), spec, pointer="/validation", rank=rank, world_size=world_size)

    return make


@pytest.mark.parametrize("rows", SHAPES)
@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_the_ranks_together_read_every_row_once_in_order(
    feed: Callable, rows: tuple[int, ...], world_size: int, batch_size: int
) -> None:
    read, lengths = [], set()
    for rank in range(world_size):
        one = feed(rows, batch_size=batch_size, rank=rank, world_size=world_size)
        batches = list(one.batches())
        read += [x for batch in batches if batch.counts for x in batch.raw_batch.column(0).to_pylist()]
        lengths.add(len(batches))
        assert len(batches) == one.num_batches
        assert all(1 <= batch.raw_batch.num_rows <= batch_size for batch in batches)
        counting = [batch.raw_batch.num_rows for batch in batches if batch.counts]
        assert all(size == batch_size for size in counting[:-1])
    assert read == list(range(sum(rows)))
    assert len(lengths) == 1


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_a_batch_has_rows_of_one_part_of_a_mixture(feed: Callable, world_size: int) -> None:
    ranges = {"web": range(5), "code": range(5, 6), "books": range(6, 15)}
    read: dict[str, list[int]] = {part: [] for part in ranges}
    lengths = set()
    for rank in range(world_size):
        one = attrs.evolve(
            feed((3, 3, 9), batch_size=4, rank=rank, world_size=world_size),
            parts={part: len(rows) for part, rows in ranges.items()},
        )
        batches = list(one.batches())
        lengths |= {len(batches), one.num_batches}
        for batch in batches:
            if batch.counts:
                read[batch.part] += batch.raw_batch.column(0).to_pylist()
    assert read == {part: [*rows] for part, rows in ranges.items()}
    assert len(lengths) == 1


def test_a_rank_that_has_run_out_repeats_a_batch_that_does_not_count(feed: Callable) -> None:
    batches = list(feed((7,), batch_size=3, rank=0, world_size=2).batches())
    assert [(batch.raw_batch.column(0).to_pylist(), batch.counts) for batch in batches] == [
        ([0, 1, 2], True),
        ([0, 1, 2], False),
    ]
    (batch,) = feed((1,), rank=0, world_size=2).batches()
    assert (batch.raw_batch.column(0).to_pylist(), batch.counts) == ([0], False), "of the other rank"


def test_it_can_be_left_in_the_middle_and_read_again(feed: Callable) -> None:
    one = feed((50,))
    batches = one.batches()
    next(batches)
    batches.close()
    first, second = ([batch.raw_batch.to_pydict() for batch in one.batches()] for _ in range(2))
    assert len(first) == 17
    assert first == second


def test_data_without_rows_is_refused(feed: Callable) -> None:
    with pytest.raises(InvalidData, match="the validation data has no rows") as caught:
        feed((0, 0))
    assert caught.value.pointer == "/validation"
