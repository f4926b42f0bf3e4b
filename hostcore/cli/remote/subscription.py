"""A stream of server-sent events (WHATWG HTML, section 9.2) that outlives its connections."""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from hostcore.cli.remote.answers import ServiceUnreachable
from hostcore.cli.remote.client import Client, TryAgain
from hostcore_hookspecs.errors import HostcoreError

#: The event that a service sends last.
END: Final = "end"

_FIRST_WAIT_SECONDS: Final = 0.25
_LONGEST_WAIT_SECONDS: Final = 5.0
#: A service that was away for so long is given up: longer than a restart or an update takes.
_GIVE_UP_SECONDS: Final = 1800.0


@attrs.frozen(kw_only=True)
class Message:
    """One event of a stream."""

    event: str
    data: str
    #: Where to go on; empty for the beginning.
    last_id: str


def subscribe(
    client: Client,
    path: str,
    *,
    query: Mapping[str, Any] | None = None,
    last_id: str = "",
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Message]:
    """Everything that a stream says, to its end, over as many connections as that takes.

    :param query: Of the first request, and of all others.
    :param last_id: Of the last event that is known; empty for all.
    :raises ServiceUnreachable: When the service was away for too long.
    :raises HostcoreError: What the service says against it.
    """
    lost_at: float | None = None
    losses = 0
    while True:
        try:
            headers = {"Cache-Control": "no-store", **({"Last-Event-ID": last_id} if last_id else {})}
            with client.stream(path, accept="text/event-stream", headers=headers, query=query) as pieces:
                for message in parse(pieces, last_id=last_id):
                    if losses > 1:
                        client.tell(f"{client.url} answers again")
                    lost_at, losses = None, 0
                    last_id = message.last_id
                    yield message
                    if message.event == END:
                        return
            raise TryAgain(ServiceUnreachable(f"{client.url} has ended the connection"))
        except TryAgain as lost:
            now = clock()
            lost_at = now if lost_at is None else lost_at
            if now - lost_at > _GIVE_UP_SECONDS:
                raise _given_up(client, now - lost_at) from lost
            losses += 1
            if losses == 2:  # a proxy that ends a connection now and then is not worth a word
                client.tell(f"{lost.error.message}; trying again, while the run goes on")
            wait = min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2.0 ** min(losses - 1, 10))
            client.sleep(max(lost.after_seconds, wait * random.uniform(0.5, 1)))  # noqa: S311 - no secret


def _given_up(client: Client, seconds: float) -> HostcoreError:
    return ServiceUnreachable(
        f"{client.url} has not answered for {seconds / 60:.0f} minutes",
        hint="the run goes on without it; `hostcore status` tells how, once the service is back",
    )


def parse(pieces: Iterable[bytes], *, last_id: str = "") -> Iterator[Message]:
    """The events in a stream; half an event at its end is none. Comments are passed over."""
    event = ""
    data: list[str] = []
    for line in lines_of(pieces):
        if not line:
            if data:
                yield Message(event=event or "message", data="\n".join(data), last_id=last_id)
            event, data = "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            event = value
        elif field == "data":
            data.append(value)
        elif field == "id" and "\0" not in value:
            last_id = value


def lines_of(pieces: Iterable[bytes]) -> Iterator[str]:
    """The lines of a stream, however it was cut into pieces."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line.removesuffix(b"\r").decode("utf-8", "replace") for line in whole)
