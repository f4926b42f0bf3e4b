"""Advice about data whose shape costs reading twice, or mixes poorly. Shown by ``hostcore validate``."""

import math
from collections.abc import Iterator
from typing import Final

from hostcore.worker.feed.digest import OrderLayout

#: What a rank may decode, as a multiple of its own share, without a warning.
_DECODED_TIMES: Final = 1.5
#: Lanes that mix well.
_MIXING_LANES: Final = 8
#: More add nothing.
_ENOUGH_LANES: Final = 24
#: With fewer, reading partial shards where lanes begin costs too much.
_SHARDS_PER_LANE: Final = 4


def advice(layout: OrderLayout, world_size: int) -> Iterator[str]:
    """Sentences that name what is not good about the order of some data, each with the remedy."""
    shards, lanes = len(layout.shard_rows), layout.lanes
    if not lanes:
        if world_size > 1:
            yield (
                f"in file order each of {world_size} ranks decodes all of the data: set dataset.shuffle, so that each "
                "decodes its share"
            )
        return
    times = world_size / math.gcd(world_size, lanes) * (1 + lanes / (2 * shards))
    if times > _DECODED_TIMES:
        yield f"each rank decodes about {times:.1f} times its share of the data: {_remedy(shards, lanes, world_size)}"
    if lanes < _MIXING_LANES and sum(layout.shard_rows) > layout.window:
        yield (
            f"the shuffle mixes poorly: the data has {shards:,} shard{'s' * (shards > 1)} (a row group is one), and a "
            f"batch draws from {lanes} place{'s' * (lanes > 1)} at once: write smaller row groups, "
            f"{_MIXING_LANES * _SHARDS_PER_LANE} or more, or set dataset.lanes to {_MIXING_LANES}"
        )


def _remedy(shards: int, lanes: int, world_size: int) -> str:
    if lanes > shards:
        return f"lower dataset.lanes, or write smaller row groups, {_SHARDS_PER_LANE * lanes:,} or more"
    possible = shards // _SHARDS_PER_LANE // world_size
    if possible:
        wanted = world_size * min(possible, max(1, _ENOUGH_LANES // world_size))
        return f"set dataset.lanes to {wanted}, a multiple of the {world_size} ranks"
    enough = _SHARDS_PER_LANE * world_size
    return f"write smaller row groups, {enough:,} or more, and set dataset.lanes to {world_size}, the number of ranks"
