"""Advice about data whose shape costs reading twice, or mixes poorly."""

from collections.abc import Callable

import pytest

from hostcore.job.sections import DatasetSpec
from hostcore.worker.feed.feed import dataset_feed


@pytest.fixture
def warnings(memory: Callable) -> Callable[..., list[str]]:
    """``warnings([10] * 8, world_size=2, shuffle=True)``: what a feed of these shards warns of."""

    def of(shard_rows: list[int], *, world_size: int = 1, **keys: object) -> list[str]:
        spec = DatasetSpec(source="mock", batch_size=1, **keys)
        return list(
            dataset_feed(memory(shard_rows), spec, seed=0, pointer="/dataset", world_size=world_size).warnings()
        )

    return of


def test_data_in_many_shards_needs_none(warnings: Callable) -> None:
    for world_size in (1, 2, 3, 4, 6, 8, 12, 24):
        assert warnings([10] * 96, world_size=world_size, shuffle=True, shuffle_window=100) == []


def test_ranks_that_share_lanes_or_read_in_file_order_decode_more_than_their_share(warnings: Callable) -> None:
    (warning,) = warnings([10] * 96, world_size=4)
    assert warning.startswith("in file order each of 4 ranks decodes all of the data: set dataset.shuffle")
    (warning,) = warnings([10] * 96, world_size=5, shuffle=True)
    assert warning == (
        "each rank decodes about 5.6 times its share of the data: set dataset.lanes to 20, a multiple of the 5 ranks"
    )
    assert warnings([10] * 96, world_size=5, shuffle=True, lanes=20) == []


def test_too_few_shards_for_the_ranks_should_be_more(warnings: Callable) -> None:
    (warning,) = warnings([100] * 8, world_size=4, shuffle=True)
    assert warning == (
        "each rank decodes about 2.2 times its share of the data: "
        "write smaller row groups, 16 or more, and set dataset.lanes to 4, the number of ranks"
    )
    assert warnings([50] * 16, world_size=4, shuffle=True, lanes=4) == []


def test_more_lanes_than_shards_decode_shards_again_and_again(warnings: Callable) -> None:
    (warning,) = warnings([100] * 4, shuffle=True, lanes=24)
    assert warning == (
        "each rank decodes about 4.0 times its share of the data: "
        "lower dataset.lanes, or write smaller row groups, 96 or more"
    )


def test_row_groups_that_are_too_large_mix_poorly(warnings: Callable) -> None:
    (warning,) = warnings([1000], shuffle=True, shuffle_window=100)
    assert warning == (
        "the shuffle mixes poorly: the data has 1 shard (a row group is one), and a batch draws from 1 place at once: "
        "write smaller row groups, 32 or more, or set dataset.lanes to 8"
    )
    assert warnings([100] * 32, shuffle=True, shuffle_window=100) == []
