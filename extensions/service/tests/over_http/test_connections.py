"""A real service, and clients that open connections and do not say what they want."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

#: What the service may have open, and how many connections are opened to it: far more.
_OPEN_FILES = 512
_CONNECTIONS = 2_000
_HALF_A_REQUEST = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Waits: "


@pytest.fixture
def room() -> Iterator[None]:
    """This process may have the connections open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _CONNECTIONS + 256
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            pytest.skip(f"this process may open {hard} files, which is too few")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def half_open(server: Any, stack: ExitStack) -> socket.socket:
    """A connection on which a request is begun."""
    one = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=300))
    one.sendall(_HALF_A_REQUEST)
    return one


def is_closed(one: socket.socket) -> bool:
    """Whether the service closes a connection, which is waited for."""
    try:
        return one.recv(1 << 16) == b""
    except ConnectionError:
        return True


@pytest.mark.usefixtures("room")
def test_half_open_connections_keep_no_request_waiting_and_no_job_from_its_launch(make_server: Any) -> None:
    server = make_server(open_files=_OPEN_FILES)
    with ExitStack() as stack:
        opened = []
        for number in range(_CONNECTIONS):
            opened.append(half_open(server, stack))
            if number % 100 == 99:
                server.pool.clear()  # the next request comes on a connection of its own
                assert server.request("GET", "/healthz").status == 200
        files = len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
        server.pool.clear()
        server.submit(run_id="meanwhile")
        assert server.wait_ended("meanwhile")["status"] == "succeeded"
        assert files < _OPEN_FILES
        assert all(is_closed(one) for one in opened)

    assert "Traceback" not in server.log
    assert len(server.log) < 100_000


def test_a_service_that_may_open_too_few_files_does_not_start(make_server: Any) -> None:
    server = make_server(start=False, open_files=150)
    server.start(wait=False)
    assert server.process.wait(timeout=300) == 2
    assert "this process may open 150 files, which is too few" in server.log
    assert "ulimit -n" in server.log
    assert "Traceback" not in server.log
