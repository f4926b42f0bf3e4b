"""Shares per rank: the order is one order, on any number of ranks and from any position on."""

import random
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest

from hostcore.job.sections import DatasetSpec
from hostcore.worker.feed.feed import Cursor, DatasetFeed, dataset_feed

WORLDS = (2, 3, 8, 24)
SEEDS = range(6)
ROWS_PER_STEP = 24

MakeFeed = Callable[..., DatasetFeed]


@pytest.fixture(params=SEEDS, ids="seed {}".format)
def make_feed(request: pytest.FixtureRequest, memory: Callable) -> MakeFeed:
    """``make_feed(rank=1, world_size=4)``: a rank's feed of data of a random shape, in a random order."""
    rng = random.Random(request.param)
    shard_rows = [rng.choice([0, 1, rng.randint(1, 30)]) for _ in range(rng.randint(0, 20))]
    shard_rows.append(rng.randint(ROWS_PER_STEP, 90))
    total, piece = sum(shard_rows), rng.randint(1, 20)
    keys: dict[str, Any] = {"readahead": rng.randint(0, 4)}
    if rng.random() < 0.75:
        lanes = rng.choice([None, rng.randint(1, min(24, total))])
        keys |= {"shuffle": True, "lanes": lanes, "shuffle_window": rng.randint(1, 2 * total)}

    def make(*, rank: int = 0, world_size: int = 1, rows_per_step: int = ROWS_PER_STEP) -> DatasetFeed:
        spec = DatasetSpec(source="mock", batch_size=rows_per_step // world_size, **keys)
        dataset = memory(shard_rows, piece=piece)
        return dataset_feed(dataset, spec, seed=request.param, pointer="/dataset", rank=rank, world_size=world_size)

    return make


def batches(feed: DatasetFeed, *, rows: int = 0) -> list[list[int]]:
    stream = feed.stream(Cursor(epoch=1, rows=rows))
    try:
        return [batch["n"].to_pylist() for batch in stream]
    finally:
        stream.close()


@pytest.mark.parametrize("world_size", WORLDS)
def test_the_batches_of_all_ranks_interleaved_are_those_of_one(make_feed: MakeFeed, world_size: int) -> None:
    ranks = [batches(make_feed(rank=rank, world_size=world_size)) for rank in range(world_size)]
    interleaved = [
        [row for position in zip(*parts, strict=True) for row in position] for parts in zip(*ranks, strict=True)
    ]
    assert interleaved == batches(make_feed())


def test_a_single_rank_continues_exactly_from_every_position(make_feed: MakeFeed) -> None:
    feed = make_feed(rows_per_step=1)
    whole = batches(feed)
    for position in range(len(whole) + 1):
        assert batches(feed, rows=position) == whole[position:]


@pytest.mark.parametrize("world_size", [3, 24])
def test_every_rank_continues_exactly_from_every_step(make_feed: MakeFeed, world_size: int) -> None:
    for rank in {0, 1, world_size - 1}:
        feed = make_feed(rank=rank, world_size=world_size)
        whole = batches(feed)
        for step in range(len(whole) + 1):
            assert batches(feed, rows=step * ROWS_PER_STEP) == whole[step:], f"rank {rank}, step {step}"


def test_a_run_continues_exactly_on_another_number_of_ranks(make_feed: MakeFeed) -> None:
    whole = batches(make_feed())
    ranks = [batches(make_feed(rank=rank, world_size=4), rows=ROWS_PER_STEP) for rank in range(4)]
    steps = [sorted(chain.from_iterable(parts)) for parts in zip(*ranks, strict=True)]
    assert steps == [sorted(batch) for batch in whole[1:]]
    assert make_feed(rank=5, world_size=8).identity() == make_feed().identity()


def test_a_rank_reads_only_the_lanes_it_needs(memory: Callable) -> None:
    dataset = memory([10] * 96)
    spec = DatasetSpec(source="mock", batch_size=10, shuffle=True, shuffle_window=240, readahead=0)
    feed = dataset_feed(dataset, spec, seed=0, pointer="/dataset", rank=3, world_size=8)
    dataset.reads.clear()
    batches(feed)
    assert feed.lanes == 24
    assert len({shard for shard, _ in dataset.reads}) == 96 // 8


def test_less_than_a_batch_for_every_rank_is_an_error(memory: Callable) -> None:
    spec = DatasetSpec(source="mock", batch_size=8)
    with pytest.raises(Exception, match="the data has 31 rows, less than one batch of 8 on each of 4 ranks"):
        dataset_feed(memory([31]), spec, seed=0, pointer="/dataset", rank=0, world_size=4)
