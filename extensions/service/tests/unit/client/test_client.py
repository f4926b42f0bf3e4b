"""Requests to a service: what is tried again, what is not, and what is said of it."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from hostcore.errors import Errors, described
from hostcore_hookspecs.errors import HostcoreError
from hostcore_service.client.answers import Unavailable
from hostcore_service.client.client import Client

HTML = {"Content-Type": "text/html"}
PROBLEM = {"Content-Type": "application/problem+json"}


def problem(*errors: dict[str, Any]) -> bytes:
    return json.dumps({"type": f"urn:hostcore:problem:{errors[0]['code']}", "errors": errors, "detail": "all"}).encode()


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_service_that_is_busy_is_asked_again(script: Callable, answer: Any, status: int) -> None:
    server = script(answer(status=status, headers=HTML), answer(status=status, headers=HTML), answer(body=b'{"a": 1}'))
    client = server.client(token="let-me-in")
    assert client.post("/x", {"b": 2}, headers={"Idempotency-Key": "k"}) == {"a": 1}
    assert [one.body for one in server.asked] == [b'{"b":2}'] * 3
    assert {one.headers["Idempotency-Key"] for one in server.asked} == {"k"}
    assert {one.headers["X-TRAINER-TOKEN"] for one in server.asked} == {"let-me-in"}
    assert len(server.told) == 1, "people are told once"
    assert "let-me-in" not in server.told[0]


@pytest.mark.parametrize(("token", "says"), [("1234567", "a secret, has fewer"), ("line\nline of it", "")])
def test_a_token_that_cannot_be_hidden_or_sent_is_refused(
    monkeypatch: pytest.MonkeyPatch, token: str, says: str
) -> None:
    monkeypatch.setenv("TRAINER_API_TOKEN", token)
    with pytest.raises(HostcoreError, match="TRAINER_API_TOKEN") as raised:
        Client.of("http://127.0.0.1:8321")
    told = described(raised.value)
    assert (says in told, token in told, "line of it" in told) == (True, False, False)
    assert raised.value.code == "secret.value" or not says


def test_retry_after_is_heeded_unless_it_is_long_and_a_service_that_stays_away_is_given_up(
    script: Callable, answer: Any
) -> None:
    short = script(answer(status=503, headers={"Retry-After": "7"}), answer())
    short.client().get("/x")
    assert 7 in short.slept
    full = problem({"code": "service.full", "detail": "3 jobs wait already", "hint": "try again when one has ended"})
    long = script(answer(status=429, headers={**PROBLEM, "Retry-After": "60"}, body=full), answer())
    with pytest.raises(HostcoreError, match="3 jobs wait already"):
        long.client().get("/x")
    assert (len(long.asked), long.slept) == (1, [])
    away = script(answer(cut=True))
    with pytest.raises(HostcoreError) as raised:
        away.client().get("/x")
    assert (raised.value.code, len(away.asked)) == ("service.unreachable", 5)


@pytest.mark.parametrize(
    ("status", "headers", "body", "code"),
    [
        (503, PROBLEM, problem({"code": "service.database", "detail": "the database is away"}), "service.database"),
        (429, PROBLEM, problem({"code": "request.too_many", "detail": "later"}), "request.too_many"),
        (429, HTML, b"<html>", "service.unreachable"),
        (502, HTML, b"<html>", "service.unreachable"),
    ],
)
def test_what_another_try_may_change_is_of_one_class_for_whoever_tries_again_itself(
    script: Callable, answer: Any, status: int, headers: Any, body: bytes, code: str
) -> None:
    server = script(answer(status=status, headers={**headers, "Retry-After": "5"}, body=body))
    client = server.client()

    def stream() -> None:
        with client.stream("/x", accept="text/event-stream"):
            pass

    for ask in (lambda: client.get("/x", once=True), lambda: client.post("/x", {}, once=True), stream):
        with pytest.raises(Unavailable) as raised:
            ask()
        assert (raised.value.code, raised.value.after_seconds) == (code, 5)
    assert (len(server.asked), server.slept, server.told) == (3, [], [])


def test_a_redirect_is_not_followed(script: Callable, answer: Any) -> None:
    server = script(answer(status=307, headers={"Location": "http://elsewhere.example/x"}))
    for ask in (lambda: server.client().get("/x"), lambda: server.client().post("/x", {})):
        with pytest.raises(HostcoreError, match=r"redirects to http://elsewhere\.example/x"):
            ask()
    assert [one.method for one in server.asked] == ["GET", "POST"]


def test_everything_that_a_problem_tells_is_told(script: Callable, answer: Any) -> None:
    errors = [
        {"code": "value.type", "detail": "expected an integer", "pointer": "/max_steps", "hint": None},
        {"code": "policy.denied", "detail": "not at night", "pointer": None, "hint": "come in the morning"},
    ]
    server = script(answer(status=400, headers=PROBLEM, body=problem(*errors)))
    with pytest.raises(Errors) as raised:
        server.client().post("/x", {})
    assert [(one.code, one.message, one.pointer, one.hint) for one in raised.value.errors] == [
        ("value.type", "expected an integer", "/max_steps", None),
        ("policy.denied", "not at night", None, "come in the morning"),
    ]
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("status", "headers", "body", "code", "says"),
    [
        (404, HTML, b"<html>", "service.foreign", "no hostcore service: it answers 404 Not Found, text/html"),
        (200, HTML, b"<html>", "service.foreign", "its answer is not JSON"),
        (500, HTML, b"", "service.unreachable", "answers 500 Internal Server Error"),
        (400, PROBLEM, b"nonsense", "service.foreign", "answers 400"),
        (401, PROBLEM, problem({"code": "request.unauthorized", "detail": "no"}), "request.unauthorized", "a token"),
    ],
)
def test_what_is_no_answer_of_a_service_is_one_error(
    script: Callable, answer: Any, status: int, headers: Any, body: bytes, code: str, says: str
) -> None:
    with pytest.raises(HostcoreError, match=says) as raised:
        script(answer(status=status, headers=headers, body=body)).client().get("/x")
    assert raised.value.code == code
    assert raised.value.hint


def test_a_proxy_of_the_environment_is_used_and_told_who_asks(
    script: Callable, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = script(answer(body=b'{"by": "proxy"}'))
    monkeypatch.setenv("no_proxy", "")
    for user in ("http://", "me:a%40b@"):
        monkeypatch.setenv("http_proxy", f"{user}127.0.0.1:{proxy.port}")
        asked = Client("http://service.example/base/").get("/x", status=["failed", "lost"], cursor=None, limit=2)
        assert asked == {"by": "proxy"}
    assert {one.path for one in proxy.asked} == {"http://service.example/base/x?status=failed&status=lost&limit=2"}
    assert [one.headers.get("proxy-authorization") for one in proxy.asked] == [None, "Basic bWU6YUBi"]


def test_a_proxy_that_cannot_be_used_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "socks5://me:a-password@proxy.example:1")
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(HostcoreError, match="HTTP_PROXY names no proxy") as caught:
        Client("http://service.example").get("/x")
    assert "a-password" not in str(caught.value)


def test_a_handshake_that_is_cut_off_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as ingress:
        connections = []

        def cut_off() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = ingress.accept()
                    connections.append(connection.recv(1 << 16))  # all of it: what is left unread resets the connection
                    connection.close()

        threading.Thread(target=cut_off, daemon=True).start()
        with pytest.raises(Unavailable):
            Client(f"https://127.0.0.1:{ingress.getsockname()[1]}", sleep=lambda _: None).get("/x")
        assert len(connections) > 1
