"""Fixtures for the plugins that ship with hostcore."""

from collections.abc import Callable

import pytest

from hostcore_hookspecs import Event
from hostcore_hookspecs.events import Payload


@pytest.fixture
def event() -> Callable[..., Event]:
    """Makes events with consecutive ``seq``: ``event(Metrics(…), step=40, seconds=1.5)``."""
    seq = 0

    def make(
        payload: Payload,
        *,
        step: int | None = None,
        seconds: float = 0,
        run_id: str = "flights-1",
        attempt: int = 1,
    ) -> Event:
        nonlocal seq
        seq += 1
        time_ms = 1_700_000_000_000 + round(seconds * 1000)
        return Event(seq=seq, time_ms=time_ms, run_id=run_id, attempt=attempt, step=step, epoch=0, payload=payload)

    return make
