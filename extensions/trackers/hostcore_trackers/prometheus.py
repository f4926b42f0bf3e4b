"""The reporter ``prometheus``: an HTTP endpoint that a Prometheus server scrapes."""

import errno
import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import attrs
from annotated_types import Ge, Le, MinLen

from hostcore_builtin_plugins.extras import require
from hostcore_hookspecs import Event, FatalError, ReporterContext

if TYPE_CHECKING:
    import threading
    from wsgiref.simple_server import WSGIServer

    from hostcore_trackers.prometheus_metrics import RunMetrics

#: In the run directory: where the endpoint is, as long as there is one.
ADDRESS_FILE: Final = "prometheus.json"


class PrometheusReporter:
    """Shows what is, and nothing of what was: a scrape reads numbers in memory, and nothing waits for it."""

    LIVE_ONLY = True

    @attrs.frozen(kw_only=True)
    class Settings:
        """Address of the endpoint."""

        port: Annotated[int, Ge(0), Le(65535)] = attrs.field(
            default=0, metadata={"help": f"The port; 0: a free one, which is in `{ADDRESS_FILE}` in the run directory."}
        )
        address: Annotated[str, MinLen(1)] = attrs.field(
            default="127.0.0.1", metadata={"help": "The address to listen at; `0.0.0.0`: all of the machine's."}
        )

    def __init__(self, *, settings: Settings | None = None) -> None:
        require("prometheus_client", extra="prometheus")
        self._settings = settings or self.Settings()
        self._metrics: RunMetrics | None = None
        self._server: WSGIServer | None = None
        self._thread: threading.Thread | None = None
        self._file: Path | None = None

    def open(self, ctx: ReporterContext) -> None:
        """Listen.

        :raises FatalError: The port is taken or not allowed, or the address is not this machine's.
        """
        from prometheus_client import start_http_server

        from hostcore_trackers.prometheus_metrics import RunMetrics

        self.close()  # of an open that did not come to its end
        self._metrics = RunMetrics(ctx)
        address, port = self._settings.address, self._settings.port
        try:
            self._server, self._thread = start_http_server(port, addr=address, registry=self._metrics.registry)
        except OSError as error:
            raise _explained(error, address, port) from error
        shown = f"[{address}]" if ":" in address else address
        url = f"http://{shown}:{self._server.server_port}/metrics"
        self._file = Path(ctx.run_dir, ADDRESS_FILE)
        _replace(self._file, json.dumps({"url": url, "pid": os.getpid()}) + "\n")

    def report_event(self, event: Event) -> None:
        """Take the event into the numbers."""
        assert self._metrics is not None  # open comes first
        self._metrics.update(event)

    def close(self) -> None:
        """Stop listening, and free the port."""
        server, thread, file = self._server, self._thread, self._file
        self._server = self._thread = self._file = None
        if file is not None:
            file.unlink(missing_ok=True)
        if server is not None and thread is not None:
            with suppress(OSError):  # wakes the thread, which looks twice a second whether it is to end
                server.socket.shutdown(socket.SHUT_RDWR)
            server.shutdown()
            server.server_close()
            thread.join()


def _explained(error: OSError, address: str, port: int) -> FatalError:
    where = f"{address}:{port}"
    if error.errno == errno.EADDRINUSE:
        return FatalError(
            f"port {port} of {address} is taken",
            hint="name another port in the reporter's settings; 0 takes a free one",
        )
    if error.errno == errno.EACCES:
        return FatalError(f"this user may not listen at {where}", hint="name a port above 1023")
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return FatalError(f"{address} is no address of this machine", hint='"127.0.0.1", or "0.0.0.0" for all')
    return FatalError(f"cannot listen at {where}: {error.strerror or error}")


def _replace(path: Path, text: str) -> None:
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(text)
    new.replace(path)
