"""The root cause of a failed attempt: the first failure among its ranks, from their reports and their exit codes.

When a rank fails or dies, the collectives of the others break off, and they report that. The first failure is reported;
a failure that only says that another rank is gone counts after all others.
"""

import re
import signal
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import attrs

from hostcore.events.merger import Entry
from hostcore.supervisor.workers.session import Member
from hostcore_hookspecs.errors import RunError
from hostcore_hookspecs.events import RunFailed

#: Exceptions of ``torch.distributed``, and the host's own when ranks do not find each other.
_OF_COLLECTIVES: Final = re.compile(r"Dist\w*Error|CannotJoin")
#: How the libraries beneath say that the other side of a collective is gone, or does not answer.
_BROKEN_OFF: Final = re.compile(
    r"gloo/.*(Connection|[Tt]imed out|closed|reset)|gloo::EnforceNotMet|ProcessGroup(NCCL|Gloo)|NCCL error"
    r"|torch\.distributed\.Dist\w*Error"
)


@attrs.frozen(kw_only=True)
class Failure:
    """A rank's failure, as it says itself, or as its death tells."""

    rank: int
    #: Milliseconds since 1970.
    time_ms: int
    error: RunError
    #: Whether it only says that others are gone.
    is_consequence: bool = False
    #: Whether it stands in the rank's log.
    is_in_log: bool = False


def is_consequence(error: RunError) -> bool:
    """Whether an error says nothing but that a collective with other ranks has broken off."""
    return bool(_OF_COLLECTIVES.fullmatch(error.type) or _BROKEN_OFF.search(f"{error.message}\n{error.traceback}"))


def has_failed(members: Iterable[Member], said: Mapping[int, Entry], told: Mapping[int, Failure]) -> bool:
    """Whether any rank has failed, so that the others cannot go on. See :func:`first_failure`."""
    by_word = bool(told) or any(isinstance(entry.payload, RunFailed) for entry in said.values())
    return by_word or any(_died(member) and member.rank not in said for member in members)


def first_failure(
    members: Iterable[Member],
    said: Mapping[int, Entry],
    told: Mapping[int, Failure],
    *,
    of_death: Callable[[Member], RunError],
) -> Failure | None:
    """The failure that the others follow from; None if no rank has failed.

    A rank that died without a terminal event, and was not killed from here, has failed.

    :param said: The terminal events of the ranks.
    :param told: What ranks have said over the line, because their logs could not take it.
    :param of_death: The error of a rank that died.
    """
    silent = [member for member in members if _died(member) and member.rank not in {*said, *told}]
    deaths = [
        Failure(
            rank=member.rank,
            time_ms=member.ended_ms or 0,
            error=of_death(member),
            is_consequence=_was_aborted(member),
        )
        for member in silent
    ]
    return _first([*_failures(said), *told.values(), *deaths])


def deciding_rank(said: Mapping[int, Entry], failure: Failure | None = None) -> int | None:
    """The rank whose terminal event tells how the attempt has ended; None if that is a failure that stands in no log.

    A rank that only lost its connection to ranks that had ended in good order has not failed.

    :param said: The terminal events of the ranks; empty only if there is a failure.
    :param failure: The first; None to look for it in ``said``.
    """
    failure = failure or _first(_failures(said))
    orderly = {rank: entry for rank, entry in said.items() if not isinstance(entry.payload, RunFailed)}
    if failure is None:
        return min(orderly)
    if failure.is_consequence and any((entry.time_ms or 0) <= failure.time_ms for entry in orderly.values()):
        return min(orderly)
    return failure.rank if failure.is_in_log else None


def _failures(said: Mapping[int, Entry]) -> list[Failure]:
    return [
        Failure(
            rank=rank,
            time_ms=entry.time_ms or 0,
            error=entry.payload.error,
            is_consequence=is_consequence(entry.payload.error),
            is_in_log=True,
        )
        for rank, entry in said.items()
        if isinstance(entry.payload, RunFailed)
    ]


def _first(failures: Iterable[Failure]) -> Failure | None:
    return min(failures, key=lambda one: (one.is_consequence, one.time_ms, one.rank), default=None)


def _died(member: Member) -> bool:
    return member.exit is not None and not member.was_killed


def _was_aborted(member: Member) -> bool:
    """Whether a process was aborted from within because others were gone, as the watchdog of NCCL does."""
    aborted = member.exit is not None and member.exit.signal == signal.SIGABRT
    return aborted and _BROKEN_OFF.search(member.tail()) is not None
