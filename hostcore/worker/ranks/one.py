"""A run of one process: whatever it says is what all say."""

from collections.abc import Sequence
from typing import Any

import attrs

from hostcore.worker.ranks.protocol import News


@attrs.frozen
class OneRank:
    """See :class:`hostcore.worker.ranks.protocol.Ranks`."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    for_writing: None = None

    def any(self, flag: bool) -> bool:
        """What it says itself."""
        return flag

    def largest(self, values: Sequence[int]) -> list[int]:
        """Its own values."""
        return list(values)

    def gather(self, value: Any) -> list[Any]:
        """Its own value."""
        return [value]

    def barrier(self) -> None:
        """Nothing: there is no other rank to wait for."""

    def close(self) -> None:
        """There is nothing to leave."""


class NoMeeting:
    """See :class:`hostcore.worker.ranks.protocol.Meeting`: a single rank agrees with itself at once."""

    def beat(self) -> None:
        """Nothing: there is no other rank to meet."""

    def meet(self) -> None:
        """Nothing: there is no other rank to meet."""

    def carry(self, news: News) -> None:
        """Nothing: there is no other rank to tell."""
