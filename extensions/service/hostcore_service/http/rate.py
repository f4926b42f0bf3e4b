"""Rate limit of requests: a bucket of tokens for each client, refilled evenly."""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from hostcore_service.http.problems import RequestError, problem, status_of

#: Clients that are remembered; of more, those that were seen last.
_MOST_CLIENTS: Final = 10_000
#: The part of a minute's requests that may come at once.
_BURST: Final = 0.25
#: Liveness of the service, and readiness to take jobs.
PROBES: Final = ("/healthz", "/readyz")
#: Probes share an address with the clients behind the same proxy, and must not be taken for a service that is dead. The
#: files of the page cost nothing, and a browser asks for all of them at once.
_FREE: Final = (*PROBES, "/assets/")


class RateLimit:
    """A limit on the requests of each client.

    :param per_minute: 0: no limit.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_minute / 60
        self._size = max(1.0, per_minute * _BURST)
        self._clock = clock
        self._lock = threading.Lock()
        #: By client: how many requests it may make, and when that was.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> None:
        """Count a request.

        :raises RequestError: 429, with ``Retry-After``.
        """
        if not self._rate:
            return
        now = self._clock()
        with self._lock:
            left, since = self._buckets.pop(client, (self._size, now))
            left = min(self._size, left + (now - since) * self._rate)
            allowed = left >= 1
            self._buckets[client] = (left - 1 if allowed else left, now)
            if len(self._buckets) > _MOST_CLIENTS:
                self._buckets.popitem(last=False)
        if not allowed:
            wait = math.ceil((1 - left) / self._rate)
            raise RequestError(
                f"more than {self._rate * 60:.0f} requests a minute",
                code="request.too_many",
                hint=f"try again in {wait} s",
                headers={"Retry-After": str(wait)},
            )


class Limited:
    """An ASGI application behind a limit. It touches no response, so that streams stay streams."""

    def __init__(self, app: ASGIApp, limit: RateLimit) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse with 429."""
        if scope["type"] == "http" and not scope["path"].startswith(_FREE):
            client = scope.get("client")
            try:
                self._limit.take(client[0] if client else "")
            except RequestError as error:
                await problem(status_of(error), [error], error.headers)(scope, receive, send)
                return
        await self._app(scope, receive, send)
