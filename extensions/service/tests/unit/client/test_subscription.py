"""Streams of server-sent events, over as many connections as they take."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from hostcore_hookspecs.errors import HostcoreError
from hostcore_service.client.subscription import subscribe

STREAM = {"Content-Type": "text/event-stream"}


def sse(*numbers: int, end: bool = False) -> bytes:
    text = "".join(f'id: {number}\nevent: metrics\ndata: {{"seq":{number}}}\n\n' for number in numbers)
    return (text + ('event: end\ndata: {"status":"succeeded"}\n\n' if end else "")).encode()


def test_a_lost_connection_is_made_again_behind_the_last_event(script: Callable, answer: Any) -> None:
    strange = ": a comment\n\nid: 1\r\nevent: metrics\r\ndata: first\r\ndata:é\r\n\r\nevent: nothing\n\n"
    server = script(
        answer(body=strange.encode() + sse(2) + b"id: 3\nevent: metr", headers=STREAM, cut=True),
        answer(status=503, headers={"Retry-After": "3"}),
        answer(body=sse(3), headers=STREAM),
        answer(body=sse(4, end=True), headers=STREAM),
    )
    client = server.client()
    first, *rest = subscribe(client, "/events", query={"rank": 1})
    assert (first.event, first.data, first.last_id) == ("metrics", "first\né", "1")
    assert [(one.event, one.last_id) for one in rest] == [*(("metrics", one) for one in "234"), ("end", "4")]
    assert [one.headers.get("Last-Event-ID") for one in server.asked] == [None, "2", "2", "3"]
    assert {one.path for one in server.asked} == {"/events?rank=1"}
    assert {one.headers["Accept"] for one in server.asked} == {"text/event-stream"}
    assert server.slept[1] == 3, "the service has asked for so long"
    assert [line.rpartition("; ")[2] for line in server.told] == [
        "trying again (the run does not depend on it)",
        f"{client.url} answers again",
    ]


def test_a_refusal_is_no_lost_connection(script: Callable, answer: Any) -> None:
    body = b'{"errors": [{"code": "run.unknown", "detail": "there is no run"}]}'
    server = script(answer(status=404, headers={"Content-Type": "application/problem+json"}, body=body))
    with pytest.raises(HostcoreError, match="there is no run"):
        list(subscribe(server.client(), "/events"))
    assert len(server.asked) == 1


def test_a_service_that_was_away_for_too_long_is_given_up(script: Callable, answer: Any) -> None:
    server = script(answer(status=503))
    minutes = itertools.count(step=300)
    with pytest.raises(HostcoreError, match="has not answered for 35 minutes") as raised:
        list(subscribe(server.client(), "/events", clock=lambda: float(next(minutes))))
    assert raised.value.code == "service.unreachable"


@pytest.mark.parametrize("said", [b": still here\n\n", b""], ids=["heartbeats", "nothing"])
def test_a_service_that_answers_is_not_given_up_however_long_it_has_no_news(
    script: Callable, answer: Any, said: bytes
) -> None:
    """What stands between ends each connection after a while."""
    cut = answer(body=said, headers=STREAM, cut=True)
    server = script(*[cut] * 20, answer(body=sse(1, end=True), headers=STREAM))
    minutes = itertools.count(step=600)
    client = server.client()
    found = [one.event for one in subscribe(client, "/events", clock=lambda: float(next(minutes)))]
    assert found == ["metrics", "end"]
    assert len(server.asked) == 21
    assert max(server.slept[:20]) <= 5
    if said:
        assert (server.told, max(server.slept) <= 0.25) == ([], True), "it lives: no word of it, and no longer waits"
    else:
        assert server.slept[19] > server.slept[0], "it is not asked again and again at once"
        assert [line.rpartition("; ")[2] for line in server.told] == [
            "trying again (the run does not depend on it)",
            f"{client.url} answers again",
        ]
