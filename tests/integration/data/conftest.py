"""Files on a real HTTP server on loopback."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import attrs
import pytest
from loopback_server import serving


@attrs.define
class Server:
    """Serves the files of a folder, with ranges and ETags."""

    folder: Path
    address: str
    #: Method and bytes of content of each request.
    requests: list[tuple[str, int]] = attrs.field(factory=list)
    is_broken: bool = False
    #: Nothing is answered while it is not set.
    speaks: threading.Event = attrs.field(factory=threading.Event)

    def url(self, name: str) -> str:
        return f"http://{self.address}/{name}"

    @property
    def bytes_sent(self) -> int:
        return sum(size for _, size in self.requests)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    here: Server

    def do_HEAD(self) -> None:
        self._answer(with_content=False)

    def do_GET(self) -> None:
        self._answer(with_content=True)

    def _answer(self, *, with_content: bool) -> None:
        self.here.speaks.wait(300)
        path = self.here.folder / self.path.lstrip("/")
        found = path.exists()
        content = path.read_bytes() if found else b""
        size, status = len(content), 200 if found else 404
        etag = hashlib.sha256(content).hexdigest()  # two files of one tick of the clock have the same time
        if self.here.is_broken:
            content, status = b"", 500
        elif asked := self.headers.get("Range"):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            content, status = content[int(first) : int(last) + 1 if last else None], 206
        self.send_response(status)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(content) if with_content else size))
        if status == 206:
            self.send_header("Content-Range", f"bytes {first}-{int(first) + len(content) - 1}/{size}")
        if found:
            self.send_header("ETag", f'"{etag}"')
        self.end_headers()
        self.here.requests.append((self.command, len(content) if with_content else 0))
        if with_content:
            self.wfile.write(content)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server for the files below ``tmp_path/served``."""
    folder = tmp_path / "served"
    folder.mkdir()
    with serving(Handler, lambda address: Server(folder=folder, address=address)) as serves:
        serves.speaks.set()
        yield serves
        serves.speaks.set()
