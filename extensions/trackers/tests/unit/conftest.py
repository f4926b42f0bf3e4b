"""A server that answers as a test tells it."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs
import orjson
import pytest
from http_serving import serving


@attrs.frozen
class Request:
    """What arrived."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


@attrs.frozen
class Answer:
    """What is answered."""

    status: int = 200
    headers: Mapping[str, str] = attrs.field(factory=dict)
    body: bytes = b""


@attrs.define(eq=False)
class Receiver:
    """Notes requests, and answers."""

    url: str = ""
    requests: list[Request] = attrs.field(factory=list)
    #: What the next requests are answered with; then it is success.
    answers: list[Answer] = attrs.field(factory=list)
    connections: int = 0
    server: Any = None
    #: Set: answer. Clear: wait.
    may_answer: threading.Event = attrs.field(factory=threading.Event)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A real HTTP server on this machine."""
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    state = Receiver()
    state.may_answer.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            state.connections += 1

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            state.requests.append(Request(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            state.may_answer.wait(30)
            answer = state.answers.pop(0) if state.answers else Answer()
            self.send_response(answer.status)
            for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(ConnectionError):  # nobody has to read it all
                self.wfile.write(answer.body)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *args: object) -> None:
            """Quiet."""

    state.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with serving(state.server) as address:
        state.url = f"{address}/hook"
        yield state
        state.may_answer.set()


@pytest.fixture
def answer() -> type[Answer]:
    """``receiver.answers.append(answer(status=503))``."""
    return Answer
