"""HTTP servers on loopback, in this process."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

State = TypeVar("State")


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], state: Callable[[str], State]) -> Iterator[State]:
    """Answer requests with handlers that have, as ``here``, what ``state("127.0.0.1:port")`` has returned."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients go away in the middle
        here = state(f"127.0.0.1:{server.server_port}")
        server.RequestHandlerClass = type("Handler", (handler,), {"here": here, "log_message": lambda *_: None})
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield here
        server.shutdown()
        thread.join()
