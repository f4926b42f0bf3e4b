"""A proxy for HTTP that does to its clients what networks and overloaded servers do; switched while it runs.

It runs in a thread, listens on the loopback interface, and keeps its port whatever happens: one that is ``ABSENT``
refuses connections there. Each request is decided by the fault of the moment in which it began.
"""

import asyncio
import enum
import socket
import struct
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Self
from urllib.parse import unquote

import attrs

PIECE = 4096


class Fault(enum.Enum):
    """What becomes of a request."""

    NONE = "none"
    #: Nobody listens. Connections that were there are reset.
    ABSENT = "absent"
    #: The connection is accepted, and reset in the middle of the request.
    RESET = "reset"
    #: The connection is accepted; nothing is read, and nothing answered, as long as the fault lasts.
    BLACK_HOLE = "black hole"
    #: 503.
    UNAVAILABLE = "unavailable"
    #: 503, with ``Retry-After: 1``.
    UNAVAILABLE_FOR_A_SECOND = "unavailable, retry after a second"
    #: All is well, at ``bytes_per_second``.
    SLOW = "slow"
    #: The server sees half of the request, and the client no answer.
    TRUNCATED_REQUEST = "truncated request"
    #: The server sees the request, and the client half of the answer's body; or, if it has none, of the first line.
    TRUNCATED_RESPONSE = "truncated response"
    #: The server sees the request, and the client no answer.
    LOST_RESPONSE = "lost response"


@attrs.frozen(kw_only=True)
class Exchange:
    """A request that was seen to its end, whatever that was."""

    method: str
    #: Path and query.
    target: str
    fault: Fault
    #: The server's answer, whether or not the client got it; None if the server did not answer.
    status: int | None = None

    @property
    def is_done(self) -> bool:
        """Whether the server has done what was asked."""
        return self.status is not None and 200 <= self.status < 300


@attrs.frozen(kw_only=True)
class _Head:
    """The first lines of a request."""

    method: str
    target: str
    lines: tuple[bytes, ...]

    @classmethod
    async def read(cls, reader: asyncio.StreamReader) -> "_Head | None":
        """The next one; None if the client has no more."""
        try:
            text = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = text.removesuffix(b"\r\n\r\n").split(b"\r\n")
        method, target, _ = first.decode("latin-1").split(" ", 2)
        return cls(method=method, target=target, lines=(first, *lines))

    def header(self, name: str) -> str:
        """Of a header; empty if there is none."""
        prefix = name.lower().encode() + b":"
        found = (line.split(b":", 1)[1] for line in self.lines[1:] if line.lower().startswith(prefix))
        return next(found, b"").decode("latin-1").strip()

    @property
    def forwarded(self) -> bytes:
        """As the server gets it: a connection for each request, and no question whether it wants the body."""
        dropped = (b"connection:", b"expect:", b"keep-alive:", b"proxy-")
        kept = [line for line in self.lines if not line.lower().startswith(dropped)]
        return b"\r\n".join([*kept, b"Connection: close", b"", b""])

    async def body(self, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        """The pieces of the body, as they stand on the wire."""
        if "chunked" in self.header("Transfer-Encoding").lower():
            size = -1
            while size != 0:
                line = await reader.readuntil(b"\r\n")
                size = int(line.split(b";")[0], 16)
                yield line + await reader.readexactly(size + 2)
            return
        left = int(self.header("Content-Length") or 0)
        while left:
            piece = await reader.read(min(left, PIECE))
            if not piece:
                raise asyncio.IncompleteReadError(b"", left)
            left -= len(piece)
            yield piece


Note = Callable[[int | None], None]


class Proxy:
    """Passes requests on to a server of this machine, and does to them what ``fault`` says.

    :param server: The server's port.
    :param bytes_per_second: Of each connection in each direction, when it is slow.
    """

    def __init__(self, server: int, *, bytes_per_second: int = 20_000, fault: Fault = Fault.NONE) -> None:
        self._server = server
        self.bytes_per_second = bytes_per_second
        #: While it is slow: nothing goes on beyond the pieces that are under way.
        self.is_held = False
        self._fault = Fault.ABSENT
        self._methods: frozenset[str] = frozenset()
        self._every, self._count = 1, 0
        #: In the order in which they ended.
        self.exchanges: list[Exchange] = []
        self._socket = _reserved(0)
        self.port = int(self._socket.getsockname()[1])
        self._listening: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._switched = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)
        self._thread.start()
        self.fault = fault

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def fault(self) -> Fault:
        """What happens to requests now."""
        return self._fault

    @fault.setter
    def fault(self, fault: Fault) -> None:
        self._call(self._switch(fault))

    @contextmanager
    def suffering(self, fault: Fault, *, methods: Collection[str] = (), every: int = 1) -> Iterator[None]:
        """For a while, let requests suffer.

        :param methods: Only these; none: all.
        :param every: Only every n-th of them.
        """
        self._methods, self._every = frozenset(methods), every
        self.fault = fault
        try:
            yield
        finally:
            self.fault = Fault.NONE
            self._methods, self._every = frozenset(), 1

    def met(self, fault: Fault) -> int:
        """How many requests have met a fault."""
        return sum(exchange.fault is fault for exchange in self.exchanges)

    def close(self) -> None:
        """End it."""
        self.fault = Fault.ABSENT
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _switch(self, fault: Fault) -> None:
        before, self._fault = self._fault, fault
        self._switched.set()
        self._switched = asyncio.Event()
        if fault is Fault.ABSENT and self._listening is not None:
            self._socket = _reserved(self.port)  # before the port is free for a moment
            self._listening.close()
            self._listening = None
            for task, writer in list(self._tasks.items()):
                _reset(writer)
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        elif before is Fault.ABSENT and fault is not Fault.ABSENT:
            self._listening = await asyncio.start_server(self._connected, sock=self._socket)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = writer
        # The other side may go at any moment: that is what this is for.
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            goes_on = True
            while goes_on and (head := await _Head.read(reader)):
                fault = self._fate(head)
                note = self._note(head, fault)
                try:
                    goes_on = await self._exchange(head, fault, reader, writer, note)
                finally:
                    note(None)
        del self._tasks[task]
        writer.close()

    def _fate(self, head: _Head) -> Fault:
        if self._methods and head.method not in self._methods:
            return Fault.NONE
        self._count += 1
        return self._fault if self._count % self._every == 0 else Fault.NONE

    def _note(self, head: _Head, fault: Fault) -> Note:
        """Writes down what the server has answered, once, before the client knows."""

        def note(status: int | None) -> None:
            nonlocal noted
            if not noted:
                noted = True
                exchange = Exchange(method=head.method, target=head.target, fault=fault, status=status)
                self.exchanges.append(exchange)

        noted = False
        return note

    async def _exchange(
        self, head: _Head, fault: Fault, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: Note
    ) -> bool:
        """Serve a request; whether the connection may be used again."""
        if fault is Fault.ABSENT:  # accepted in the moment in which it vanished
            note(None)
            _reset(writer)
            return False
        if fault is Fault.BLACK_HOLE:
            note(None)
            await self._switched.wait()
            _reset(writer)
            return False
        if head.header("Expect"):
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if fault is Fault.RESET:
            await reader.read(PIECE) if head.header("Content-Length") not in ("", "0") else b""
            note(None)
            _reset(writer)
            return False
        if fault in (Fault.UNAVAILABLE, Fault.UNAVAILABLE_FOR_A_SECOND):
            async for _ in head.body(reader):
                pass
            later = "Retry-After: 1\r\n" if fault is Fault.UNAVAILABLE_FOR_A_SECOND else ""
            note(None)
            writer.write(f"HTTP/1.1 503 Service Unavailable\r\n{later}Content-Length: 0\r\n\r\n".encode())
            await writer.drain()
            return True
        await self._pass_on(head, fault, reader, writer, note)
        return False

    async def _pass_on(
        self, head: _Head, fault: Fault, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: Note
    ) -> None:
        upstream_reader, upstream = await asyncio.open_connection("127.0.0.1", self._server)
        try:
            if fault is Fault.TRUNCATED_REQUEST:
                await self._half(head, reader, upstream)
                note(None)
                _reset(writer)
                return
            upstream.write(head.forwarded)
            async for piece in head.body(reader):
                await self._send(upstream, piece)
                if reader.at_eof():  # the client is dead, and with it what was under way
                    raise ConnectionResetError
            answer = await upstream_reader.read()
            note(int(answer.split(b" ", 2)[1]) if answer else None)
            if fault is Fault.LOST_RESPONSE:
                _reset(writer)
                return
            if fault is Fault.TRUNCATED_RESPONSE:
                head_size = answer.index(b"\r\n\r\n") + 4
                body_size = len(answer) - head_size
                # A client may well do without the rest of a head: then it knows all there is to know.
                answer = answer[: head_size + body_size // 2 if body_size else len("HTTP/1.")]
            for start in range(0, len(answer), PIECE):
                await self._send(writer, answer[start : start + PIECE])
        finally:
            upstream.close()

    async def _half(self, head: _Head, reader: asyncio.StreamReader, upstream: asyncio.StreamWriter) -> None:
        """Pass on half of a request."""
        body = b"".join([piece async for piece in head.body(reader)])
        text = head.forwarded + body[: len(body) // 2] if body else head.forwarded[: len(head.forwarded) // 2]
        await self._send(upstream, text)

    async def _send(self, writer: asyncio.StreamWriter, piece: bytes) -> None:
        writer.write(piece)
        await writer.drain()
        if self._fault is Fault.SLOW:
            await asyncio.sleep(len(piece) / self.bytes_per_second)
            while self.is_held:
                await asyncio.sleep(0.01)


def _reserved(port: int) -> socket.socket:
    """A socket that has a port and does not listen: connections are refused, and nobody else gets it."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # the one before it still listens
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)  # what is slow must not be swallowed by a buffer
    made.bind(("127.0.0.1", port))
    return made


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection so that the other side gets an error instead of an end."""
    with suppress(OSError):
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def done_by(exchanges: Sequence[Exchange], method: str, *, query: str = "") -> dict[str, int]:
    """How often the server has done something to each path.

    :param method: Such as ``PUT``.
    :param query: What the query must contain.
    """
    done = (one.target.partition("?") for one in exchanges if one.method == method and one.is_done)
    return dict(Counter(unquote(path) for path, _, found in done if query in found))
