"""A server that answers what its test tells it to, and remembers what it was asked."""

import http.server
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import pytest
from cli_fixtures import hostcore

from hostcore_service.client.client import Client

__all__ = ["hostcore"]


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


@attrs.frozen(kw_only=True)
class Answer:
    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = attrs.field(factory=lambda: {"Content-Type": "application/json"})
    #: Whether the connection is cut behind the body, which should have gone on.
    cut: bool = False
    #: What the body waits for.
    after: threading.Event = attrs.field(factory=_set)


@attrs.frozen(kw_only=True)
class Asked:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@attrs.define(eq=False)
class Script:
    """The answers, in their order, the last one again and again; or what makes the answer to a request."""

    answers: Sequence[Answer] | Callable[[Asked], Answer]
    port: int = 0
    asked: list[Asked] = attrs.field(factory=list)
    #: What the client has told people, and how long it has waited.
    told: list[str] = attrs.field(factory=list)
    slept: list[float] = attrs.field(factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, **more: Any) -> Client:
        return Client(self.url, tell=self.told.append, sleep=self.slept.append, **more)

    def answer(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        if callable(self.answers):
            return self.answers(asked)
        return self.answers[min(len(self.asked), len(self.answers)) - 1]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Script]]:
    """``script(Answer(status=503), Answer())`` or ``script(answer_to)``: a server that answers so."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    servers = []

    def make(*answers: Any) -> Script:
        made = Script(answers[0] if callable(answers[0]) else answers)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(made))
        made.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return made

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def ask(hostcore: Callable, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """``ask(server, "list")``: a command about the runs of a server."""

    def call(server: Script, *arguments: str) -> Any:
        monkeypatch.setattr(Client, "of", lambda _url: server.client())
        return hostcore(*arguments, "--server", server.url)

    return call


@pytest.fixture
def answer() -> type[Answer]:
    return Answer


def _handler(script: Script) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked = Asked(method=self.command, path=self.path, headers=dict(self.headers), body=body)
            answer = script.answer(asked)
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body) + answer.cut))
            self.end_headers()
            assert answer.after.wait(60)
            self.wfile.write(answer.body)
            self.close_connection = True

        do_GET = do_POST = _answer  # noqa: N815 - the names that the library calls

        def log_message(self, *_: object) -> None:
            pass

    return Handler
