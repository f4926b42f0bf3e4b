"""A run's events made by hand, and a server that answers as a test tells it."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest

from hostcore_hookspecs import Event, Job, ReporterContext
from hostcore_hookspecs.events import Payload

#: When the runs of these tests were submitted.
SUBMITTED_MS = 1_700_000_000_000


@attrs.define
class Course:
    """The events of a run, numbered, a second apart, and written to its log."""

    run_dir: Path
    run_id: str = "flights-1"
    job: Job = attrs.field(factory=Job)
    submitted_ms: int = SUBMITTED_MS
    events: list[Event] = attrs.field(factory=list)
    attempt: int = 1

    def tell(self, payload: Payload, *, step: int | None = None, epoch: int | None = 0) -> Event:
        """One more event."""
        seq = len(self.events) + 1
        event = Event(
            seq=seq,
            time_ms=self.submitted_ms + (seq - 1) * 1000,
            run_id=self.run_id,
            attempt=self.attempt,
            step=step,
            epoch=epoch,
            payload=payload,
        )
        self.events.append(event)
        log = self.run_dir / "logs" / "events.jsonl"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as opened:
            opened.write(orjson.dumps(event.as_dict(), default=dict, option=orjson.OPT_APPEND_NEWLINE))
        return event

    def ctx(self, *, last_seq: int = 0) -> ReporterContext:
        return ReporterContext(
            run_id=self.run_id, attempt=self.attempt, job=self.job, run_dir=str(self.run_dir), last_seq=last_seq
        )


@pytest.fixture
def course(tmp_path: Path) -> Callable[..., Course]:
    """``course(run_id="flights-1", job=Job(…))``: a run without events."""

    def make(name: str = "run", **fields: Any) -> Course:
        run_dir = tmp_path / "runs" / name
        run_dir.mkdir(parents=True)
        return Course(run_dir, **fields)

    return make


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

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.server = server
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}/hook"
    yield state
    state.may_answer.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def answer() -> type[Answer]:
    """``receiver.answers.append(answer(status=503))``."""
    return Answer
