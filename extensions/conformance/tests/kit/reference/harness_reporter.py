"""The other side of reporters that post events: an HTTP server, which can refuse and hang."""

import json
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "reference-token-3141592653"
VARIABLE = "HOSTCORE_REFERENCE_TOKEN"


class Sink:
    """Keeps events, each once by its key."""

    #: Of the settings below, no call takes as long as this.
    patience_seconds = 8.0
    #: What was taken is seen at once.
    settle_seconds = 0.2

    def __init__(self) -> None:
        self._events: dict[str, Mapping[str, Any]] = {}
        self._well = threading.Event()
        self._well.set()
        self._refuses = False
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> "Sink":
        os.environ[VARIABLE] = TOKEN
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        os.environ.pop(VARIABLE, None)

    @property
    def settings(self) -> dict[str, Any]:
        token = {"$secret": f"env:{VARIABLE}"}
        return {"url": f"http://127.0.0.1:{self._server.server_port}/events", "token": token, "timeout_seconds": 2.0}

    def received(self) -> Sequence[Mapping[str, Any]]:
        return list(self._events.values())

    def refuse(self) -> None:
        self._refuses = True

    def hang(self) -> None:
        self._well.clear()

    def heal(self) -> None:
        self._refuses = False
        self._well.set()

    def take(self, key: str, body: bytes) -> int | None:
        """The status of the answer; None: there is none, and nothing was taken."""
        if not self._well.is_set():
            self._well.wait()
            return None
        if self._refuses:
            return 503
        self._events.setdefault(key, json.loads(body, parse_constant=_refuse_constant))
        return 204

    def forget(self, run_id: str) -> None:
        self._events = {key: event for key, event in self._events.items() if event.get("run_id") != run_id}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _handler(sink: Sink) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status: int | None
            try:
                status = sink.take(self.headers["Idempotency-Key"], body)
            except ValueError:
                status = 400
            if status is None:
                self.close_connection = True
                return
            with suppress(OSError):  # nobody waits for the answer any more
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def do_DELETE(self) -> None:
            sink.forget(self.path.rpartition("/")[2])
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    return Handler
