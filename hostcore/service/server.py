"""The process of ``hostcore serve``: uvicorn, and what it says when it starts."""

import logging
import socket
from contextlib import closing

import uvicorn

from hostcore.service.app import make_app
from hostcore.service.settings import InvalidService, read_settings


def serve(*, host: str, port: int, insecure_no_auth: bool, log_level: str) -> int:
    """Answer requests until the process is told to end.

    :param port: 0: a free one, which is printed.
    :return: The exit code.
    :raises HostcoreError: When the service cannot start.
    """
    settings = read_settings(host=host, insecure_no_auth=insecure_no_auth)
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    app = make_app(settings)
    with closing(_listen(host, port)) as listening:
        address = f"[{host}]" if ":" in host else host
        print(f"hostcore serves http://{address}:{listening.getsockname()[1]}", flush=True)
        config = uvicorn.Config(
            app, log_level=log_level, log_config=None, server_header=False, timeout_graceful_shutdown=10
        )
        server = uvicorn.Server(config)
        server.run(sockets=[listening])
    return 0 if server.started else 1


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise InvalidService(
            f"cannot listen on {host}, port {port}: {error.strerror}", hint="choose another with --port"
        ) from error
