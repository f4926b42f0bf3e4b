"""Clients that keep the service waiting, at a real server."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
import urllib3
import uvicorn
from waiting import wait_until

from hostcore_service.http.connections import Connections, Patience, quiet_about_full_tables
from hostcore_service.http.problems import RequestError
from hostcore_service.jobs.streams import Streams

#: More than the system keeps of what a client does not read.
LARGE = 8 << 20
HALF_A_HEAD = b"GET / HTTP/1.1\r\nHost: a\r\nX-Waits: "
HALF_A_BODY = b"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf"
HANGING = b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n"


class App:
    """Answers ``/hang`` when it is told to, ``/flood`` without end, ``/large`` with a large body, and all else at once;
    ``/body`` once the body is there."""

    def __init__(self) -> None:
        self.hanging = 0
        self.flooded = 0
        self._go_on = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def answer(self) -> None:
        """Answer all that hang; called from another thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._go_on.set)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        gone = asyncio.ensure_future(self._body(receive))
        if scope["path"] == "/body":
            await gone
        if scope["path"] == "/hang":
            self._loop = asyncio.get_running_loop()
            self.hanging += 1
            await self._go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/flood":
            await gone
            gone = asyncio.ensure_future(receive())  # it returns when the client is gone
            while not gone.done():
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
                await asyncio.sleep(0)
            self.flooded += 1
        await send({"type": "http.response.body", "body": b"x" * LARGE if scope["path"] == "/large" else b""})

    async def _body(self, receive: Any) -> None:
        while (await receive()).get("more_body"):
            pass


class Served:
    """A server in a thread of its own."""

    def __init__(self, connections: Connections) -> None:
        self.app = App()
        listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = listening.getsockname()[1]
        self.server = uvicorn.Server(
            uvicorn.Config(
                connections.within(self.app),
                http=connections.protocol(),
                lifespan="off",
                log_config=None,
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(target=self.server.run, args=([listening],))
        self._thread.start()

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join()

    def connect(self, sent: bytes) -> socket.socket:
        one = socket.create_connection(("127.0.0.1", self.port), timeout=300)
        one.sendall(sent)
        return one

    def get(self, path: str) -> Any:
        with urllib3.PoolManager(retries=False) as pool:
            return pool.request("GET", f"http://127.0.0.1:{self.port}{path}", timeout=300)


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """``serve(head=0.2)``: a server that waits so long for the head of a request, and for all else as good as ever."""
    made: list[Served] = []

    def make(*, most: int = 64, **patience: float) -> Served:
        made.append(Served(Connections(most, Patience(**{"head": 600, "body": 600, "read": 600, **patience}))))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def is_closed(one: socket.socket) -> bool:
    """Whether the server closes a connection without a word; it is waited for."""
    try:
        return one.recv(1 << 16) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize(("waits_for", "sent"), [("head", HALF_A_HEAD), ("head", b""), ("body", HALF_A_BODY)])
def test_a_request_that_does_not_come_to_its_end_is_given_up(serve: Any, waits_for: str, sent: bytes) -> None:
    server = serve(**{waits_for: 0.2})
    with server.connect(sent) as one:
        assert is_closed(one)


def test_a_head_that_comes_byte_by_byte_is_given_up(serve: Any) -> None:
    server = serve(head=0.5)
    with server.connect(HALF_A_HEAD) as one:
        one.settimeout(0.05)
        with suppress(ConnectionError):
            while True:
                with suppress(TimeoutError):
                    assert one.recv(1 << 16) == b""
                    return
                one.sendall(b"x")


def test_a_request_that_is_being_answered_is_waited_for(serve: Any) -> None:
    server = serve(head=2, body=2)  # longer than this thread takes to send what it has to say
    with server.connect(HANGING) as one, server.connect(HALF_A_HEAD) as other:
        assert is_closed(other)
        server.app.answer()
        assert one.recv(100).startswith(b"HTTP/1.1 200")


def test_a_client_that_does_not_read_is_given_up(serve: Any) -> None:
    server = serve(read=0.2)
    with server.connect(b"GET /flood HTTP/1.1\r\nHost: a\r\n\r\n"):
        wait_until(lambda: server.app.flooded, "the server to give the client up")


LARGE_ANSWERS = [b"GET /large HTTP/1.1\r\n%s\r\n\r\n" % head for head in (b"Host: a", b"Host: a\r\nConnection: close")]


def test_a_large_answer_has_the_time_that_its_client_takes(serve: Any) -> None:
    server = serve(head=2)
    with ExitStack() as stack:
        slow = [stack.enter_context(server.connect(request)) for request in LARGE_ANSWERS]
        assert [one.recv(12) for one in slow] == [b"HTTP/1.1 200"] * 2
        with server.connect(HALF_A_HEAD) as other:
            assert is_closed(other), "more time has passed than the next head may take"
        for one in slow:
            read = 0
            while read < LARGE and (piece := one.recv(1 << 20)):
                read += len(piece)
            assert read >= LARGE


def test_a_large_answer_is_not_kept_for_a_client_that_does_not_read_it(serve: Any) -> None:
    server = serve(read=0.2)
    for request in LARGE_ANSWERS:
        with server.connect(request) as one:
            assert one.recv(12) == b"HTTP/1.1 200"
            wait_until(lambda: not server.server.server_state.connections, "the server to give the client up")


def test_answers_that_are_not_read_and_bodies_that_do_not_come_make_room(serve: Any) -> None:
    for request, count, answered in ((HALF_A_BODY, 60, b""), (LARGE_ANSWERS[0], 40, b"HTTP/1.1 200")):
        server = serve(most=40)
        with ExitStack() as stack:
            for _ in range(count):
                one = stack.enter_context(server.connect(request))
                assert one.recv(len(answered)) == answered
            assert server.get("/healthz").status == 200


def test_the_connection_that_has_waited_longest_makes_room_for_a_new_one(serve: Any) -> None:
    server = serve(most=64)
    with ExitStack() as stack:
        hanging = stack.enter_context(server.connect(HANGING))
        wait_until(lambda: server.app.hanging == 1, "the request to be answered")
        half_open = [stack.enter_context(server.connect(HALF_A_HEAD)) for _ in range(200)]
        assert server.get("/").status == 200
        assert all(is_closed(one) for one in half_open[:137])
        half_open[-1].sendall(b"\r\n\r\n")
        assert half_open[-1].recv(100).startswith(b"HTTP/1.1 200")
        server.app.answer()
        assert hanging.recv(100).startswith(b"HTTP/1.1 200")


def test_a_probe_is_answered_when_as_many_requests_as_can_be_are(serve: Any) -> None:
    server = serve(most=64)
    with ExitStack() as stack:
        for _ in range(32):
            stack.enter_context(server.connect(HANGING))
        wait_until(lambda: server.app.hanging == 32, "the requests to be answered")
        refused = server.get("/")
        assert (refused.status, refused.headers["retry-after"], refused.headers["connection"]) == (503, "10", "close")
        assert refused.json()["errors"][0]["code"] == "service.busy"
        assert [server.get(path).status for path in ("/healthz", "/readyz")] == [200, 200]
        server.app.answer()


def test_there_are_so_many_streams_and_no_more() -> None:
    streams = Streams(most=2)
    streams.open = 1
    streams.require_room()
    streams.open = 2
    with pytest.raises(RequestError, match="2 streams are open") as refused:
        streams.require_room()
    assert refused.value.headers["Retry-After"]


def test_a_full_table_of_files_is_a_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    times = iter((1000.0, 1000.0, 1030.0, 1060.0, 1060.0))
    handle = quiet_about_full_tables(lambda: next(times))
    full = {"message": "socket.accept() out of system resource", "exception": OSError(24, "Too many open files")}
    loop = asyncio.new_event_loop()
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            handle(loop, full)
        handle(loop, {"message": "another"})
    loop.close()
    assert [(record.name, record.exc_info) for record in caplog.records] == [
        ("hostcore_service", None),
        ("hostcore_service", None),
        ("asyncio", False),
    ]
    assert "Too many open files" in caplog.text
