"""Doing something on all ranks, or on the first for all of them, such that none waits for one that could not.

Only errors that the host itself may meet are sent to the others: its own, and those of a file system. A
plugin's exception ends its rank, which the others notice, wherever they are in the plugin's code.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import attrs

from hostcore.worker.ranks.protocol import Exchange
from hostcore_hookspecs.errors import HostcoreError

T = TypeVar("T")


class DistributedError(HostcoreError):
    """Error on this rank because of another one: its error, or its end. The other's own error has the details."""

    code = "ranks.other"
    #: The number of the other's :class:`OSError`; None if it was none.
    errno: int | None = None


@attrs.frozen(kw_only=True)
class _RankError:
    """Error of a rank, in plain values."""

    message: str
    code: str | None
    errno: int | None
    hint: str | None

    @classmethod
    def of(cls, error: HostcoreError | OSError) -> "_RankError":
        if isinstance(error, OSError):
            return cls(message=str(error), code=None, errno=error.errno, hint=None)
        return cls(message=error.message, code=error.code, errno=None, hint=error.hint)

    def as_error(self, rank: int) -> DistributedError:
        error = DistributedError(f"rank {rank}: {self.message}", code=self.code, hint=self.hint)
        error.errno = self.errno
        return error


def on_all(ranks: Exchange, action: Callable[[], T]) -> list[T]:
    """Do something on every rank, without a collective in it. A collective itself.

    :param action: Returns plain values.
    :return: What it returned on each rank.
    :raises HostcoreError, OSError: The error of the first rank that could not, on all of them: on that rank itself
        its own, on the others a :class:`DistributedError` of the same code or number.
    """
    if ranks.world_size == 1:
        return [action()]
    own: HostcoreError | OSError | None = None
    value: Any = None
    try:
        value = action()
    except (HostcoreError, OSError) as error:
        own = error
    told = ranks.gather(value if own is None else _RankError.of(own))
    for rank, each in enumerate(told):
        if isinstance(each, _RankError):
            raise own if own is not None and rank == ranks.rank else each.as_error(rank)
    return told


def on_first(ranks: Exchange, action: Callable[[], T]) -> T:
    """Do something on the first rank, for all; see :func:`on_all`."""
    return on_all(ranks, lambda: action() if ranks.rank == 0 else None)[0]  # type: ignore[return-value]
