"""Artifacts, stores that really run, and a server between that breaks what goes through it."""

import logging
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import attrs
import boto3
import fsspec
import gcsfs.core
import pytest
from artifacts import artifact, context, upload_context
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.memory import MemoryFileSystem
from gcp_storage_emulator.server import create_server
from loopback_server import serving
from moto.server import ThreadedMotoServer
from pyarrow.fs import LocalFileSystem

from hostcore_builtin_plugins.stores import put
from hostcore_builtin_plugins.uploaders.fsspec import FsspecUploader

__all__ = ["artifact", "context"]

CREDENTIALS = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}


@attrs.frozen(kw_only=True)
class RunningStore:
    """A store, and a way to look into it that has nothing to do with the uploader."""

    uri: str
    options: dict[str, Any]
    #: All objects in it, by their path below ``uri``.
    objects: Callable[[], dict[str, bytes]]

    @contextmanager
    def opened(self, *, options: dict[str, Any] | None = None, **more: Any) -> Iterator[FsspecUploader]:
        changes = {name: more.pop(name) for name in ("is_canceled", "prefix") if name in more}
        settings = {"uri": self.uri, "storage_options": {**self.options, **(options or {})}, "timeout_seconds": 60.0}
        uploader = FsspecUploader(settings=FsspecUploader.Settings(**{**settings, **more}))
        uploader.open(upload_context(**changes))
        yield uploader
        uploader.close()


@pytest.fixture(scope="session")
def s3_address() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def gcs_address() -> Iterator[str]:
    server = create_server("127.0.0.1", 0, in_memory=True)
    server.start()
    server._api._httpd.handle_error = lambda *_: None  # gcsfs asks twice at once, and goes away with the first answer
    # What gcsfs asks by gRPC, to find out what kind of bucket there is, no emulator answers.
    for protocol in ("gs", "gcs"):
        fsspec.register_implementation(protocol, gcsfs.core.GCSFileSystem, clobber=True)
    host, port = server._api._httpd.server_address
    yield f"{host}:{port}"
    server.stop()


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 5 MiB, the least that S3 takes, so that a few of them are soon made."""
    monkeypatch.setattr(put, "_PART_BYTES", 5 << 20)


@pytest.fixture(scope="session")
def s3_client(s3_address: str) -> Any:
    return boto3.client("s3", endpoint_url=f"http://{s3_address}", **CREDENTIALS)


@pytest.fixture
def s3(s3_address: str, s3_client: Any) -> RunningStore:
    bucket = f"bucket-{uuid.uuid4().hex}"
    s3_client.create_bucket(Bucket=bucket)

    def objects() -> dict[str, bytes]:
        keys = [found["Key"] for found in s3_client.list_objects_v2(Bucket=bucket).get("Contents", [])]
        return {key.removeprefix("runs/"): s3_client.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}

    options = {"key": "key", "secret": "secret", "endpoint_url": f"http://{s3_address}"}
    return RunningStore(uri=f"s3://{bucket}/runs", options=options, objects=objects)


@pytest.fixture(scope="session")
def gcs_client(gcs_address: str) -> Any:
    options = {"token": "anon", "endpoint_url": f"http://{gcs_address}", "project": "p"}
    return gcsfs.core.GCSFileSystem(**options, skip_instance_cache=True)


@pytest.fixture
def gcs(gcs_address: str, gcs_client: Any) -> RunningStore:
    options = {"token": "anon", "endpoint_url": f"http://{gcs_address}", "project": "p"}
    bucket, look = f"bucket-{uuid.uuid4().hex}", gcs_client
    look.mkdir(bucket)

    def objects() -> dict[str, bytes]:
        look.invalidate_cache()
        return {path.removeprefix(f"{bucket}/runs/"): look.cat_file(path) for path in look.find(bucket)}

    return RunningStore(uri=f"gs://{bucket}/runs", options=options, objects=objects)


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def local(tmp_path: Path) -> RunningStore:
    return RunningStore(uri=str(tmp_path / "store"), options={}, objects=lambda: files_below(tmp_path / "store"))


@pytest.fixture
def memory() -> Iterator[RunningStore]:
    look = MemoryFileSystem()
    root = f"/{uuid.uuid4().hex}"

    def objects() -> dict[str, bytes]:
        return {path.removeprefix(f"{root}/"): look.cat_file(path) for path in look.find(root)}

    yield RunningStore(uri=f"memory:/{root}", options={}, objects=objects)
    look.rm(root, recursive=True) if look.exists(root) else None


class RenamingFileSystem(ArrowFSWrapper):
    """pyarrow's own file system of this machine: for fsspec one that it knows nothing special of."""

    protocol = "renaming"
    cachable = False

    def __init__(self, **options: Any) -> None:
        options.pop("skip_instance_cache", None)
        super().__init__(LocalFileSystem(), **options)


@pytest.fixture
def renaming(tmp_path: Path) -> RunningStore:
    fsspec.register_implementation("renaming", RenamingFileSystem, clobber=True)
    folder = tmp_path / "renaming"
    folder.mkdir()
    return RunningStore(uri=f"renaming://{folder}", options={}, objects=lambda: files_below(folder))


@pytest.fixture(params=["local", "memory", "renaming", "s3", "gcs"])
def store(request: pytest.FixtureRequest) -> RunningStore:
    """Each kind of store in turn."""
    return request.getfixturevalue(request.param)


@attrs.define(kw_only=True)
class Fault:
    """Another answer to one request than its server gives."""

    method: str
    #: Somewhere in the request's path.
    path: str = ""
    #: Requests of this kind that go through before.
    after: int = 0
    #: ``answer`` without asking the server; ``reset`` in the middle of the body; ``lose`` the answer; ``silence``.
    does: str = "answer"
    status: int = 503
    headers: dict[str, str] = attrs.field(factory=dict)
    body: bytes = b""


@attrs.define(eq=False)
class Proxy:
    """Passes requests on to a server, except those that a fault is for."""

    upstream: str
    address: str
    faults: list[Fault] = attrs.field(factory=list)
    #: ``PUT /path`` of every request that was passed on.
    passed: list[str] = attrs.field(factory=list)
    over: threading.Event = attrs.field(factory=threading.Event)

    def fail(self, method: str, **how: Any) -> None:
        """Have requests of a method fail from now on: see :class:`Fault`."""
        self.faults.append(Fault(method=method, **how))

    def fault_for(self, method: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.method == method and fault.path in path:
                if not fault.after:
                    return fault
                fault.after -= 1
        return None


class ProxyHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    here: Proxy

    def pass_on(self) -> None:
        fault = self.here.fault_for(self.command, self.path)
        length = int(self.headers.get("Content-Length", 0))
        if fault and fault.does == "reset":
            self.rfile.read(length // 2)
            self.reset()
            return
        body = self.rfile.read(length)
        if fault and fault.does == "silence":
            self.here.over.wait(60)
            self.reset()
        elif fault and fault.does == "answer":
            self.answer(fault.status, fault.headers, fault.body)
        else:
            self.forward(body, lose=fault is not None)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on  # noqa: N815

    def forward(self, body: bytes, *, lose: bool) -> None:
        self.here.passed.append(f"{self.command} {self.path}")
        connection = HTTPConnection(self.here.upstream, timeout=300)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
        try:
            connection.request(self.command, self.path, body=body, headers=headers)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        if lose:
            self.reset()
        else:
            self.answer(response.status, dict(response.getheaders()), content)

    def answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        hop_by_hop = {"content-length", "transfer-encoding", "connection", "date", "server"}
        length = headers.get("Content-Length") if self.command == "HEAD" else None
        for name, value in headers.items():
            if name.lower() not in hop_by_hop:
                self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.connection.close()
        self.close_connection = True

    def finish(self) -> None:
        try:
            super().finish()
        except (OSError, ValueError):  # it was reset
            return


@contextmanager
def proxy_before(upstream: str) -> Iterator[Proxy]:
    with serving(ProxyHandler, lambda address: Proxy(upstream, address)) as proxy:
        yield proxy
        proxy.over.set()


@pytest.fixture
def s3_proxy(s3_address: str) -> Iterator[Proxy]:
    with proxy_before(s3_address) as proxy:
        yield proxy


@pytest.fixture
def gcs_proxy(gcs_address: str) -> Iterator[Proxy]:
    with proxy_before(gcs_address) as proxy:
        yield proxy


@pytest.fixture
def proxy_to() -> Callable[[str], Any]:
    """``with proxy_to(address) as proxy``: one before any server."""
    return proxy_before
