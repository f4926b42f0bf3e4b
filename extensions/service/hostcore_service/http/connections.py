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
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import attrs
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from hostcore_service.http.problems import RequestError, problem, status_of
from hostcore_service.http.rate import PROBES
from hostcore_service.settings import InvalidService

LOG: Final = logging.getLogger("hostcore_service")

#: Address and port of a client.
Peer = tuple[str, int]

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


@attrs.define(eq=False)
class _Wait:
    """Wait for a client, which is to send something or to read something."""

    timer: asyncio.TimerHandle
    #: Bytes that the client had not read when the wait began.
    unread: int


class Connections:
    """The connections of a server: each is closed when it keeps the service waiting for too long.

    uvicorn bounds neither the time for a head or a body, nor that for reading an answer, and its ``limit_concurrency``
    answers 503 to all while half-open connections are as many. Its protocol reports here that a connection begins and
    ends; an ASGI application around the service's knows the rest.

    :param most: How many there may be.
    """

    def __init__(self, most: int, patience: Patience | None = None) -> None:
        self.most = most
        self.patience = patience or Patience()
        self._open: dict[Peer, asyncio.Transport] = {}
        #: The connections that keep the service waiting, the longest wait first.
        self._waiting: dict[Peer, _Wait] = {}
        #: How many requests of a connection are being answered.
        self._answered: Counter[Peer] = Counter()
        self._told = float("-inf")

    def protocol(self) -> type[asyncio.Protocol]:
        """Return the protocol class that uvicorn instantiates for each connection."""
        connections = self

        class LimitedConnection(H11Protocol):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                """See :class:`asyncio.Protocol`."""
                super().connection_made(transport)
                connections.begin(transport)

            def connection_lost(self, exc: Exception | None) -> None:
                """See :class:`asyncio.Protocol`."""
                connections.end(self.transport)
                super().connection_lost(exc)

        return LimitedConnection

    def begin(self, transport: asyncio.Transport) -> None:
        """Take a connection, in place of the one with the longest wait if there are too many."""
        if len(self._open) >= self.most and not self._make_room():
            transport.abort()  # a request is answered on every other one
            return
        self._open[_peer(transport)] = transport
        self._wait(_peer(transport), self.patience.head)

    def end(self, transport: asyncio.Transport) -> None:
        """Forget a connection."""
        if self._open.get(_peer(transport)) is transport:
            self._done(_peer(transport))
            del self._open[_peer(transport)]

    def within(self, app: ASGIApp) -> ASGIApp:
        """Return an application that answers so many requests at the same time, and probes always.

        Clients have so much time to send a body, and to read an answer.
        """

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            peer: Peer = scope["client"]
            is_busy = self._answered.total() >= self.most - _SPARE and scope["path"] not in PROBES
            self._done(peer)
            self._answered[peer] += 1
            try:
                answering = self._refusal() if is_busy else app
                await answering(scope, self._receiving(peer, receive), self._sending(peer, send))
            finally:
                self._answered[peer] -= 1
                if self._answered[peer] == 0:
                    del self._answered[peer]
                    self._wait(peer, self.patience.head)

        return answer

    def _refusal(self) -> ASGIApp:
        message = f"{self.most - _SPARE} requests are being answered, which is as many as can be"
        error = too_busy(message, closes=True)
        return problem(status_of(error), [error], error.headers)

    def _receiving(self, peer: Peer, receive: Receive) -> Receive:
        due = time.monotonic() + self.patience.body
        is_whole = False

        async def receive_in_time() -> Message:
            nonlocal is_whole
            if is_whole or peer in self._waiting:  # an answer is being sent, or has been
                return await receive()
            self._wait(peer, due - time.monotonic())
            message = await receive()
            self._done(peer)
            is_whole = not message.get("more_body")
            return message

        return receive_in_time

    def _sending(self, peer: Peer, send: Send) -> Send:
        async def send_in_time(message: Message) -> None:
            self._wait(peer, self.patience.read)
            try:
                await send(message)
            finally:
                self._done(peer)

        return send_in_time

    def _wait(self, peer: Peer, seconds: float) -> None:
        """Begin a wait; for what the client has not read yet, it has the time for that."""
        self._done(peer)
        transport = self._open.get(peer)
        if transport is None:
            return
        unread = transport.get_write_buffer_size()
        if unread or not transport.is_closing():
            seconds = self.patience.read if unread else seconds
            timer = asyncio.get_running_loop().call_later(seconds, self._overdue, peer)
            self._waiting[peer] = _Wait(timer, unread)

    def _done(self, peer: Peer) -> None:
        if wait := self._waiting.pop(peer, None):
            wait.timer.cancel()

    def _overdue(self, peer: Peer) -> None:
        """Close a connection whose client has read next to nothing; a slow client has its time again."""
        before, unread = self._waiting[peer].unread, self._open[peer].get_write_buffer_size()
        has_read = before - unread >= min(before, _LEAST_READ_BYTES)
        if (unread and not before) or (before and has_read):
            self._wait(peer, self.patience.head)
        else:
            self._give_up(peer)

    def _give_up(self, peer: Peer) -> None:
        """Close a connection without a response, which the client might not read either."""
        self._done(peer)
        self._open.pop(peer).abort()

    def _make_room(self) -> bool:
        """Close the connection that has kept the service waiting for longest; whether there was one."""
        if time.monotonic() - self._told >= _QUIET_SECONDS:
            self._told = time.monotonic()
            LOG.warning(
                "there are %s connections, the most there may be: those without a request are closed", self.most
            )
        if not self._waiting:
            return False
        self._give_up(next(iter(self._waiting)))
        return True


def _peer(transport: asyncio.Transport) -> Peer:
    """Return the client of a connection, as ``scope["client"]`` names it."""
    host, port, *_ = transport.get_extra_info("peername")
    return host, port


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
