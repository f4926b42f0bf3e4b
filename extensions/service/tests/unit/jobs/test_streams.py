"""What a stream says while there is nothing to say."""

from contextlib import aclosing
from typing import Any

import anyio
import pytest

from hostcore_service.jobs import streams
from hostcore_service.jobs.streams import NDJSON, SSE, PollResult, Streams


class Quiet:
    """A job in which nothing happens."""

    far = False

    def look(self) -> PollResult:
        return PollResult()


class Client:
    """A request whose client stays."""

    async def is_disconnected(self) -> bool:
        return False


@pytest.mark.parametrize(("form", "sign"), [(SSE, b": still here\n\n"), (NDJSON, b"\n")])
def test_a_quiet_stream_shows_that_it_lives(form: str, sign: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_HEARTBEAT_SECONDS", 0.0)
    client: Any = Client()

    async def first() -> bytes | None:
        async with aclosing(Streams().send(Quiet(), PollResult(), request=client, form=form, follow=True)) as sent:
            return await anext(sent, None)

    assert anyio.run(first) == sign
