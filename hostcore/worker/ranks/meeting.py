"""Agreement of the ranks: on requests to stop, and on everything else that one of them knows first.

A signal, a supervisor's message or a callback's request reaches each rank at another moment. If a rank acted at once,
the others would hang in their next collective. So a request is only noted, and takes effect at an
*agreement*: one all-reduce of a few integers, after the same step on all ranks. How many steps lie between two of them
is agreed as well. Where it is more than one, the all-reduce begins a step before: no rank waits for the others then.
"""

import time
import zlib
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from hostcore.worker.ranks.one import NoMeeting
from hostcore.worker.ranks.protocol import Meeting, News, Ranks
from hostcore.worker.requests import Requests
from hostcore.worker.stop import EndRequest, StopSwitch
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.run_state import RunState

#: What lies between two agreements, about.
_SECONDS_APART: Final = 1.0
#: Beats between two agreements, at most: a run of fast steps that slows down must not lose touch.
_MOST_BEATS: Final = 32
#: How long a rank waits in a backoff before it looks after the others.
_NAP_SECONDS: Final = 0.5


class RanksDisagree(HostcoreError):
    """The ranks do different things, so that the next collective would hang."""

    code = "ranks.disagree"


@attrs.frozen(kw_only=True)
class _OpenAgreement:
    """Own part of an agreement that has begun."""

    #: Its requests to stop, and where it was.
    own: list[EndRequest]
    here: str
    #: How often the news of each kind had been acted upon.
    acted: list[int]
    answer: Callable[[], list[int]]


class AgreedStop(StopSwitch):
    """The requests to stop that all ranks know of, and the meeting at which they exchange them.

    As a switch it changes at agreements alone, on all ranks alike: the same requests in the same order. What several
    ranks ask for in the same words is one request.

    See also :class:`hostcore.worker.ranks.protocol.Meeting`.

    :param local: Takes the requests that reach this rank.
    :param where: Where this rank is, in words: must be the same on all of them.
    """

    def __init__(
        self,
        local: StopSwitch,
        ranks: Ranks,
        *,
        where: Callable[[], str] = str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._where = where
        self._news: Sequence[News] = ()
        self._local = local
        self._ranks = ranks
        self._clock = clock
        self._known: set[EndRequest] = set()
        self._since = clock()
        #: Since the last agreement, and from there to the next.
        self._beats, self._until = 0, 1
        self._asked: _OpenAgreement | None = None

    def request(self, reason: str, requested_by: str, *, status: str = "succeeded") -> None:
        """Ask the run to stop; takes effect at the next agreement."""
        self._local.request(reason, requested_by, status=status)

    def beat(self) -> None:
        """Agree, if it is time to; this rank sends its part a beat before."""
        self._beats += 1
        if self._beats >= self._until:
            self._agree("a step or batch")
        elif self._beats == self._until - 1:
            self._asked = self._ask("a step or batch")

    def meet(self) -> None:
        """Agree now, on everything known now."""
        if self._asked is not None:
            self._agree("a step or batch")
        self._agree("a meeting")

    def carry(self, *news: News) -> None:
        """Spread news of these kinds from now on."""
        self._news = news

    def sleep(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Wait until the time is over on all ranks, or until one of them is asked to stop. A collective."""
        if self._asked is not None:
            self._agree("a step or batch")
        end, waiting = clock() + seconds, True
        while waiting and not self.requested:
            self._local.sleep(min(_NAP_SECONDS, end - clock()), clock=clock)
            waiting = self._agree("a backoff", waiting=clock() < end)

    def _agree(self, what: str, *, waiting: bool = False) -> bool:
        """Complete an agreement.

        :param what: At what this rank is.
        :param waiting: Whether it wants to wait on.
        :return: Whether any of them does.
        """
        told, self._asked = self._asked or self._ask(what, waiting=waiting), None
        asked, beats, most, least, waits, *known = told.answer()
        if most != -least:
            raise _disagreement(self._ranks.gather(told.here))
        self._beats, self._until, self._since = 0, -beats, self._clock()
        for news, is_known, acted in zip(self._news, known, told.acted, strict=False):  # carried since: not asked
            if is_known and news.acted == acted:
                news.news_here, news.has_news = False, True
        if asked:
            for request in (EndRequest(*one) for each in self._ranks.gather(told.own) for one in each):
                if request not in self._known:
                    self._known.add(request)
                    super().request(request.reason, request.requested_by, status=request.status)
        return bool(waits)

    def _ask(self, what: str, *, waiting: bool = False) -> _OpenAgreement:
        """Begin an agreement: send this rank's part."""
        own, here = list(self._local.unheard()), f"{what} of {self._where()}"
        mark = zlib.crc32(here.encode())
        known = [one.news_here for one in self._news]
        answer = self._ranks.begin_largest([bool(own), -self._affordable_beats(), mark, -mark, waiting, *known])
        return _OpenAgreement(own=own, here=here, acted=[one.acted for one in self._news], answer=answer)

    def _affordable_beats(self) -> int:
        """Return the number of beats between two agreements that this rank can afford."""
        if not self._beats:
            return self._until
        seconds = (self._clock() - self._since) / self._beats
        return max(1, min(int(_SECONDS_APART / max(seconds, 1e-9)), _MOST_BEATS))


def convene(switch: StopSwitch, ranks: Ranks, *, where: Callable[[], str]) -> tuple[StopSwitch, Meeting]:
    """Return the requests to stop that the loop checks, and the meeting at which they are agreed."""
    if ranks.world_size == 1:
        return switch, NoMeeting()
    agreed = AgreedStop(switch, ranks, where=where)
    return agreed, agreed


def in_words(run_state: RunState, requests: Requests) -> str:
    """Describe the position of a rank, and the requests of its components: the same on all ranks."""
    asked = [f"{one.metric} {one.value} is the best" for one in requests.owed.best]
    if requests.owed.restore is not None:
        asked.append(f"go back to step {requests.owed.restore[0]}")
    return ", ".join([f"step {run_state.step}", *asked])


def _disagreement(places: Sequence[str]) -> RanksDisagree:
    told = "; ".join(f"rank {rank} is at {place}" for rank, place in enumerate(places))
    return RanksDisagree(
        f"the ranks do not do the same: {told}",
        hint="all ranks must ask for the same, and return the same `control`, at the same step: decide by values that "
        "all of them have, or with ctx.any_rank()",
    )
