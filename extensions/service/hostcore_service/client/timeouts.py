"""The wait for a service that does not answer, and its messages for the user."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from hostcore_service.client.answers import ServiceUnreachable, Unavailable
from hostcore_service.client.client import Client, pause_after

T = TypeVar("T")

#: A service that was away for so long is given up: longer than a restart or an update takes.
_GIVE_UP_SECONDS: Final = 1800.0


class AbsenceTimer:
    """Timer of a client that follows a job while its service is away; the job does not depend on it."""

    def __init__(self, client: Client, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._away_since: float | None = None
        self._losses = 0

    def connected(self) -> None:
        """Record a connection; its data is still to come."""
        self._away_since = None

    def answered(self) -> None:
        """Record an answer."""
        if self._losses > 1:
            self._client.tell(f"{self._client.url} answers again")
        self._away_since, self._losses = None, 0

    def received(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Pass on the pieces of a stream; each is an answer, a heartbeat as well."""
        for piece in pieces:
            self.answered()
            yield piece

    def wait_after(self, lost: Unavailable) -> float:
        """Return the seconds until the next try.

        :raises ServiceUnreachable: When the service was away for too long.
        """
        now = self._clock()
        self._away_since = now if self._away_since is None else self._away_since
        away = now - self._away_since
        if away > _GIVE_UP_SECONDS:
            raise _given_up(self._client.url, away) from lost
        self._losses += 1
        if self._losses == 2:  # a proxy that ends a connection now and then is not worth a word
            self._client.tell(f"{lost.message}; trying again (the run does not depend on it)")
        return max(lost.after_seconds, pause_after(self._losses))


def asked_until_answered(client: Client, ask: Callable[[], T], *, meanwhile: Callable[[], None] = lambda: None) -> T:
    """Repeat a request until it is answered.

    :param ask: Called until it raises no :class:`Unavailable`.
    :param meanwhile: Called before each wait.
    :raises ServiceUnreachable: When the service was away for too long.
    """
    absence = AbsenceTimer(client)
    while True:
        try:
            answer = ask()
        except Unavailable as lost:
            wait = absence.wait_after(lost)
            meanwhile()
            client.sleep(wait)
        else:
            absence.answered()
            return answer


def _given_up(url: str, seconds: float) -> ServiceUnreachable:
    return ServiceUnreachable(
        f"{url} has not answered for {seconds / 60:.0f} minutes",
        hint="the run does not depend on it; `hostcore status` shows its state, once the service is back",
    )
