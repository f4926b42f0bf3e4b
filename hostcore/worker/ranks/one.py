"""A run of one process: its own answer is that of all ranks."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import attrs

from hostcore.worker.ranks.protocol import News

T = TypeVar("T")


@attrs.frozen
class OneRank:
    """See :class:`hostcore.worker.ranks.protocol.Ranks`."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    for_writing: None = None

    def any(self, flag: bool) -> bool:
        """Return the flag itself."""
        return flag

    def largest(self, values: Sequence[int]) -> list[int]:
        """Its own values."""
        return list(values)

    def begin_largest(self, values: Sequence[int]) -> Callable[[], list[int]]:
        """Its own values."""
        return lambda: list(values)

    def gather(self, value: Any) -> list[Any]:
        """Its own value."""
        return [value]

    def gather_beside(self, value: Any, receive: Callable[[list[Any]], T]) -> "Future[T]":
        """Its own value, at once."""
        done: Future[T] = Future()
        done.set_result(receive([value]))
        return done

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

    def carry(self, *news: News) -> None:
        """Do nothing: there is no other rank."""
