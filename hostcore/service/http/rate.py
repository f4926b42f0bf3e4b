"""How many requests a client may make: a bucket of tokens for each, refilled evenly."""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from hostcore.service.http.problems import RequestError

#: Clients that are remembered; of more, those that were seen last.
_MOST_CLIENTS: Final = 10_000
#: The part of a minute's requests that may come at once.
_BURST: Final = 0.25


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
