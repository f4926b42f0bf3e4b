"""How many requests a client may make."""

from collections.abc import Callable

import pytest
from fastapi.testclient import TestClient
from served import codes

from hostcore_service.http.problems import RequestError
from hostcore_service.http.rate import RateLimit


class Clock:
    """A clock that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def allowed(limit: RateLimit, client: str = "a") -> int:
    """How many requests come through, one after the other."""
    count = 0
    while True:
        try:
            limit.take(client)
        except RequestError:
            return count
        count += 1


def test_requests_come_in_bursts_and_at_a_rate_that_clients_do_not_share() -> None:
    clock = Clock()
    limit = RateLimit(60, clock)

    assert allowed(limit) == 15
    clock.now += 0.5
    assert allowed(limit) == 0
    clock.now += 0.5
    assert allowed(limit) == 1
    clock.now += 3600
    assert allowed(limit) == 15

    assert allowed(limit, "b") == 15, "clients do not share their requests"
    with pytest.raises(RequestError) as raised:
        limit.take("a")
    clock.now += int(raised.value.headers["Retry-After"])
    limit.take("a")
    for number in range(20_000):
        limit.take(str(number))
    assert allowed(limit) == 15, "of many the oldest are forgotten"


def test_a_client_that_asks_too_often_gets_429_but_probes_are_answered(client: Callable[..., TestClient]) -> None:
    service = client(http={"requests_per_minute": 1})
    service.headers["X-TRAINER-TOKEN"] = "wrong"
    answers = [service.get("/v1/jobs") for _ in range(2)]

    assert [answer.status_code for answer in answers] == [401, 429], "wrong tokens are counted too"
    assert codes(answers[-1]) == [("request.too_many", None)]
    assert int(answers[-1].headers["retry-after"]) > 0
    assert {service.get("/healthz").status_code for _ in range(20)} == {200}
