"""Streams: what grows is sent as it grows. An open stream holds a connection and a few objects, and no thread.

It looks now and then whether there is more: soon when there just was, and less often where nothing happens. A look, the
first as all others, is made in one of a few threads that belong to streams alone, so that many streams wait for each
other and never keep a request waiting.
"""

import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Final, Protocol, TypeVar

import anyio
import attrs
import orjson
from anyio import CapacityLimiter, to_thread
from fastapi import Request
from fastapi.responses import StreamingResponse
from sqlalchemy.exc import SQLAlchemyError

from hostcore_hookspecs.errors import HostcoreError
from hostcore_service.http.connections import MOST, too_busy
from hostcore_service.jobs.visibility import NotVisible

LOG: Final = logging.getLogger("hostcore_service")

T = TypeVar("T")

#: Between two looks, in seconds: right after news, and after a long time without any.
_SOONEST: Final = 0.2
_LATEST: Final = 2.0
#: A proxy closes connections that are silent for a minute or so.
_HEARTBEAT_SECONDS: Final = 15.0
#: Threads that look at files and the database; and threads that ask engines and stores, which may take long.
_LOOKS_AT_ONCE: Final = 4
_CALLS_AT_ONCE: Final = 8

SSE: Final = "text/event-stream"
NDJSON: Final = "application/x-ndjson"
TEXT: Final = "text/plain"


@attrs.frozen(kw_only=True)
class StreamChunk:
    """One thing that is sent."""

    #: The cursor behind it: a client that has all up to here asks for what follows with this.
    id: str
    #: The name of its event, for SSE.
    event: str
    #: For SSE, one line.
    data: bytes
    #: For NDJSON, with its end.
    line: bytes
    #: For plain text.
    text: bytes = b""


@attrs.frozen(kw_only=True)
class PollResult:
    """Result of one poll."""

    pieces: Sequence[StreamChunk] = ()
    #: Whether there is more to be had at once.
    more: bool = False
    #: The status of the job once it has ended and everything was read; None before.
    ended: str | None = None


class StreamSource(Protocol):
    """Source of a stream's contents."""

    @property
    def far(self) -> bool:
        """The next poll asks an engine or a store."""

    def look(self) -> PollResult:
        """Return contents added since the last poll.

        :raises NotVisible: When it is not seen from here any more. The stream ends; the client's next request fails.
        :raises HostcoreError: When it cannot be read now.
        """


class Streams:
    """All streams of a service.

    :param most: How many may be followed at the same time: each holds a connection for as long as its client likes.
    """

    def __init__(self, most: int = MOST // 2) -> None:
        self._most = most
        #: How many there are.
        self.open = 0
        #: Whether the service is about to end.
        self.leaving = False
        self._looks = CapacityLimiter(_LOOKS_AT_ONCE)
        self._calls = CapacityLimiter(_CALLS_AT_ONCE)

    def leave(self) -> None:
        """End all streams at their next look, without a last message: their clients connect again."""
        self.leaving = True

    def require_room(self) -> None:
        """See that there may be one more.

        :raises RequestError: 503, with ``Retry-After``.
        """
        if self.open >= self._most:
            raise too_busy(f"{self._most} streams are open, which is as many as can be")

    def limiter(self, *, far: bool) -> CapacityLimiter:
        """The threads to look in.

        :param far: Whether an engine or a store is asked.
        """
        return self._calls if far else self._looks

    async def run(self, call: Callable[[], T], *, far: bool) -> T:
        """Call something in one of the threads of streams.

        :param far: See :meth:`limiter`.
        """
        return await to_thread.run_sync(call, limiter=self.limiter(far=far), abandon_on_cancel=True)

    async def look(self, source: StreamSource) -> PollResult:
        """Poll a source, in the threads for its kind."""
        return await self.run(source.look, far=source.far)

    async def send(
        self, source: StreamSource, first: PollResult, *, request: Request, form: str, follow: bool
    ) -> AsyncGenerator[bytes]:
        """Yield the encoded chunks of a stream.

        :param first: Result of the first poll.
        :param form: :data:`SSE`, :data:`NDJSON` or :data:`TEXT`.
        :param follow: Whether to continue until the job has ended.
        """
        self.open += 1
        try:
            async with aclosing(self._found(source, first, request=request, follow=follow)) as found:
                async for one in found:
                    if written := _written(one, form):
                        yield written
        finally:
            self.open -= 1

    async def _found(
        self, source: StreamSource, first: PollResult, *, request: Request, follow: bool
    ) -> AsyncGenerator[PollResult | None]:
        """Yield the results of polls; None as a heartbeat when there was nothing new for a while."""
        found, wait, said = first, _SOONEST, time.monotonic()
        while True:
            if found.pieces or found.ended is not None:
                yield found
                wait, said = _SOONEST, time.monotonic()
            if found.ended is not None or (not follow and not found.more):
                return
            if not found.more:
                if time.monotonic() - said >= _HEARTBEAT_SECONDS:
                    yield None
                    said = time.monotonic()
                await anyio.sleep(wait)
                wait = min(wait * 1.5, _LATEST)
            if self.leaving or await request.is_disconnected():
                return
            try:
                found = await self.look(source)
            except NotVisible:
                return
            except (HostcoreError, SQLAlchemyError, OSError) as error:
                if not follow:
                    raise
                LOG.warning("a stream could not be read on, and is tried again: %s", error)
                found, wait = PollResult(), _LATEST


def the_streams(request: Request) -> Streams:
    """The streams of the service that answers a request."""
    streams: Streams = request.app.state.streams
    return streams


def form_of(accept: str, *, has_text: bool = False) -> str:
    """The form that a client wants: see its header ``Accept``; NDJSON if it does not care.

    :param has_text: Whether there is plain text to be had.
    """
    wanted = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    if SSE in wanted:
        return SSE
    return TEXT if has_text and TEXT in wanted else NDJSON


def streamed(content: AsyncGenerator[bytes], form: str) -> StreamingResponse:
    """The response that is a stream. No proxy may store it, or wait for its end."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff"}
    return StreamingResponse(content, media_type=form, headers=headers)


def _written(found: PollResult | None, form: str) -> bytes:
    if form == TEXT:
        return b"".join([piece.text for piece in found.pieces]) if found else b""
    if form == NDJSON:
        return b"".join([piece.line for piece in found.pieces]) if found else b"\n"
    if found is None:
        return b": still here\n\n"
    parts = [
        b"id: %s\nevent: %s\ndata: %s\n\n" % (one.id.encode(), one.event.encode(), one.data) for one in found.pieces
    ]
    if found.ended is not None:
        parts.append(b"event: end\ndata: %s\n\n" % orjson.dumps({"status": found.ended}))
    return b"".join(parts)
