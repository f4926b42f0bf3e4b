"""A stream of server-sent events (WHATWG HTML, section 9.2) that outlives its connections."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from hostcore_service.client.answers import Unavailable
from hostcore_service.client.client import Client
from hostcore_service.client.timeouts import AbsenceTimer

#: The event that a service sends last.
END: Final = "end"


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
    """Iterate over a stream to its end, over as many connections as that takes.

    :param query: Of the first request, and of all others.
    :param last_id: Of the last event that is known; empty for all.
    :raises ServiceUnreachable: When the service was away for too long.
    :raises HostcoreError: The refusal of the service.
    """
    absence = AbsenceTimer(client, clock=clock)
    while True:
        try:
            headers = {"Cache-Control": "no-store", **({"Last-Event-ID": last_id} if last_id else {})}
            with client.stream(path, accept="text/event-stream", headers=headers, query=query) as pieces:
                absence.connected()
                for message in parse(absence.received(pieces), last_id=last_id):
                    last_id = message.last_id
                    yield message
                    if message.event == END:
                        return
            raise Unavailable(f"{client.url} has ended the connection")
        except Unavailable as lost:
            client.sleep(absence.wait_after(lost))


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
