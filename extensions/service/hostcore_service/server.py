"""The process of ``hostcore serve``: uvicorn, start-up messages, and logging."""

import asyncio
import logging
import os
import signal
import socket
from contextlib import closing
from types import FrameType
from typing import Final

import uvicorn

from hostcore.interruption import handle
from hostcore.runs.directory import RUNS_DIR_VARIABLE
from hostcore.secrets.scrub import scrub
from hostcore_builtin_plugins.control_characters import visible
from hostcore_service.app import make_app
from hostcore_service.http.connections import (
    BACKLOG,
    TAKEN_AT_ONCE,
    Connections,
    connections_allowed,
    quiet_about_full_tables,
)
from hostcore_service.jobs.streams import Streams
from hostcore_service.services import Service
from hostcore_service.settings import DATABASE_VARIABLE, TOKEN_VARIABLE, InvalidService, Settings, read_settings

#: How long what is being answered may take when the service ends.
_ANSWER_SECONDS: Final = 4


def serve(*, host: str, port: int, insecure_no_auth: bool, log_level: str) -> int:
    """Answer requests until the process receives a signal to end.

    :param port: 0: a free one, which is printed.
    :return: The exit code.
    :raises HostcoreError: When the service cannot start.
    """
    settings = read_settings(host=host, insecure_no_auth=insecure_no_auth)
    for name in (TOKEN_VARIABLE, DATABASE_VARIABLE):
        os.environ.pop(name, None)  # what is launched here inherits the rest
    _log_to_stderr(log_level)
    most = connections_allowed(settings.operator.service.launches_at_once)
    with closing(_listen(host, port)) as listening:
        app = make_app(settings, Service.open(settings), most=most)
        _work_in_an_empty_folder(settings)
        address = f"[{host}]" if ":" in host else host
        print(f"hostcore serves http://{address}:{listening.getsockname()[1]}", flush=True)
        connections = Connections(most)
        config = uvicorn.Config(
            connections.within(app),
            http=connections.protocol(),
            ws="none",
            loop="asyncio",  # of others, the number of sockets that are taken in one go is not known
            backlog=TAKEN_AT_ONCE,
            log_level=log_level,
            log_config=None,
            server_header=False,
            proxy_headers=False,  # a client could give another address in them, and get round the rate limit
            timeout_graceful_shutdown=_ANSWER_SECONDS,
        )
        server = _Server(config, app.state.streams)
        for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn sends itself, in the end, those that it has caught
            handle(number, server.handle_exit)
        server.run(sockets=[listening])
    return 0 if server.started else 1


def _work_in_an_empty_folder(settings: Settings) -> None:
    """Make an empty working directory. What is launched inherits it, so that relative paths of jobs find no files."""
    folder = settings.runs / ".service" / "empty"
    folder.mkdir(parents=True, exist_ok=True)
    os.environ[RUNS_DIR_VARIABLE] = str(settings.runs)
    os.chdir(folder)


class _Server(uvicorn.Server):
    """Server whose shutdown waits for open responses, but not for streams, which have no end of their own."""

    def __init__(self, config: uvicorn.Config, streams: Streams) -> None:
        super().__init__(config)
        self._streams = streams

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(quiet_about_full_tables())
        await super().startup(sockets)
        for one in sockets or ():  # asyncio has one number for what waits in the system and what it takes in one go
            one.listen(BACKLOG)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._streams.leave()
        super().handle_exit(sig, frame)


class _Scrubbed(logging.Formatter):
    """Shows no secret and no control character: whatever a client writes into a URL stands in the log of requests."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return visible(super().formatMessage(record).strip(), one_line=True)  # a line break would begin a false entry

    def format(self, record: logging.LogRecord) -> str:
        return visible(scrub(super().format(record)))


def _log_to_stderr(level: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Scrubbed("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it logs at every start that there was nothing to do


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
        # The sockets of clients inherit it. asyncio sets it only where the protocol is named, and without it the second
        # packet of an answer waits for 40 ms.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        raise InvalidService(
            f"cannot listen on {host}, port {port}: {error.strerror}", hint="choose another with --port"
        ) from error
