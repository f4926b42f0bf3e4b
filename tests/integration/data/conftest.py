"""Fixtures for tests of remote data: a real HTTP server on loopback, and a file system of fsspec that reads from it."""

import hashlib
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attrs
import fsspec
import pytest
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem


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

    def url(self, name: str, protocol: str = "loopback") -> str:
        return f"{protocol}://{self.address}/{name}"

    @property
    def bytes_sent(self) -> int:
        return sum(size for _, size in self.requests)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    serves: Server

    def do_HEAD(self) -> None:
        self._answer(with_content=False)

    def do_GET(self) -> None:
        self._answer(with_content=True)

    def _answer(self, *, with_content: bool) -> None:
        self.serves.speaks.wait(300)
        path = self.serves.folder / self.path.lstrip("/")
        found = path.exists()
        content = path.read_bytes() if found else b""
        size, status = len(content), 200 if found else 404
        etag = hashlib.sha256(content).hexdigest()  # two files of one tick of the clock have the same time
        if self.serves.is_broken:
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
        self.serves.requests.append((self.command, len(content) if with_content else 0))
        if with_content:
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


class LoopbackFileSystem(AbstractFileSystem):
    """As small as a file system of fsspec can be; fsspec's own for HTTP needs a package that may not be there."""

    protocol = "loopback"
    cachable = False

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("loopback://")

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        headers, _content = request("HEAD", self._strip_protocol(path))
        return {"name": path, "type": "file", "size": int(headers["Content-Length"]), "ETag": headers["ETag"]}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        raise NotImplementedError

    def _open(self, path: str, mode: str = "rb", **options: Any) -> AbstractBufferedFile:
        return LoopbackFile(self, path, mode, **options)


class LoopbackFile(AbstractBufferedFile):
    def _fetch_range(self, start: int, end: int) -> bytes:
        return request("GET", self.path, {"Range": f"bytes={start}-{end - 1}"})[1]


def request(method: str, path: str, headers: dict[str, str] | None = None) -> tuple[Any, bytes]:
    address, _, file = path.partition("/")
    connection = HTTPConnection(address, timeout=300)
    try:
        connection.request(method, f"/{file}", headers=headers or {})
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    if response.status == 404:
        raise FileNotFoundError(path)
    if response.status >= 400:
        raise OSError(f"the server answered {response.status}")
    return response.headers, content


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server for the files below ``tmp_path/served``."""
    folder = tmp_path / "served"
    folder.mkdir()
    fsspec.register_implementation("loopback", LoopbackFileSystem, clobber=True)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        serves = Server(folder=folder, address=f"127.0.0.1:{http.server_port}")
        http.RequestHandlerClass = type("ServingHandler", (Handler,), {"serves": serves})
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        serves.speaks.set()
        yield serves
        serves.speaks.set()
        http.shutdown()
        thread.join()
