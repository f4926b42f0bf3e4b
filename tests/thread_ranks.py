"""Ranks in threads: the real ones take seconds to start, and these go through many of their orders.

The real ones are in ``tests/e2e/ranks_worker``.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs


class Room:
    """Where the threads meet: everybody leaves a value and takes those of all."""

    def __init__(self, count: int) -> None:
        self._barrier = threading.Barrier(count, timeout=120)
        self._values: list[Any] = [None] * count
        #: How often they have met.
        self.meetings = 0

    def exchange(self, rank: int, value: Any) -> list[Any]:
        self._values[rank] = value
        if self._barrier.wait() == 0:
            self.meetings += 1
        values = list(self._values)
        self._barrier.wait()
        return values


@attrs.frozen
class ThreadRank:
    """One of several ranks; see :class:`hostcore.worker.ranks.protocol.Ranks`."""

    rank: int
    world_size: int
    room: Room
    local_rank: int = 0
    for_writing: None = None

    def any(self, flag: bool) -> bool:
        return any(self.gather(flag))

    def largest(self, values: Sequence[int]) -> list[int]:
        return [max(column) for column in zip(*self.gather(list(values)), strict=True)]

    def begin_largest(self, values: Sequence[int]) -> Callable[[], list[int]]:
        return lambda: self.largest(values)

    def gather(self, value: Any) -> list[Any]:
        return self.room.exchange(self.rank, value)

    def barrier(self) -> None:
        self.gather(None)

    def close(self) -> None:
        """There is nothing to leave."""


def together(count: int, action: Callable[[ThreadRank], Any]) -> list[Any]:
    """Call an action on so many ranks at once; return what it returns or raises on each."""
    room = Room(count)
    with ThreadPoolExecutor(max_workers=count) as threads:
        calls = [threads.submit(action, ThreadRank(rank, count, room)) for rank in range(count)]
        return [call.exception() or call.result() for call in calls]
