"""The digest: the same for every way to read the same rows, and another for any other rows."""

import random
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import orjson
import pytest

from hostcore.job.sections import DatasetSpec
from hostcore.worker.feed.digest import OrderLayout, expected_digest, row_digest
from hostcore.worker.feed.feed import Cursor, DatasetFeed, MockFeed, dataset_feed

SEEDS = range(12)
MODULUS = 1 << 64
GAMMA = 0x9E3779B97F4A7C15


def mix(word: int) -> int:
    """``mix64variant13``, as the paper has it."""
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % MODULUS
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % MODULUS
    return word ^ (word >> 31)


def term(epoch: int, position: int, row: int) -> int:
    """One term of the sum, straight from the documentation."""
    return mix(mix((epoch + (position + 1) * GAMMA) % MODULUS) ^ row)


def stored(feed: DatasetFeed | MockFeed) -> OrderLayout:
    """The layout of a feed as it comes back from a checkpoint."""
    host = orjson.loads(orjson.dumps({"data": dict(feed.identity()), "shard_rows": list(feed.shard_rows)}))
    return OrderLayout.stored(host["data"], host["shard_rows"])


class TestTheSumIsPinned:
    def test_literally(self) -> None:
        positions, rows = np.arange(5), np.array([4, 0, 3, 1, 2])
        assert row_digest(0, positions, rows) == 12942369125070646261
        assert row_digest(3, positions, rows) == 5430356688062657031
        assert row_digest(0, np.arange(0), np.arange(0)) == 0
        first_output_of_seed_0 = 0xE220A8397B1DCDAF  # of splitmix64
        assert row_digest(0, np.array([0]), np.array([0])) == mix(first_output_of_seed_0)

    @pytest.mark.parametrize("seed", SEEDS)
    def test_it_is_what_the_documentation_says_row_by_row(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        epoch = int(rng.integers(0, 100))
        positions, rows = rng.integers(0, 2**40, size=(2, 100))
        expected = sum(term(epoch, int(position), int(row)) for position, row in zip(positions, rows, strict=True))
        assert row_digest(epoch, positions, rows) == expected % MODULUS, f"seed {seed}"

    def test_of_many_rows_it_is_the_sum_of_its_pieces(self) -> None:
        rows = np.random.default_rng(0).permutation(100_000)
        pieces = [row_digest(2, np.arange(start, start + 7_000), rows[start : start + 7_000]) for start in (0, 7_000)]
        pieces.append(row_digest(2, np.arange(14_000, 100_000), rows[14_000:]))
        assert row_digest(2, np.arange(100_000), rows) == sum(pieces) % MODULUS


class TestItTells:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_a_row_skipped_repeated_or_swapped(self, seed: int) -> None:
        rng = random.Random(seed)
        order = rng.sample(range(1000), 200)
        place, other = rng.sample(range(len(order) - 1), 2)
        skipped = [*order[:place], *order[place + 1 :]]
        repeated = [*order[: place + 1], *order[place:-1]]
        swapped = order.copy()
        swapped[place], swapped[other] = order[other], order[place]
        digests = {row_digest(0, np.arange(len(rows)), np.array(rows)) for rows in (order, skipped, repeated, swapped)}
        assert len(digests) == 4, f"seed {seed}"

    def test_the_same_rows_in_another_epoch_or_a_position_on(self) -> None:
        rows = np.arange(50)
        digests = {row_digest(epoch, np.arange(start, start + 50), rows) for epoch in (0, 1) for start in (0, 1)}
        assert len(digests) == 4


class TestReadRows:
    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("shuffle", [False, True])
    def test_any_split_into_stretches_and_ranks_sums_up_to_what_is_expected(
        self, memory: Callable, seed: int, shuffle: bool
    ) -> None:
        rng = random.Random(seed)
        shard_rows = [rng.randint(0, 30) for _ in range(rng.randint(1, 12))] + [24]
        lanes = rng.choice([None, rng.randint(1, 24)])
        window = rng.randint(1, 2 * sum(shard_rows))

        def feed(rank: int, world_size: int) -> DatasetFeed:
            spec = DatasetSpec(
                source="mock",
                batch_size=12 // world_size,
                shuffle=shuffle,
                lanes=lanes,
                shuffle_window=window,
                readahead=rng.randint(0, 3),
            )
            dataset = memory(shard_rows, piece=rng.randint(1, 20))
            return dataset_feed(dataset, spec, seed=seed, pointer="/dataset", rank=rank, world_size=world_size)

        steps = sum(shard_rows) // 12
        total, begin, layout = 0, Cursor(), stored(feed(0, 1))
        for epoch in range(3):
            done = 0
            while done < steps:
                world_size, until = rng.choice([1, 2, 3, 4]), rng.randint(done + 1, steps)
                for rank in range(world_size):
                    stream = feed(rank, world_size).stream(Cursor(epoch=epoch, rows=done * 12))
                    for _, _ in zip(range(until - done), stream, strict=False):
                        pass
                    stream.close()
                    total += stream.digest(until * 12)
                done = until
                assert expected_digest(layout, begin, Cursor(epoch=epoch, rows=done * 12)) == total % MODULUS, f"{seed}"
        assert expected_digest(layout, begin, Cursor(epoch=3)) == total % MODULUS, f"seed {seed}"

    def test_it_is_that_of_the_rows_that_came(self, memory: Callable) -> None:
        spec = DatasetSpec(source="mock", batch_size=8, shuffle=True, shuffle_window=40)
        stream = dataset_feed(memory([20] * 8), spec, seed=1, pointer="/dataset").stream(Cursor(epoch=1, rows=16))
        rows = np.array([row for batch in stream for row in batch["n"].to_pylist()])
        assert stream.digest(160) == row_digest(1, np.arange(16, 160), rows)

    @pytest.mark.parametrize("readahead", [0, 2])
    def test_batches_that_were_taken_ahead_do_not_count(self, memory: Callable, readahead: int) -> None:
        spec = DatasetSpec(source="mock", batch_size=8, shuffle=True, shuffle_window=40, readahead=readahead)
        feed = dataset_feed(memory([20] * 8), spec, seed=1, pointer="/dataset")
        stream, layout = feed.stream(Cursor()), stored(feed)
        assert len(list(stream)) == 20
        for step in range(21):
            assert stream.digest(step * 8) == expected_digest(layout, Cursor(), Cursor(rows=step * 8))

    def test_the_first_steps_of_a_window_of_very_many_have_theirs(self, memory: Callable) -> None:
        spec = DatasetSpec(source="mock", batch_size=1, shuffle=True)
        feed = dataset_feed(memory([500] * 80), spec, seed=1, pointer="/dataset")
        stream, layout, done = feed.stream(Cursor()), stored(feed), 0
        for done, _ in enumerate(stream, 1):
            if done in (1, 3, 20_000, 40_000):
                assert stream.digest(done) == expected_digest(layout, Cursor(), Cursor(rows=done))
        assert done == 40_000

    def test_there_is_none_within_a_step_or_beyond_what_was_given_out(self, memory: Callable) -> None:
        spec = DatasetSpec(source="mock", batch_size=8, readahead=0)
        stream = dataset_feed(memory([8] * 4), spec, seed=1, pointer="/dataset").stream(Cursor(rows=8))
        next(iter(stream))
        for position in (0, 12, 24):
            with pytest.raises(ValueError, match=f"no digest at position {position} of a stream from 8 on"):
                stream.digest(position)


class TestExpected:
    def test_each_epoch_ends_with_its_last_whole_step(self) -> None:
        layout = OrderLayout(shard_rows=(7, 4), rows_per_step=3)
        both = sum(term(epoch, row, row) for epoch in (0, 1) for row in range(9))
        assert expected_digest(layout, Cursor(), Cursor(epoch=2)) == both % MODULUS
        assert expected_digest(layout, Cursor(rows=9), Cursor(epoch=1)) == 0

    @pytest.mark.parametrize("keys", [{}, {"seed": 9, "lanes": 3, "window": 12}], ids=["file", "shuffled"])
    def test_stretches_add_up(self, keys: dict[str, int]) -> None:
        layout = OrderLayout(shard_rows=(40, 31, 50), rows_per_step=4, **keys)
        cursors = [Cursor(), Cursor(rows=36), Cursor(epoch=1), Cursor(epoch=2, rows=120), Cursor(epoch=3, rows=4)]
        parts = [expected_digest(layout, since, until) for since, until in pairwise(cursors)]
        assert expected_digest(layout, cursors[0], cursors[-1]) == sum(parts) % MODULUS

    def test_an_order_of_a_later_version_is_refused(self) -> None:
        with pytest.raises(ValueError, match="the order 'philox-lanes/2' is not known to this version"):
            OrderLayout.stored({"order": "philox-lanes/2"}, [3])

    def test_mock_batches_count_by_their_place_and_without_any_it_is_0(self) -> None:
        feed = MockFeed(mock_batches=["a", "b", "c"])
        first, second = feed.stream(Cursor(epoch=4)), feed.stream(Cursor(epoch=4, rows=2))
        expected = expected_digest(stored(feed), Cursor(epoch=4), Cursor(epoch=5))
        assert (first.digest(2) + second.digest(3)) % MODULUS == expected
        assert MockFeed().stream(Cursor()).digest(1000) == 0
        assert expected_digest(stored(MockFeed()), Cursor(), Cursor(rows=1000)) == 0
