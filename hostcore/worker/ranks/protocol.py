"""What the host needs of the ranks: a few collectives, and an agreement on when to stop.

A collective is called by all ranks at the same place in the run, or the run hangs.
"""

from typing import Any, Protocol


class Ranks(Protocol):
    """The processes that train together, as one of them sees them."""

    @property
    def rank(self) -> int:
        """Its place among all of them."""

    @property
    def local_rank(self) -> int:
        """Its place among those of its machine."""

    @property
    def world_size(self) -> int:
        """How many there are."""

    def any(self, flag: bool) -> bool:
        """Whether any of them says so. A collective."""

    def gather(self, value: Any) -> list[Any]:
        """Everybody's value, by rank, on every rank. A collective.

        :param value: Plain values: numbers, text, bytes, None, and lists, tuples and dictionaries of them.
        """

    def barrier(self) -> None:
        """Wait for all of them. A collective."""

    def close(self) -> None:
        """Leave. Nothing happens the second time."""


class Meeting(Protocol):
    """How the ranks agree on requests to stop, which each of them may hear at another time."""

    def beat(self) -> None:
        """To be called by all ranks after the same step or batch of an evaluation. Now and then a collective."""

    def meet(self) -> None:
        """Agree now. A collective; for places that come seldom, such as the end of an epoch."""
