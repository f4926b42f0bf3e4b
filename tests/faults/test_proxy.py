"""The proxy of the fault suites does what it says: what a client sees of each fault, and what the server."""

import http.server
import threading
from collections.abc import Iterator

import pytest
import urllib3
from proxy import Exchange, Fault, Proxy, done_by

ANSWER = b"taken" * 1000
BODY = b"weights" * 30_000

once = urllib3.PoolManager(retries=False, timeout=urllib3.Timeout(connect=60, read=60))


class Server(http.server.ThreadingHTTPServer):
    """Remembers the bodies that have come whole."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_PUT(self) -> None:
        size = int(self.headers["Content-Length"])
        body = self.rfile.read(size)
        if len(body) < size:
            return
        self.server.bodies.append(body)
        self.send_response(200)
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.server_port, bytes_per_second=1_000_000) as proxy:
        yield proxy


def put(proxy: Proxy, *, read_seconds: float = 60) -> urllib3.BaseHTTPResponse:
    timeout = urllib3.Timeout(connect=60, read=read_seconds)
    return once.request("PUT", f"{proxy.url}/object", body=BODY, timeout=timeout)


@pytest.mark.parametrize("fault", [Fault.NONE, Fault.SLOW])
def test_a_healthy_or_slow_proxy_passes_everything_on(proxy: Proxy, server: Server, fault: Fault) -> None:
    proxy.fault = fault
    response = put(proxy)
    assert (response.status, response.data) == (200, ANSWER)
    assert server.bodies == [BODY]
    assert proxy.exchanges == [Exchange(method="PUT", target="/object", fault=fault, status=200)]


@pytest.mark.parametrize("fault", [Fault.RESET, Fault.TRUNCATED_REQUEST, Fault.ABSENT])
def test_a_request_that_is_cut_off_never_comes_whole(proxy: Proxy, server: Server, fault: Fault) -> None:
    proxy.fault = fault
    with pytest.raises(urllib3.exceptions.HTTPError):
        put(proxy)
    assert server.bodies == []
    proxy.fault = Fault.NONE
    assert put(proxy).status == 200


def test_a_black_hole_never_answers(proxy: Proxy, server: Server) -> None:
    proxy.fault = Fault.BLACK_HOLE
    with pytest.raises(urllib3.exceptions.HTTPError):
        put(proxy, read_seconds=0.1)
    assert server.bodies == []


@pytest.mark.parametrize(("fault", "later"), [(Fault.UNAVAILABLE, None), (Fault.UNAVAILABLE_FOR_A_SECOND, "1")])
def test_an_unavailable_server_says_so(proxy: Proxy, server: Server, fault: Fault, later: str | None) -> None:
    proxy.fault = fault
    response = put(proxy)
    assert (response.status, response.headers.get("Retry-After")) == (503, later)
    assert server.bodies == []


@pytest.mark.parametrize("fault", [Fault.LOST_RESPONSE, Fault.TRUNCATED_RESPONSE])
def test_a_response_that_is_cut_off_comes_after_the_work_was_done(proxy: Proxy, server: Server, fault: Fault) -> None:
    proxy.fault = fault
    with pytest.raises(urllib3.exceptions.HTTPError):
        put(proxy)
    assert server.bodies == [BODY]
    assert done_by(proxy.exchanges, "PUT") == {"/object": 1}


def test_a_fault_may_be_that_of_some_requests_only(proxy: Proxy, server: Server) -> None:
    with proxy.suffering(Fault.UNAVAILABLE, methods=["PUT"], every=2):
        assert [put(proxy).status for _ in range(4)] == [200, 503, 200, 503]
        assert once.request("GET", proxy.url).status == 501  # the server's own answer
    assert put(proxy).status == 200
    assert (proxy.met(Fault.UNAVAILABLE), done_by(proxy.exchanges, "PUT")) == (2, {"/object": 3})


def test_connections_are_cut_when_the_server_vanishes(proxy: Proxy) -> None:
    proxy.fault = Fault.BLACK_HOLE
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            put(proxy, read_seconds=60)
        except urllib3.exceptions.HTTPError as error:
            errors.append(error)

    client = threading.Thread(target=wait)
    client.start()
    while not proxy._tasks:
        client.join(0.01)
    proxy.fault = Fault.ABSENT
    client.join()
    cut = (urllib3.exceptions.ProtocolError, urllib3.exceptions.NewConnectionError)  # the other, while it connects
    assert isinstance(errors[0], cut)
