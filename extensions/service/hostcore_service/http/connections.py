"""Connection limits and request timeouts.

A client that opens connections and sends half a request, or none, holds a file descriptor for each. So

- the head of a request has to be there soon, its body too, and what is sent has to be read;
- there are no more connections than descriptors are left for: the oldest idle connection is closed for a new
  one, so that a client with a whole request always gets in;
- no more requests are answered at once than leave room for new connections. ``/healthz`` and ``/readyz`` are always
  answered.
"""

import asyncio
import logging
import resource
import time
from collections.abc import Callable
from typing import Any, Final, Literal

import attrs
import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from hostcore_service.http.problems import RequestError, problem, status_of
from hostcore_service.http.rate import PROBES
from hostcore_service.settings import InvalidService

LOG: Final = logging.getLogger("hostcore_service")

#: Connections at once, if the limit on open files allows it.
MOST: Final = 1024
#: The part of them on which no request is answered, so that new ones get in.
_SPARE: Final = 32
_LEAST: Final = 2 * _SPARE
#: Descriptors for all the rest: the database, files that are read, checks, what is imported; and for each launch.
_KEPT: Final = 128
_KEPT_PER_LAUNCH: Final = 8
#: Sockets that are taken from the system in one go, before any of them is looked at.
TAKEN_AT_ONCE: Final = 64
#: Connections that the system keeps until they are taken.
BACKLOG: Final = 2048
#: Between two lines about the same trouble.
_QUIET_SECONDS: Final = 60.0
#: What a client has to read at least in the time that it has for that.
_LEAST_READ_BYTES: Final = 16 << 10


@attrs.frozen(kw_only=True)
class Patience:
    """Time limits of a connection, in seconds."""

    #: From its beginning, or from the last answer, to the end of a request's head.
    head: float = 10.0
    #: From there to the end of the body, which has a mebibyte at the most.
    body: float = 60.0
    #: For a client that is sent something to read some of it, or the rest.
    read: float = 60.0


def connections_allowed(launches_at_once: int) -> int:
    """Return the number of connections to allow; raises the limit on open files as far as needed and possible.

    :raises InvalidService: When it is too low.
    """
    kept = _KEPT + _KEPT_PER_LAUNCH * launches_at_once
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST + kept
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    allowed = MOST if soft == resource.RLIM_INFINITY else min(MOST, soft - kept)
    if allowed < _LEAST:
        raise InvalidService(
            f"this process may open {soft} files, which is too few to answer requests and to launch jobs",
            hint=f"ulimit -n {wanted}; at least {kept + _LEAST}",
        )
    return allowed


class Connections:
    """The connections of a server.

    :param most: How many there may be.
    """

    def __init__(self, most: int, patience: Patience | None = None) -> None:
        self.most = most
        self.patience = patience or Patience()
        #: Those whose request is not there yet, the one that waits longest first.
        self.without_head: dict[Connection, None] = {}
        self.without_body: dict[Connection, None] = {}
        #: Those whose client has not read yet what was sent.
        self.unread: dict[Connection, None] = {}
        self._told = float("-inf")

    def protocol(self) -> type[asyncio.Protocol]:
        """Return the protocol class that uvicorn instantiates for each connection."""
        connections = self

        class LimitedConnection(Connection):
            all = connections

        return LimitedConnection

    def make_room(self) -> bool:
        """Close the connection that has kept the service waiting for longest; whether there was one."""
        if time.monotonic() - self._told >= _QUIET_SECONDS:
            self._told = time.monotonic()
            LOG.warning(
                "there are %s connections, the most there may be: those without a request are closed", self.most
            )
        for waiting in (self.without_head, self.without_body, self.unread):
            if waiting:
                next(iter(waiting)).give_up()
                return True
        return False


class Connection(H11Protocol):
    """One connection, which is closed when it keeps the service waiting for too long."""

    all: Connections

    def __init__(self, *arguments: Any, **how: Any) -> None:
        super().__init__(*arguments, **how)
        self._waits_for: Literal["head", "body"] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._read_deadline: asyncio.TimerHandle | None = None
        self._unread_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See :class:`asyncio.Protocol`."""
        has_room = len(self.connections) < self.all.most or self.all.make_room()
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # writing is paused for as long as anything is unread
        if has_room:
            self._watch()
        else:  # a request is answered on every other one
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """See :class:`asyncio.Protocol`."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Called by uvicorn when an answer was sent."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """See :class:`asyncio.Protocol`."""
        self._wait_for(None)
        self._forget_unread()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """See :class:`asyncio.Protocol`: the client has not read what was sent."""
        super().pause_writing()
        self.all.unread[self] = None
        self._await_reading()

    def resume_writing(self) -> None:
        """See :class:`asyncio.Protocol`: it has."""
        self._forget_unread()
        super().resume_writing()
        self._watch()

    def give_up(self) -> None:
        """Close the connection without a response, which the client might not read either."""
        self._wait_for(None)
        self._forget_unread()
        self.transport.abort()

    def _await_reading(self) -> None:
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._read_deadline = self.loop.call_later(self.all.patience.read, self._see_what_was_read)

    def _see_what_was_read(self) -> None:
        """Give a client up that has read next to nothing; a slow one has its time again."""
        if self._unread_bytes - self.transport.get_write_buffer_size() < _LEAST_READ_BYTES:
            self.give_up()
        else:
            self._await_reading()

    def _forget_unread(self) -> None:
        self.all.unread.pop(self, None)
        if self._read_deadline is not None:
            self._read_deadline.cancel()
            self._read_deadline = None

    def _watch(self) -> None:
        """See what the connection keeps the service waiting for."""
        if self.transport.is_closing():
            self._wait_for(None)
        elif self.conn.their_state is h11.SEND_BODY:
            self._wait_for("body")
        else:
            is_answered = self.cycle is None or self.cycle.response_complete
            # The last answer is read before there is a next request.
            self._wait_for("head" if is_answered and self not in self.all.unread else None)

    def _wait_for(self, what: Literal["head", "body"] | None) -> None:
        if what == self._waits_for:
            return
        self._waits_for = what
        self.all.without_head.pop(self, None)
        self.all.without_body.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if what is not None:
            waiting = self.all.without_head if what == "head" else self.all.without_body
            waiting[self] = None
            self._deadline = self.loop.call_later(getattr(self.all.patience, what), self.give_up)


class AtOnce:
    """An ASGI application that answers so many requests at the same time, and probes always.

    :param connections: How many there may be.
    """

    def __init__(self, app: ASGIApp, connections: int) -> None:
        self._app = app
        self._most = connections - _SPARE
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse with 503."""
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        if self._open >= self._most:
            error = too_busy(f"{self._most} requests are being answered, which is as many as can be", closes=True)
            await problem(status_of(error), [error], error.headers)(scope, receive, send)
            return
        self._open += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._open -= 1


def too_busy(message: str, *, closes: bool = False) -> RequestError:
    """That something cannot be answered now.

    :param closes: Whether the connection is to be closed.
    """
    headers = {"Retry-After": "10", **({"Connection": "close"} if closes else {})}
    return RequestError(message, code="service.busy", hint="try again in a moment", headers=headers)


def quiet_about_full_tables(
    clock: Callable[[], float] = time.monotonic,
) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """Return an error handler for event loops that logs a full file table rarely, not for every ``accept``."""
    told = float("-inf")

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal told
        if context.get("message") != "socket.accept() out of system resource":
            loop.default_exception_handler(context)
        elif clock() - told >= _QUIET_SECONDS:
            told = clock()
            LOG.error("no connection can be taken, and it is tried again: %s", context.get("exception"))

    return handle
