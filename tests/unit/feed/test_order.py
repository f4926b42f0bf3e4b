"""The order of the rows. The literal numbers may never change: checkpoints of older versions stand for them."""

import random

import numpy as np
import pytest

from hostcore.worker.feed.order import (
    LAYOUT,
    RowRange,
    Share,
    ShuffledOrder,
    default_lanes,
    in_file_order,
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

    @pytest.mark.parametrize(
        ("shards", "lanes"),
        [
            (0, 1),
            (1, 1),
            (4, 1),
            (7, 1),
            (8, 2),
            (15, 2),
            (16, 4),
            (31, 4),
            (32, 8),
            (47, 8),
            (48, 12),
            (95, 12),
            (96, 24),
        ],
    )
    def test_the_lanes_follow_from_the_number_of_shards(self, shards: int, lanes: int) -> None:
        assert default_lanes(shards) == lanes

    def test_there_are_never_more_than_24_lanes(self) -> None:
        assert default_lanes(1_000_000) == 24


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


class TestAPosition:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_is_found_in_its_window(self, seed: int) -> None:
        order = random_order(seed)
        whole = order.lane_rows * order.lanes
        for position in range(order.num_rows):
            window, offset = order.window_of(position)
            if position >= whole:
                assert (window, offset) == (order.num_windows, position - whole)
            else:
                before = window * order.lane_window * order.lanes
                assert position == before + offset
                assert 0 <= offset < order.window_rows(window) * order.lanes

    def test_behind_the_last_row_is_behind_the_last_window(self) -> None:
        order = ShuffledOrder(shard_rows=[10], seed=0, epoch=0, lanes=2, window=4)
        assert order.window_of(10) == (order.num_windows, 0)


class TestAShare:
    @pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5, 8, 24, 25])
    @pytest.mark.parametrize("seed", SEEDS)
    def test_of_a_window_is_every_so_manieth_of_its_positions(self, seed: int, world_size: int) -> None:
        order = random_order(seed)
        for window in range(order.num_windows):
            begin, rows = window * order.lane_window * order.lanes, order.window_rows(window)
            whole = order.gather(window)
            for rank in range(world_size):
                share = Share(rank=rank, world_size=world_size)
                lanes = share.lanes(order.lanes)
                for offset in {0, len(whole) // 2, len(whole) - 1}:
                    gathered = order.gather(window, share, offset)
                    lane, row = gathered // rows, gathered % rows
                    joined = (np.array(lanes)[lane] * rows + row).tolist()
                    mine = [int(whole[i]) for i in range(offset, len(whole)) if (begin + i) % world_size == rank]
                    assert joined == mine, f"random_order({seed}), rank {rank} of {world_size}"

    def test_has_only_the_lanes_it_needs(self) -> None:
        lanes = [list(Share(rank=rank, world_size=4).lanes(6)) for rank in range(4)]
        assert lanes == [[0, 2, 4], [1, 3, 5], [0, 2, 4], [1, 3, 5]]


class TestRowNumbers:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_of_any_range_are_those_that_its_reader_reads(self, seed: int) -> None:
        order, rng = random_order(seed), random.Random(seed)
        starts = np.concatenate([[0], np.cumsum(order.shard_rows)])
        for _ in range(20):
            start = rng.randint(0, order.lane_rows)
            read = [int(starts[part.shard]) + part.start + i for part in order.lane(0, start) for i in range(part.rows)]
            assert order.row_numbers(start, order.lane_rows).tolist() == read, f"random_order({seed}), {start}"

    def test_of_nothing_are_none(self) -> None:
        order = ShuffledOrder(shard_rows=[3, 4], seed=0, epoch=0, lanes=2, window=4)
        assert [order.row_numbers(place, place).tolist() for place in (0, 3, 7)] == [[], [], []]


class TestSorting:
    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("different", [3, 50, 2**63])
    def test_equal_words_keep_their_order(self, seed: int, different: int) -> None:
        words = np.random.default_rng(seed).integers(0, different, size=500, dtype=np.uint64)
        expected = sorted(range(500), key=lambda place: int(words[place]))
        assert stable_argsort(words).tolist() == expected, f"seed {seed}"


class TestInFileOrder:
    def test_all_shards_are_read_in_turn(self) -> None:
        assert in_file_order([2, 3], 0) == [RowRange(shard=0, start=0, rows=2), RowRange(shard=1, start=0, rows=3)]

    def test_whole_shards_before_a_position_are_skipped(self) -> None:
        assert in_file_order([2, 3, 4], 3) == [RowRange(shard=1, start=1, rows=2), RowRange(shard=2, start=0, rows=4)]

    def test_shards_without_rows_are_not_read(self) -> None:
        assert in_file_order([0, 2, 0], 0) == [RowRange(shard=1, start=0, rows=2)]

    def test_nothing_is_left_behind_the_end(self) -> None:
        assert in_file_order([2, 3], 5) == []
