"""The order of the rows. The literal numbers may never change: checkpoints of older versions stand for them."""

import random

import numpy as np
import pytest

from hostcore.worker.feed.order import (
    LAYOUT,
    RowRange,
    ShuffledOrder,
    default_lanes,
    permutation,
    stable_argsort,
)

SEEDS = range(12)


def positions(order: ShuffledOrder) -> list[int]:
    """The row at every position, straight from the text of the documentation, a row at a time."""
    starts = np.concatenate([[0], np.cumsum(order.shard_rows)])
    concatenated = [
        int(starts[shard]) + row
        for shard in permutation(len(order.shard_rows), seed=order.seed, epoch=order.epoch, stream=0)
        for row in range(order.shard_rows[shard])
    ]
    per_lane, per_window = len(concatenated) // order.lanes, max(1, order.window // order.lanes)
    lanes = []
    for lane in range(order.lanes):
        rows = concatenated[lane * per_lane : (lane + 1) * per_lane]
        permuted = []
        for window, start in enumerate(range(0, per_lane, per_window)):
            part = rows[start : start + per_window]
            places = permutation(len(part), seed=order.seed, epoch=order.epoch, stream=1, lane=lane, window=window)
            permuted += [part[place] for place in places]
        lanes.append(permuted)
    drawn = [lanes[p % order.lanes][p // order.lanes] for p in range(per_lane * order.lanes)]
    return drawn + concatenated[per_lane * order.lanes :]


def gathered(order: ShuffledOrder) -> list[int]:
    """The row at every position, by what the order tells its readers."""
    starts = np.concatenate([[0], np.cumsum(order.shard_rows)])

    def rows(ranges: list[RowRange]) -> list[int]:
        return [int(starts[part.shard]) + part.start + i for part in ranges for i in range(part.rows)]

    lanes = [rows(order.lane(lane, 0)) for lane in range(order.lanes)]
    drawn: list[int] = []
    for window in range(order.num_windows):
        count, begin = order.window_rows(window), window * order.lane_window
        joined = [row for lane in lanes for row in lane[begin : begin + count]]
        drawn += [joined[place] for place in order.gather(window)]
    return drawn + rows(order.left_over())


def random_order(seed: int) -> ShuffledOrder:
    rng = random.Random(seed)
    shard_rows = [rng.choice([0, 1, rng.randint(1, 60)]) for _ in range(rng.randint(1, 30))]
    shard_rows.append(rng.randint(1, 60))
    lanes = rng.randint(1, min(24, sum(shard_rows)))
    return ShuffledOrder(
        shard_rows=shard_rows,
        seed=rng.randint(0, 2**32 - 1),
        epoch=rng.randint(0, 5),
        lanes=lanes,
        window=rng.randint(lanes, lanes + 200),
    )


class TestTheLayoutIsPinned:
    def test_its_name_is_the_one_in_checkpoints(self) -> None:
        assert LAYOUT == "philox-lanes/1"

    @pytest.mark.parametrize(
        ("size", "place", "expected"),
        [
            (8, {"seed": 0, "epoch": 0, "stream": 0}, [0, 2, 1, 5, 4, 3, 6, 7]),
            (8, {"seed": 7, "epoch": 3, "stream": 0}, [2, 5, 7, 3, 0, 6, 4, 1]),
            (8, {"seed": 7, "epoch": 3, "stream": 1, "lane": 2, "window": 5}, [3, 4, 6, 0, 1, 5, 7, 2]),
            (6, {"seed": 2**32 - 1, "epoch": 1, "stream": 1, "lane": 1}, [4, 2, 0, 5, 1, 3]),
            (1, {"seed": 1, "epoch": 0, "stream": 1}, [0]),
            (0, {"seed": 1, "epoch": 0, "stream": 1}, []),
        ],
    )
    def test_a_permutation_is_the_argsort_of_philox(self, size: int, place: dict, expected: list[int]) -> None:
        assert permutation(size, **place).tolist() == expected

    @pytest.mark.parametrize(
        ("epoch", "expected"),
        [
            (0, [16, 10, 15, 12, 14, 11, 3, 13, 4, 8, 5, 7, 9, 1, 6, 0, 2]),
            (1, [11, 8, 9, 6, 10, 7, 13, 15, 12, 14, 3, 16, 4, 1, 5, 0, 2]),
        ],
    )
    def test_an_epoch_of_five_shards_in_two_lanes(self, epoch: int, expected: list[int]) -> None:
        order = ShuffledOrder(shard_rows=[3, 4, 2, 5, 3], seed=7, epoch=epoch, lanes=2, window=6)
        assert gathered(order) == expected

    @pytest.mark.parametrize("seed", SEEDS)
    def test_it_is_what_the_documentation_says_row_by_row(self, seed: int) -> None:
        order = random_order(seed)
        assert gathered(order) == positions(order), f"random_order({seed})"

    def test_the_lanes_follow_from_the_number_of_shards(self) -> None:
        lanes = {0: 1, 7: 1, 8: 2, 15: 2, 16: 4, 31: 4, 32: 8, 47: 8, 48: 12, 95: 12, 96: 24, 1_000_000: 24}
        assert {shards: default_lanes(shards) for shards in lanes} == lanes


class TestAnEpoch:
    def test_neighbours_come_from_all_lanes(self) -> None:
        order = ShuffledOrder(shard_rows=[10] * 16, seed=0, epoch=0, lanes=4, window=40)
        shards = permutation(16, seed=0, epoch=0, stream=0).tolist()
        for batch in np.array(gathered(order)).reshape(-1, 4):
            places = sorted(shards.index(row // 10) // 4 for row in batch)
            assert places == [0, 1, 2, 3]

    def test_a_window_without_a_row_for_every_lane_still_moves_one_of_each(self) -> None:
        order = ShuffledOrder(shard_rows=[10], seed=0, epoch=0, lanes=4, window=1)
        assert order.lane_window == 1
        assert sorted(gathered(order)) == list(range(10))


class TestSorting:
    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("different", [3, 50, 2**63])
    def test_equal_words_keep_their_order(self, seed: int, different: int) -> None:
        words = np.random.default_rng(seed).integers(0, different, size=500, dtype=np.uint64)
        expected = sorted(range(500), key=lambda place: int(words[place]))
        assert stable_argsort(words).tolist() == expected, f"seed {seed}"
