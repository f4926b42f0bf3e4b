"""Interface of the ranks: a few collectives, and an agreement on when to stop.

A collective is called by all ranks at the same place in the run, or the run hangs.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")


class Exchange(Protocol):
    """Ranks that exchange values."""

    @property
    def rank(self) -> int:
        """Its place among all of them."""

    @property
    def world_size(self) -> int:
        """Number of ranks."""

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, by rank, on every rank. A collective.

        :param value: Plain values: numbers, text, bytes, None, and lists, tuples and dictionaries of them.
        """


class Ranks(Exchange, Protocol):
    """The processes that train together, as one of them sees them."""

    @property
    def local_rank(self) -> int:
        """Its place among those of its machine."""

    @property
    def for_writing(self) -> Any:
        """A process group for one more thread of each rank; None for a single rank. A collective the first time."""

    def gather_beside(self, value: Any, receive: Callable[[list[Any]], T]) -> "Future[T]":
        """Gather without waiting: a thread calls ``receive`` with the values of all ranks, by rank.

        A collective that never mixes with the others: all ranks begin the same ones in the same order, and each may
        wait for the result when it likes, or not at all.

        :param value: As for :meth:`gather`.
        :return: What ``receive`` returns or raises; the error of the collective when it broke off.
        """

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set on any rank. A collective."""

    def largest(self, values: Sequence[int]) -> list[int]:
        """At each place the largest of all ranks' values. A collective.

        :param values: Integers of 64 bits; as many on every rank.
        """

    def begin_largest(self, values: Sequence[int]) -> Callable[[], list[int]]:
        """The same without waiting for the others: what it returns waits. A collective, where it begins."""

    def barrier(self) -> None:
        """Wait for all of them. A collective."""

    def close(self) -> None:
        """Leave. Nothing happens the second time."""


class News(Protocol):
    """Facts that one rank knows first, and all are to act upon after the same step."""

    #: Whether this rank knows. Set by any thread.
    news_here: bool
    #: Whether all know. Read by the loop at every step.
    has_news: bool
    #: How often they have acted upon it.
    acted: int


class Meeting(Protocol):
    """Agreement of the ranks on requests to stop, which reach each of them at another time."""

    def beat(self) -> None:
        """To be called by all ranks after the same step or batch of an evaluation. Now and then a collective."""

    def meet(self) -> None:
        """Agree now. A collective; for places that come seldom, such as the end of an epoch."""

    def carry(self, *news: News) -> None:
        """Spread news of these kinds from now on."""
