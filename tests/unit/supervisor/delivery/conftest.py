"""The log of a run, and deliveries from it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostcore.events.merger import EventLog
from hostcore.runs.directory import RunDirectory

sys.path.insert(0, str(Path(__file__).parent))  # for the module that these tests share

from desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    directory = RunDirectory(tmp_path / "runs" / "r")
    directory.make()
    log = EventLog(directory.events, run_id="r", attempt=1)
    desk = Desk(directory, log)
    yield desk
    for one in desk.started:
        one.abandon()
    desk.log.close()
