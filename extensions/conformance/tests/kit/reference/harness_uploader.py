"""The other side of uploaders that put files: an HTTP server that shows a file when it has all of it."""

import os
import socket
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, unquote

TOKEN = "reference-token-2718281828"
VARIABLE = "HOSTCORE_REFERENCE_UPLOAD_TOKEN"


class Store:
    """Keeps files by their URL."""

    #: Of the settings below, no call takes as long as this.
    patience_seconds = 9.0

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        #: What is still taken before a transfer breaks off; None: it does not.
        self._left: int | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> "Store":
        os.environ[VARIABLE] = TOKEN
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        os.environ.pop(VARIABLE, None)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def settings(self) -> dict[str, Any]:
        token = {"$secret": f"env:{VARIABLE}"}
        return {"url": f"{self.address}/store", "token": token, "timeout_seconds": 4.0}

    def read(self, uri: str) -> bytes | None:
        path = unquote(uri.removeprefix(self.address)) if uri.startswith(self.address) else ""
        return self.files.get(path)

    def objects(self) -> Sequence[str]:
        return [f"{self.address}{quote(path)}" for path in list(self.files)]

    def fail_next(self) -> None:
        self._left = 2 << 20

    def breaks_off(self, size: int) -> bool:
        """Whether a request with a body of so many bytes breaks off."""
        if self._left is None:
            return False
        self._left -= size
        if self._left > 0:
            return False
        self._left = None
        return True


def _handler(store: Store) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        @property
        def key(self) -> str:
            return unquote(self.path.partition("?")[0].partition("#")[0])

        def do_PUT(self) -> None:
            size = int(self.headers["Content-Length"])
            if store.breaks_off(size):
                self.rfile.read(size // 2)
                # The client gets an error instead of an end.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                self.connection.close()
                self.close_connection = True
                return
            content = self.rfile.read(size)
            if len(content) < size:  # the client is gone
                self.close_connection = True
                return
            if begin := self.headers["Content-Range"]:  # what a server should not take: a part, in place
                at = int(begin.removeprefix("bytes ").partition("-")[0])
                before = store.files.get(self.key, b"")
                content = before[:at] + content + before[at + size :]
            store.files[self.key] = content
            self.answer(204)

        def do_GET(self) -> None:
            content = store.files.get(self.key)
            self.answer(404 if content is None else 200, content or b"")

        do_HEAD = do_GET  # noqa: N815

        def answer(self, status: int, content: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def finish(self) -> None:
            try:
                super().finish()
            except (OSError, ValueError):  # it was reset
                return

        def log_message(self, *_: object) -> None:
            """Quiet."""

    return Handler
