"""The journal of an attempt of a thousand ranks: how many of their logs are opened each time."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostcore.events import reader
from hostcore.events.reader import read_events
from hostcore.events.writer import RankLog
from hostcore.supervisor.attempt.journal import RANKS_AT_ONCE, Journal
from hostcore.supervisor.opening import Opening, open_run
from hostcore_hookspecs.events import RunSucceeded, Warning

RANKS = 1000


@pytest.fixture
def opening(plan: Callable) -> Opening:
    opened = open_run(plan())
    assert isinstance(opened, Opening)
    return opened


@pytest.fixture
def journal(opening: Opening, plan: Callable) -> Journal:
    made = Journal(opening, plan().job, ranks=RANKS)
    made.open()
    return made


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, journal: Journal) -> Counter[int]:
    """How often the log of each rank was opened."""
    counts: Counter[int] = Counter()

    def open_regular(path: Path, **how: Any) -> Any:
        counts[int(path.name.split(".")[0].removeprefix("rank-"))] += 1
        return real(path, **how)

    real = reader.open_regular
    monkeypatch.setattr(reader, "open_regular", open_regular)
    return counts


def test_each_gets_its_turn_and_the_first_always(journal: Journal, opened: Counter[int]) -> None:
    looks = -(-(RANKS - 1) // (RANKS_AT_ONCE - 1))
    for _ in range(looks):
        journal.merge()
    assert len(opened) == RANKS
    assert opened.pop(0) == looks
    assert set(opened.values()) <= {1, 2}


def test_in_the_end_all_of_them_are_read(journal: Journal, opening: Opening, plan: Callable) -> None:
    for rank in range(RANKS):
        log = RankLog(opening.directory.rank_events(1, rank))
        log.write(Warning(code="x", message=f"of {rank}"), step=1)
        log.close()
    journal.merge(at_once=None)
    journal.end(RunSucceeded())
    told = [event.payload.message for event, _ in read_events(plan().directory.events) if event.src]
    assert told == [f"of {rank}" for rank in range(RANKS)]
