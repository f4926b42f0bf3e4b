"""What a stream says while there is nothing to say, and nothing to be seen any more."""

from contextlib import aclosing
from typing import Any

import anyio
import pytest

from hostcore_service.jobs import streams
from hostcore_service.jobs.streams import NDJSON, SSE, PollResult, Streams
from hostcore_service.jobs.visibility import NotVisible


class Quiet:
    """A job in which nothing happens."""

    far = False

    def look(self) -> PollResult:
        return PollResult()


class Gone(Quiet):
    """A job that is seen no more."""

    def look(self) -> PollResult:
        raise NotVisible("the run directory is elsewhere")


class Client:
    """A request whose client stays."""

    async def is_disconnected(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("source", "form", "sign"),
    [(Quiet(), SSE, b": still here\n\n"), (Quiet(), NDJSON, b"\n"), (Gone(), SSE, None), (Gone(), NDJSON, None)],
)
@pytest.mark.parametrize("follow", [True, False])
def test_a_quiet_stream_shows_that_it_lives_and_one_that_is_seen_no_more_is_closed_without_an_end(
    source: Any, form: str, sign: bytes | None, follow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_HEARTBEAT_SECONDS", 0.0)
    client: Any = Client()
    begin = PollResult(more=isinstance(source, Gone))

    async def first() -> bytes | None:
        async with aclosing(Streams().send(source, begin, request=client, form=form, follow=follow)) as sent:
            return await anext(sent, None)

    assert anyio.run(first) == (sign if follow else None)
