"""The order of a mixture: its proportions at every place, and the same rows on any way to it."""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import orjson
import pytest

from hostcore.job.sections import DatasetSpec
from hostcore.worker.feed.digest import expected_digest
from hostcore.worker.feed.feed import Cursor, DataChanged, DatasetFeed, check_identity, dataset_feed
from hostcore.worker.feed.mixture import MixtureLayout, period
from hostcore_hookspecs import InvalidData, Mixture, MixtureStage

ROWS_PER_STEP = 4
#: Shards of three parts with 12, 3 and 21 rows: rows 0 to 11, 12 to 14, 15 to 35.
PARTS = ((5, 7), (3,), (20, 1))
STAGES = ((3, (1.0, 0.0, 0.0)), (7, (0.0, 0.25, 0.75)))
KINDS = [("repeat", ()), ("repeat", STAGES), ("stop", ()), ("drop", ()), ("drop", STAGES)]

Stages = Sequence[tuple[int, Sequence[float]]]
MakeFeed = Callable[..., DatasetFeed]


def mixture(weights: Sequence[float], parts: Sequence[Sequence[int]], stages: Stages, exhausted: Any) -> Mixture:
    return Mixture(
        names=tuple("abcdefghijkl"[: len(parts)]),
        shards=tuple(len(part) for part in parts),
        weights=tuple(map(float, weights)),
        stages=tuple(MixtureStage(until=until, weights=tuple(given)) for until, given in stages),
        exhausted=exhausted,
    )


@pytest.fixture
def make_feed(memory: Callable[..., Any]) -> MakeFeed:
    """``make_feed(exhausted="drop", rank=1, world_size=2)``: the feed of a mixture of numbered rows."""

    def make(
        weights: Sequence[float] = (0.5, 0.2, 0.3),
        *,
        parts: Sequence[Sequence[int]] = PARTS,
        stages: Stages = (),
        exhausted: str = "repeat",
        shuffle: bool = True,
        seed: int = 3,
        rank: int = 0,
        world_size: int = 1,
        rows_per_step: int = ROWS_PER_STEP,
        **keys: Any,
    ) -> DatasetFeed:
        dataset = memory([rows for part in parts for rows in part], piece=3)
        dataset.mixture = mixture(weights, parts, stages, exhausted)
        batch_size = rows_per_step // world_size
        spec = DatasetSpec(source="mix", batch_size=batch_size, shuffle=shuffle, **{"shuffle_window": 12, **keys})
        return dataset_feed(dataset, spec, seed=seed, pointer="/dataset", rank=rank, world_size=world_size)

    return make


def read(feed: DatasetFeed, epoch: int = 0, rows: int = 0) -> list[int]:
    """The rows of an epoch from a place on, as they are really read; their digest is that of the order."""
    stream = feed.stream(Cursor(epoch=epoch, rows=rows))
    found = [row for batch in stream for row in batch["n"].to_pylist()]
    end = Cursor(epoch=epoch, rows=rows + len(found) * feed.world_size)
    if feed.world_size == 1:
        assert stream.digest(end.rows) == expected_digest(feed.layout, Cursor(epoch=epoch, rows=rows), end)
    return found


def rows_of(layout: MixtureLayout, start: int, stop: int, epoch: int = 0) -> list[int]:
    """The rows between two places, from the order alone."""
    found = list(layout.row_numbers(epoch, start, stop))
    numbers = np.concatenate([rows for _, rows in found])
    return numbers[np.argsort(np.concatenate([positions for positions, _ in found]))].tolist()


def deviation(parts: Sequence[int], weights: Sequence[float]) -> Fraction:
    """The most by which a part is from its exact share, over all prefixes."""
    exact = [Fraction(str(weight)) for weight in weights]
    shares = [weight / sum(exact) for weight in exact]
    counts = np.cumsum(np.array(parts)[:, None] == np.arange(len(weights)), axis=0)
    places = np.arange(1, len(parts) + 1).tolist()
    return max(
        abs(count - place * share)
        for place, row in zip(places, counts.tolist(), strict=True)
        for count, share in zip(row, shares, strict=True)
    )


@pytest.mark.parametrize(
    "weights",
    [
        (7, 3),
        (1, 1),
        (0.9, 0.1),
        (0.5, *[0.05] * 10),
        (1, 2, 3, 4, 5),
        (0.123, 0.877),
        (0.998, 0.001, 0.001),
        (2, 0, 1),
    ],
    ids=str,
)
def test_at_every_prefix_each_part_is_less_than_a_row_from_its_share(weights: Sequence[float]) -> None:
    parts = period(tuple(map(float, weights)), seed=0).parts
    assert deviation(parts.tolist(), weights) < 1
    shares = [Fraction(str(weight)) / sum(Fraction(str(one)) for one in weights) for weight in weights]
    assert np.bincount(parts, minlength=len(weights)).tolist() == [len(parts) * share for share in shares]


def test_weights_that_are_no_ratio_of_whole_numbers_are_those_of_the_next_period() -> None:
    weights = (2**0.5, 1.0, 3**0.5)
    found = period(weights, seed=0)
    assert len(found.parts) == 65_536
    for weight, rows in zip(weights, found.rows.tolist(), strict=True):
        assert abs(rows - 65_536 * weight / sum(weights)) < 1
    assert period((1 / 3, 2 / 3), seed=0).rows.tolist() == [2731, 5462], "what binary fractions cannot hold counts"


def test_a_stage_has_its_proportions_from_its_first_row_on_and_none_of_a_part_without_weight(
    make_feed: MakeFeed,
) -> None:
    layout = make_feed(stages=STAGES, parts=((500,), (300,), (400,))).layout
    part_of = [np.searchsorted([500, 800], row, side="right").item() for row in rows_of(layout, 0, 400)]
    for (first, end), weights in zip(
        [(0, 12), (12, 28), (28, 400)], [*dict(STAGES).values(), (0.5, 0.2, 0.3)], strict=True
    ):
        assert deviation(part_of[first:end], weights) < 1


@pytest.mark.parametrize(("exhausted", "stages"), KINDS)
@pytest.mark.parametrize("shuffle", [True, False], ids=["shuffled", "in file order"])
class TestOneOrder:
    def test_on_any_number_of_ranks(self, make_feed: MakeFeed, exhausted: str, stages: Stages, shuffle: bool) -> None:
        keys: dict[str, Any] = {"exhausted": exhausted, "stages": stages, "shuffle": shuffle}
        for epoch, world_size in itertools.product((0, 1), (2, 4)):
            whole = read(make_feed(**keys), epoch)
            ranks = [read(make_feed(**keys, rank=rank, world_size=world_size), epoch) for rank in range(world_size)]
            assert [row for at_once in zip(*ranks, strict=True) for row in at_once] == whole

    def test_from_any_place_on(self, make_feed: MakeFeed, exhausted: str, stages: Stages, shuffle: bool) -> None:
        feed = make_feed(exhausted=exhausted, stages=stages, shuffle=shuffle)
        whole = read(feed, 1)
        for start in range(0, len(whole), ROWS_PER_STEP):
            assert read(feed, 1, start) == whole[start:]

    def test_that_a_checkpoint_keeps(self, make_feed: MakeFeed, exhausted: str, stages: Stages, shuffle: bool) -> None:
        feed = make_feed(exhausted=exhausted, stages=stages, shuffle=shuffle)
        identity = orjson.loads(orjson.dumps(dict(feed.identity())))
        assert identity == feed.identity()
        stored = MixtureLayout.stored(identity, feed.shard_rows)
        assert stored == feed.layout
        assert hash(stored) == hash(feed.layout)


def test_a_run_does_not_go_on_with_other_proportions(make_feed: MakeFeed) -> None:
    before = orjson.loads(orjson.dumps(dict(make_feed().identity())))
    check_identity(before, make_feed(), checkpoint="step-4")
    for other in (make_feed((0.5, 0.3, 0.2)), make_feed(stages=STAGES), make_feed(exhausted="stop")):
        with pytest.raises(DataChanged, match="the mixture changed"):
            check_identity(before, other, checkpoint="step-4")


class TestEpochs:
    def test_repeat_ends_with_the_step_in_which_the_last_part_has_been_read(self, make_feed: MakeFeed) -> None:
        feed = make_feed()
        rows = read(feed)
        assert set(rows) == set(range(36))
        assert len(set(rows[:-ROWS_PER_STEP]) & set(range(15, 36))) < 21

    def test_repeat_reads_each_part_pass_by_pass_without_losing_a_row(self, make_feed: MakeFeed) -> None:
        feed = make_feed()
        rows = [row for epoch in range(5) for row in read(feed, epoch)]
        for first, size in ((0, 12), (12, 3), (15, 21)):
            own = [row for row in rows if first <= row < first + size]
            passes = [own[start : start + size] for start in range(0, len(own) - size + 1, size)]
            assert all(sorted(one) == list(range(first, first + size)) for one in passes)
            assert len({tuple(one) for one in passes}) > 1, "in another order"

    def test_stop_ends_where_the_first_part_has_nothing_left_and_goes_on_there(self, make_feed: MakeFeed) -> None:
        feed = make_feed((1, 1, 1), parts=((16,), (40,), (50,)), exhausted="stop", rows_per_step=3)
        assert feed.num_rows == 48
        rows = [row for epoch in range(2) for row in read(feed, epoch)]
        assert Counter(row < 16 for row in rows) == {True: 32, False: 64}
        assert max(Counter(rows[:48]).values()) == 1
        others = Counter(row for row in rows if row >= 16)
        assert max(others.values()) == 1, "the second epoch reads what the first has not"

    def test_drop_has_each_row_once_an_epoch_and_keeps_the_proportions_of_the_others(self, make_feed: MakeFeed) -> None:
        feed = make_feed((8, 1, 1), parts=((40,), (100,), (60,)), exhausted="drop")
        epochs = [read(feed, epoch) for epoch in range(2)]
        assert all(sorted(rows) == list(range(200)) for rows in epochs)
        assert epochs[0] != epochs[1]
        part_of = [0 if row < 40 else 1 if row < 140 else 2 for row in epochs[0]]
        alone = 1 + max(place for place, part in enumerate(part_of) if part == 0)
        assert deviation(part_of[:alone], (8, 1, 1)) < 1
        gone = 1 + max(place for place, part in enumerate(part_of) if part == 2)
        assert deviation([part - 1 for part in part_of[alone:gone]], (1, 1)) < 1

    def test_less_than_a_step_is_refused(self, make_feed: MakeFeed) -> None:
        with pytest.raises(InvalidData, match="an epoch of the mixture has 0 rows, less than one batch of 8"):
            make_feed((1, 1, 1), exhausted="stop", parts=((1,), (40,), (40,)), rows_per_step=8)


class TestWhatGoesWrongElsewhere:
    def test_the_order_is_another_one_in_each_epoch(self, make_feed: MakeFeed) -> None:
        """hiyouga/LlamaFactory#10672: a mixture drawn once, with one seed, for all epochs."""
        feed = make_feed((1, 1), parts=((64,), (64,)))
        assert len({tuple(read(feed, epoch)) for epoch in range(4)}) == 4
        assert read(make_feed((1, 1), parts=((64,), (64,)), seed=4)) != read(feed)

    def test_parts_of_one_shape_are_shuffled_apart(self, make_feed: MakeFeed) -> None:
        rows = read(make_feed((1, 1), parts=((64,), (64,))))
        assert [row for row in rows if row < 64] != [row - 64 for row in rows if row >= 64]

    def test_the_parts_are_shuffled_and_still_are_behind_a_resume(self, make_feed: MakeFeed) -> None:
        """huggingface/datasets#7156: interleaved, the shuffling of the parts begins anew."""
        feed = make_feed((1, 1), parts=((32,), (32,)))
        rows = read(feed)
        own = [row for row in rows if row < 32]
        assert own != sorted(own)
        assert read(feed, rows=32) == rows[32:]

    def test_no_rank_reads_what_another_does_and_none_sees_one_part_alone(self, make_feed: MakeFeed) -> None:
        """huggingface/datasets#7567, #7868: workers and nodes draw the same rows of an interleaved dataset."""
        keys: dict[str, Any] = {"parts": ((200,), (200,)), "exhausted": "drop", "world_size": 2}
        ranks = [read(make_feed((1, 1), rank=rank, **keys)) for rank in range(2)]
        assert sorted(ranks[0] + ranks[1]) == list(range(400))
        for own in ranks:
            assert 80 < sum(row < 200 for row in own) < 120

    def test_the_proportions_hold_to_the_end_of_the_data(self, make_feed: MakeFeed) -> None:
        """huggingface/datasets#8669: probabilities that are wrong once a part is exhausted."""
        layout = make_feed((6, 3, 1), parts=((30,), (300,), (100,))).layout
        part_of = [np.searchsorted([30, 330], row, side="right").item() for row in rows_of(layout, 0, layout.num_rows)]
        assert deviation(part_of, (6, 3, 1)) < 1
        assert len(part_of) == 1000
